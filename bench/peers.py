#!/usr/bin/env python3
"""Measures the peers of run.exs on the same machine: PyTorch, which Torchx drives, and JAX, the XLA that EXLA drives.

The sets are `irregular`, `networks` (PyTorch alone), `models` (PyTorch, torch.compile and JAX), `compiled` (JAX alone) and
`sweep`; ../shared/bench/peers.py measures the set `peers`.

Usage: peers.py gpu|cpu irregular|networks|models|compiled|sweep...   -> JSON lines {case, peer, value, unit}
"""
import json
import math
import os
import statistics
import sys
import time

import numpy as np

import model_peers

SIZES, SETS = sys.argv[1], sys.argv[2:]
GPU = SIZES == "gpu"
TYPES = {"f32": "float32", "u8": "uint8", "bf16": "bfloat16"}
if not GPU:
    os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def emit(case, peer, value, unit):
    print(json.dumps({"case": case, "peer": peer, "value": value, "unit": unit}), flush=True)


def median(run, runs, warm_up=3):
    """Median seconds of `runs` calls of `run`, which ends with a wait, after `warm_up` that do not count."""
    times = []
    for _ in range(warm_up + runs):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times[warm_up:])


class Torch:
    name = "torch"

    def __init__(self):
        import torch

        torch.backends.cuda.matmul.allow_tf32 = False
        self.lib = torch
        self.device = torch.device("cuda" if GPU else "cpu")

    def tensor(self, data, kind):
        return self.lib.from_numpy(data).to(self.device).to(getattr(self.lib, TYPES[kind]))

    def wait(self, _result):
        if GPU:
            self.lib.cuda.synchronize()

    def compiled(self, fun):
        return fun

    def sum(self, x, axis):
        return x.sum() if axis is None else x.sum(axis)

    def transpose(self, x, axes):
        return x.permute(axes).contiguous()

    def exp(self, x):
        return self.lib.exp(x)


class Jax:
    name = "jax"

    def __init__(self):
        import jax
        import jax.numpy as jnp

        jax.config.update("jax_default_matmul_precision", "highest")
        self.lib, self.jnp = jax, jnp

    def tensor(self, data, kind):
        return self.jnp.asarray(data).astype(TYPES[kind])

    def wait(self, result):
        self.lib.block_until_ready(result)

    def compiled(self, fun):
        return self.lib.jit(fun)

    def sum(self, x, axis):
        return self.jnp.sum(x, axis)

    def transpose(self, x, axes):
        return self.jnp.transpose(x, axes)

    def exp(self, x):
        return self.jnp.exp(x)


def normal(shape):
    """Normally distributed numbers that repeat after 2^20: drawing all of them would take longer than the measurement."""
    return np.resize(np.random.default_rng(0).standard_normal(2**20, dtype=np.float32), shape)


def irregular(peer):
    k = 8192 if GPU else 2048
    batch = 8192 if GPU else 256
    cube = (512, 512, 512) if GPU else (128, 128, 128)
    rows = 2**25 if GPU else 2**20
    n = 2**28 if GPU else 2**22
    box = (32, 24, 40, 48, 56) if GPU else (8, 12, 16, 20, 24)

    def case(name, kind, shapes, amount, unit, runs, fun):
        # Small positive numbers, which every type holds.
        data = [peer.tensor(np.abs(8 * normal(shape)), kind) for shape in shapes]
        fun = peer.compiled(fun)
        emit(name, peer.name, amount / median(lambda: peer.wait(fun(*data)), runs) / 1e9, unit)

    def matmul(name, kind, left, right):
        amount = 2 * int(np.prod(left)) * right[-1]
        case(name, kind, [left, right], amount, "GFLOP/s", 9, lambda a, b: a @ b)

    def moved(name, kind, shapes, bytes_each, fun):
        case(name, kind, shapes, bytes_each * int(np.prod(shapes[0])), "GB/s", 15, fun)

    matmul("matmul_f32_1000x777x1503", "f32", (1000, 777), (777, 1503))
    matmul("matmul_bf16_1000x777x1503", "bf16", (1000, 777), (777, 1503))
    matmul(f"matvec_f32_1x{k}x{k}", "f32", (1, k), (k, k))
    matmul(f"matmul_f32_{batch}_of_32x32", "f32", (batch, 32, 32), (batch, 32, 32))
    moved("sum_middle_axis", "f32", [cube], 4, lambda x: peer.sum(x, 1))
    moved("sum_over_3", "f32", [(rows, 3)], 4, lambda x: peer.sum(x, 1))
    moved("sum_1e8", "f32", [(100_000_000,)], 4, lambda x: peer.sum(x, None))
    moved("transpose_rank5", "f32", [box], 8, lambda x: peer.transpose(x, (4, 2, 0, 3, 1)))
    moved("add_column_to_row", "f32", [(k, 1), (1, k)], 4 * k, lambda a, b: a + b)
    moved("add_u8", "u8", [(n,), (n,)], 3, lambda a, b: a + b)
    moved("sum_u8", "u8", [(n,)], 1, lambda x: peer.sum(x, None))
    moved("add_bf16", "bf16", [(n,), (n,)], 6, lambda a, b: a + b)
    moved("sum_axis1_bf16", "bf16", [(k, k)], 2, lambda x: peer.sum(x, 1))


