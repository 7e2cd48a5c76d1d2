#!/usr/bin/env python3
"""Draws what an eager operation costs over the number of elements, from JSON lines of the set `sweep`.

Usage: plot.py TITLE OUT.png OURS.jsonl PEERS.jsonl...      needs matplotlib
Lines: {case: "add_1e3", value, unit: "us/op"} are ours, those with {peer} the peer's; others are ignored.
"""
import json
import re
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

STYLE = {"nx_vulkan": ("#c0392b", "o"), "BinaryBackend": ("#7f8c8d", "s"), "torch": ("#e67e22", "^"), "jax": ("#2980b9", "v")}

title, out, *files = sys.argv[1:]
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
