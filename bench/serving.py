#!/usr/bin/env python3
"""Requests a second of the network of examples/serving_batches.exs, in torch (eager) or compiled by XLA through jax, and served in
the same way: batches of up to 64 that are padded, a batch that does not fill waits 2 ms, one client alone and then 64 clients.

    python3 -m venv /tmp/peers && /tmp/peers/bin/pip install jax torch
    /tmp/peers/bin/python bench/serving.py jax
    /tmp/peers/bin/python bench/serving.py torch

Prints, too, how long a batch of 64 takes by itself, from the host and to it: what a server without Python's threads could reach.
"""

import queue
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

BATCH, WAIT, CLIENTS, REQUESTS = 64, 2e-3, 64, 64

random = np.random.default_rng(1)
weights = [(random.standard_normal(s) / s[0] ** 0.5).astype(np.float32) for s in [(2, 64), (64, 64), (64, 1)]]


def jax_network():
    """The network from the host's points to the host's answers, and the device's name."""
    import jax
    import jax.numpy as jnp

    placed = [jnp.asarray(w) for w in weights]
    predict = jax.jit(lambda x: jax.nn.sigmoid(jnp.tanh(jnp.tanh(x @ placed[0]) @ placed[1]) @ placed[2]))
    return lambda x: np.asarray(predict(x)), jax.devices()[0]


def torch_network():
    import torch

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    placed = [torch.from_numpy(w).to(device) for w in weights]

    def predict(x):
        with torch.inference_mode():
            hidden = torch.tanh(torch.from_numpy(x).to(device) @ placed[0])
            return torch.sigmoid(torch.tanh(hidden @ placed[1]) @ placed[2]).cpu().numpy()

    return predict, torch.cuda.get_device_name() if device.type == "cuda" else device


peers = {"jax": jax_network, "torch": torch_network}
if sys.argv[1:] not in [[name] for name in peers]:
    sys.exit("usage: serving.py " + "|".join(peers))
predict, device = peers[sys.argv[1]]()

waiting = queue.SimpleQueue()


def serve():
    """Answers what waits, in batches that are padded to one shape."""
    while True:
        asked = [waiting.get()]
        end = time.perf_counter() + WAIT
        while len(asked) < BATCH and (left := end - time.perf_counter()) > 0:
            try:
                asked.append(waiting.get(timeout=left))
            except queue.Empty:
                break
        batch = np.zeros((BATCH, 2), np.float32)
        batch[: len(asked)] = [point for point, _ in asked]
        for (_, future), answer in zip(asked, predict(batch)):
            future.set_result(answer)


def ask(point):
    future = Future()
    waiting.put((point, future))
    return future.result()


def rate(count, run):
    start = time.perf_counter()
    run()
    return round(count / (time.perf_counter() - start))


points = np.random.default_rng(2).uniform(-1, 1, (CLIENTS * REQUESTS, 2)).astype(np.float32)
threading.Thread(target=serve, daemon=True).start()
for point in points[:5]:
    ask(point)

print("one client:    %6d requests/s" % rate(100, lambda: [ask(p) for p in points[:100]]))
with ThreadPoolExecutor(CLIENTS) as pool:
    list(pool.map(lambda _: time.sleep(0.01), range(CLIENTS)))
    parts = points.reshape(CLIENTS, REQUESTS, 2)
    print("%d clients:    %6d requests/s" % (CLIENTS, rate(len(points), lambda: list(pool.map(lambda p: [ask(x) for x in p], parts)))))

batches = rate(1000, lambda: [predict(points[:BATCH]) for _ in range(1000)])
print("a batch of %d: %.1f µs by %s on %s" % (BATCH, 1e6 / batches, sys.argv[1], device))
