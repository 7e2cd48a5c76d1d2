#!/usr/bin/env python3
"""Draws benchmark results. Needs matplotlib.

plot.py summary RESULTS.md OUT.png
    The ratio to the best peer, case by case, of the sets `peers` and `compiled` on the GPU of RESULTS.md's table.

plot.py models RESULTS.md OUT.png
    The same of whole models.

plot.py sweep TITLE OUT.png OURS.jsonl PEERS.jsonl...
    The cost of an eager operation over the number of elements, from the JSON lines of the sets `sweep` and
    `binary_backend`: {case: "add_1e3", value, unit: "us/op"}, with {peer} where the value is a peer's. Other lines are
    ignored.

plot.py profile TITLE TRACE.json OUT.png
    A trace that Nx.Vulkan.Profile.to_chrome_trace/1 wrote, as Perfetto shows it.
"""
import json
import re
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

STYLE = {"nx_vulkan": ("#c0392b", "o"), "BinaryBackend": ("#7f8c8d", "s"), "torch": ("#e67e22", "^"), "jax": ("#2980b9", "v")}


# The commands of RESULTS.md whose cases a picture of ratios has.
RATIOS = {
    "summary": ("run.exs gpu", "run.exs gpu compiled"),
    "models": ("run.exs gpu models", "../shared/bench/transformer.exs"),
}


def ratios_to_peers(commands, results, out):
    """A bar a case. A case that is in both sets is a definition: the peers compile it, so ours is the compiled one."""
    ratios, device, date = {}, "", ""
    for line in open(results):
        cells = [cell.strip(" `") for cell in line.strip().strip("|").split("|")]
        if len(cells) == 8 and cells[1] == "H200" and cells[3] in commands and cells[7]:
            ratios[cells[0].replace("`", "")] = (float(cells[7]), cells[5].split()[-1])
            device, date = cells[1:3]

    figure, ax = plt.subplots(figsize=(9, 1 + 0.19 * len(ratios)))
    for y, (case, (ratio, peer)) in enumerate(ratios.items()):
        ax.barh(y, ratio - 1, left=1, height=0.7, color="#27ae60" if ratio >= 1 else "#d35400")
        ahead = ratio >= 1
        ax.text(ratio * (1.04 if ahead else 0.96), y, f"{ratio:.2f} {peer}", va="center", ha="left" if ahead else "right", fontsize=8)
    ax.set_yticks(range(len(ratios)), list(ratios), fontsize=8)
    ax.set_ylim(len(ratios) - 0.4, -0.6)
    ax.set_xscale("log")
    ax.set_xlim(0.08, 90)
    ax.set_xticks([0.125, 0.25, 0.5, 1, 2, 4, 8, 16, 32], ["1/8", "1/4", "1/2", "1", "2", "4", "8", "16", "32"])
    ax.minorticks_off()
    ax.axvline(1, color="black", linewidth=0.8)
    ax.grid(True, axis="x", alpha=0.3)
    ax.set_xlabel("speed relative to the faster of PyTorch and JAX (right of 1: nx_vulkan is faster)")
    ax.set_title(f"nx_vulkan on one NVIDIA {device}, {date}")
    figure.tight_layout()
    figure.savefig(out, dpi=110)


def sweep(title, out, *files):
    """A panel an operation, a line a library."""
    curves = {}
    for path in files:
        for line in open(path):
            if not line.startswith("{"):
                continue
            row = json.loads(line)
            case = re.fullmatch(r"([a-z]+)_1e(\d+)", row["case"])
            if case and row["unit"] == "us/op":
                points = curves.setdefault(case[1], {}).setdefault(row.get("peer", "nx_vulkan"), {})
                points[10 ** int(case[2])] = row["value"]

    figure, axes = plt.subplots(1, len(curves), figsize=(5 * len(curves), 4.5), sharey=True, squeeze=False)
    for ax, (operation, peers) in zip(axes[0], curves.items()):
        for peer in [name for name in STYLE if name in peers]:
            color, marker = STYLE[peer]
            ax.loglog(*zip(*sorted(peers[peer].items())), color=color, marker=marker, markersize=4, label=peer)
        ax.set_title(operation)
        ax.set_xlabel("elements (f32)")
        ax.grid(True, which="major", alpha=0.3)
    axes[0][0].set_ylabel("µs per operation")
    axes[0][0].legend()
    figure.suptitle(title)
    figure.tight_layout()
    figure.savefig(out, dpi=110)


def profile(title, path, out):
    """A row a thread of the trace, a colour a kernel; the kernels that took longest have names."""
    events = json.load(open(path))
    threads = {event["tid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
    spans = [event for event in events if event["ph"] == "X"]
    device = next(tid for tid, name in threads.items() if name == "device")
    totals = {}
    for span in spans:
        if span["tid"] == device:
            totals[span["name"]] = totals.get(span["name"], 0) + span["dur"]
    longest = sorted(totals, key=totals.get, reverse=True)[:9]
    colors = dict(zip(longest, plt.get_cmap("tab10").colors))
    figure, ax = plt.subplots(figsize=(11, 3.4))
    for y, tid in enumerate(threads):
        for span in spans:
            if span["tid"] == tid:
                color = "#999999" if threads[tid].startswith("waits") else colors.get(span["name"], "#7f7f7f")
                ax.barh(y, span["dur"] / 1000, left=span["ts"] / 1000, height=0.8, color=color, edgecolor="white", linewidth=0.3)
    for name in longest:
        short = name if len(name) <= 60 else name[:59] + "…"
        ax.barh(0, 0, color=colors[name], label=f"{short}, {totals[name] / 1000:.1f} ms")
    ax.set_yticks(range(len(threads)), list(threads.values()))
    ax.invert_yaxis()
    ax.set_xlabel("ms")
    ax.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncol=3, frameon=False)
    ax.set_title(title, fontsize=10)
    figure.tight_layout()
    figure.savefig(out, dpi=110)


if len(sys.argv) == 4 and sys.argv[1] in RATIOS:
    ratios_to_peers(RATIOS[sys.argv[1]], *sys.argv[2:])
elif len(sys.argv) == 5 and sys.argv[1] == "profile":
    profile(*sys.argv[2:])
elif len(sys.argv) > 4 and sys.argv[1] == "sweep":
    sweep(*sys.argv[2:])
else:
    sys.exit(__doc__)
