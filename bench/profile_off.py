"""What the profiler's checks cost a call while no profile is on: the native part of replayed calls, by bench/calls.exs, of this commit
as it is and without the checks.

    python3 bench/profile_off.py FOLDER

FOLDER gets both builds, and keeps them for the next run. Prints JSON lines: medians of the native microseconds of a call over nine runs
of each build in turn, and the spread between the quartiles of the runs as it is.
"""

import json
import os
import statistics
import subprocess
import sys

RUNS = 9
# The checks and what stands in their place.
CHECKS = [
    ("src/stream/mod.rs", "self.profiling.load(Relaxed).then(Instant::now)", "None::<Instant>"),
    ("src/stream/recorder.rs", "self.batch.samples = self.profile.as_ref().and_then(ProfileRecorder::batch);", ""),
    ("src/stream/recorder.rs", "&mut self.profile {\n            profile.command(",
     "None::<&mut ProfileRecorder> {\n            profile.command("),
]


def build(folder, checks):
    os.makedirs(folder, exist_ok=True)
    subprocess.run(f"git archive HEAD | tar -x -C {folder}", shell=True, check=True)
    for path, check, replacement in checks:
        path = os.path.join(folder, path)
        with open(path) as file:
            text = file.read()
        assert text.count(check) == 1, (path, check)
        with open(path, "w") as file:
            file.write(text.replace(check, replacement))
    subprocess.run(["mix", "compile"], cwd=folder, check=True, stdout=subprocess.DEVNULL)


def measure(folder):
    environment = os.environ | {"ELIXIR_ERL_OPTIONS": "+S 1:1 +sbwt none"}
    command = ["mix", "run", "--no-compile", "bench/calls.exs"]
    output = subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True).stdout
    return {case["case"]: case["native_us"] for case in map(json.loads, output.splitlines())}


def main(folder):
    folders = {"with_us": os.path.join(folder, "with"), "without_us": os.path.join(folder, "without")}
    build(folders["with_us"], [])
    build(folders["without_us"], CHECKS)
    runs = {name: [] for name in folders}
    for _ in range(RUNS):
        for name, built in folders.items():
            runs[name].append(measure(built))
    for case in runs["with_us"][0]:
        times = {name: [run[case] for run in list_of] for name, list_of in runs.items()}
        medians = {name: round(statistics.median(list_of), 2) for name, list_of in times.items()}
        low, _, high = statistics.quantiles(times["with_us"], n=4)
        print(json.dumps({"case": case} | medians | {"spread_us": round(high - low, 2)}), flush=True)


main(sys.argv[1])