def networks(peer):
    """One call and a wait, in microseconds."""
    if peer.name != "torch":
        return
    torch, functional = peer.lib, peer.lib.nn.functional
    torch.backends.cudnn.allow_tf32 = False
    n = 64 if GPU else 2
    rows = 512 * n

    def case(name, data, fun):
        emit(name, peer.name, 1e6 * median(lambda: peer.wait(fun(*data)), 15), "us")

    def uniform(*shape):
        return torch.rand(shape, device=peer.device)

    def below(limit, count):
        return torch.randint(limit, (count,), device=peer.device)

    def half(*shape):
        return torch.randn(shape, device=peer.device, dtype=torch.float16)

    def dominant(count, size):
        return uniform(count, size, size) + size * torch.eye(size, device=peer.device)

    image = uniform(n, 64, 64, 64)
    _, indices = functional.max_pool2d(image, 2, return_indices=True)
    case("embedding", [uniform(50_000, 256), below(50_000, rows)], lambda table, at: table[at])
    updates = [uniform(50_000, 256), below(50_000, rows), uniform(rows, 256)]
    case("embedding_gradient", updates, lambda table, at, values: table.index_add(0, at, values))
    case("max_pool_2x2", [image], lambda x: functional.max_pool2d(x, 2))
    case("max_pool_2x2_gradient", [uniform(n, 64, 32, 32)], lambda g: functional.max_unpool2d(g, indices, 2))
    case("average_pool_3x3", [image], lambda x: functional.avg_pool2d(x, 3, 1, 1))
    depthwise = [uniform(n, 128, 28, 28), uniform(128, 1, 3, 3)]
    case("depthwise_conv_3x3", depthwise, lambda x, k: functional.conv2d(x, k, padding=1, groups=128))
    transposed = [uniform(n, 64, 28, 28), uniform(64, 64, 4, 4)]
    case("transposed_conv_4x4", transposed, lambda x, k: functional.conv_transpose2d(x, k, stride=2, padding=1))
    case("sum_rows_of_16", [uniform(65_536 * n, 16)], lambda x: x.sum(1))
    case("sum_channels", [uniform(n, 64, 56, 56)], lambda x: x.sum((0, 2, 3)))
    case("softmax_rows_of_1024", [uniform(128 * n, 1024)], lambda x: torch.softmax(x, 1))
    case("attention_scores_f16", [half(n, 512, 64), half(n, 512, 64)], lambda q, k: q @ k.transpose(1, 2))
    attention = torch.nn.functional.scaled_dot_product_attention
    for width in (64, 128):
        heads = [uniform(1, 16, 4096 if GPU else 128, width).to(torch.bfloat16) for _ in range(3)]
        case(f"attention_of_{width}_bf16", heads, attention)
    case("erf", [uniform(524_288 * n)], torch.erf)
    case("sin", [uniform(524_288 * n)], torch.sin)
    case("random_uniform", [], lambda: uniform(262_144 * n))
    case("top_k_10_of_50000", [uniform(16 * n, 50_000)], lambda x: torch.topk(x, 10))
    case("argsort_rows_of_4096", [uniform(64 * n, 4096)], lambda x: torch.argsort(x, 1))
    case("solve_batch_of_32x32", [dominant(16 * n, 32), uniform(16 * n, 32)], torch.linalg.solve)


def models(peer):
    model_peers.models(peer, GPU, emit, median)


def compiled(peer):
    """The definitions that ../shared/bench/peers.py does not measure."""
    if peer.name != "jax":
        return
    jax, n = peer.lib, 64 if GPU else 2

    def case(name, data, fun):
        emit(name, peer.name, 1e6 * median(lambda: peer.wait(fun(data)), 15), "us")

    rows = jax.nn.sigmoid(peer.tensor(normal((128 * n, 1024)), "f32"))
    case("softmax_rows_of_1024", rows, jax.jit(jax.nn.softmax))
    case("random_uniform", jax.random.key(1), jax.jit(lambda key: jax.random.uniform(key, (262_144 * n,))))


def sweep(peer):
    """Eager calls. A run is the number of calls that takes 20 ms, 1000 at most, and one wait."""
    operations = {"add": (2, lambda a, b: a + b), "exp": (1, peer.exp), "sum": (1, lambda x: peer.sum(x, None))}
    for name, (arity, fun) in operations.items():
        for exponent in range(9):
            data = [peer.tensor(normal(10**exponent), "f32") for _ in range(arity)]

            def each(calls, runs):
                def run():
                    for _ in range(calls):
                        result = fun(*data)
                    peer.wait(result)

                return median(run, runs, 1) / calls

            calls = 1 if each(1, 1) > 0.02 else min(1000, math.ceil(0.02 / each(10, 1)))
            emit(f"{name}_1e{exponent}", peer.name, each(calls, 7) * 1e6, "us/op")


SET_FUNCTIONS = {"irregular": irregular, "networks": networks, "models": models, "compiled": compiled, "sweep": sweep}

for library in (Torch, Jax):
    try:
        chosen = library()
        for name in SETS:
            SET_FUNCTIONS[name](chosen)
    except Exception as error:
        print(f"{library.name} failed: {error!r}", file=sys.stderr, flush=True)
