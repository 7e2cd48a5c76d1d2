#!/usr/bin/env python3
"""Requests a second of the network of examples/serving_batches.exs, compiled by XLA through jax and served in the same way: batches
of up to 64, a batch that does not fill waits 2 ms, one client alone and then 64 clients of 16 requests.

    python3 -m venv /tmp/jax && /tmp/jax/bin/pip install jax
    /tmp/jax/bin/python bench/serving.py

Prints, too, how long a batch of 64 takes by itself: what a server without Python's threads could reach.
"""

import queue
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np

BATCH, WAIT, CLIENTS, REQUESTS = 64, 2e-3, 64, 16

keys = jax.random.split(jax.random.key(1), 3)
weights = [jax.random.normal(k, s) / s[0] ** 0.5 for k, s in zip(keys, [(2, 64), (64, 64), (64, 1)])]


@jax.jit
def predict(x):
    return jax.nn.sigmoid(jnp.tanh(jnp.tanh(x @ weights[0]) @ weights[1]) @ weights[2])


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
        for (_, future), answer in zip(asked, np.asarray(predict(batch))):
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

full = jnp.asarray(points[:BATCH])
predict(full).block_until_ready()
batches = rate(1000, lambda: [predict(full).block_until_ready() for _ in range(1000)])
print("a batch of %d: %.1f µs on %s" % (BATCH, 1e6 / batches, jax.devices()[0]))
