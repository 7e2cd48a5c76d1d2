#!/usr/bin/env python3
"""PyTorch's times of the cases of row_kernels.exs, measured in the same way.

Usage: row_kernels_peers.py   -> JSON lines {case, peer, value, unit}
ROWS=8192 and COLUMNS=1024 choose another shape.
"""
import json
import os
import statistics
import time

import torch
import torch.nn.functional as functional

rows, columns = (int(os.environ.get(name, n)) for name, n in [("ROWS", 8192), ("COLUMNS", 1024)])
x, y = (torch.randn(rows, columns, device="cuda") for _ in range(2))
leaf = x.clone().requires_grad_()


def run(fun, calls):
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(calls):
        fun()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e6


def gradient():
    return torch.autograd.grad(torch.softmax(leaf, 1), leaf, y)


cases = {
    "softmax": lambda: torch.softmax(x, 1),
    "log_softmax": lambda: torch.log_softmax(x, 1),
    "layer_norm": lambda: functional.layer_norm(x, (columns,)),
    "rms_norm": lambda: functional.rms_norm(x, (columns,), eps=1e-5),
    "softmax_gradient": gradient,
    "softmax_of_stopped_gradient": gradient,
}
for name, fun in cases.items():
    for _ in range(3):
        run(fun, 20)
    value = statistics.median([(run(fun, 110) - run(fun, 10)) / 100 for _ in range(9)])
    print(json.dumps({"case": name, "peer": "torch", "value": value, "unit": "us"}), flush=True)
