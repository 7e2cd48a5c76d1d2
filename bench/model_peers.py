"""The peers of the set `models`: the networks of bench/support/bert.exs and resnet.exs, with the same parameters, batches and optimizers.

A network is written once, on the operations that a library gives: `TorchOps` or `JaxOps`. Each case prints a number on stderr, the
mean of the absolute results or the loss after a step, which run.exs prints, too. ONLY=TEXT measures the cases whose peer and name, as in "torch
bert_base_step_f32", contain the text.
"""
import math
import os
import sys

import numpy as np

RUNS = 15
BERT = {
    True: dict(batch=8, tokens=128, layers=12, width=768, heads=12, vocabulary=30_522),
    False: dict(batch=2, tokens=32, layers=2, width=128, heads=2, vocabulary=1000),
}
RESNET = {
    True: dict(batch=32, image=224, width=64, stages=[3, 4, 6, 3], classes=1000),
    False: dict(batch=2, image=64, width=16, stages=[1, 1, 1, 1], classes=10),
}


def uniform(count, stream):
    """As Bench.Measure, in (0, 1)."""
    state = np.arange(count, dtype=np.uint32)
    state += np.uint32(stream * 0x9E3779B9 % 2**32)
    state *= np.uint32(747_796_405)
    state += np.uint32(2_891_336_453)
    word = ((state >> ((state >> np.uint32(28)) + np.uint32(4))) ^ state) * np.uint32(277_803_737)
    bits = ((word >> np.uint32(22)) ^ word) >> np.uint32(9)
    return (bits.astype(np.float32) + np.float32(0.5)) * np.float32(2**-23)


def normal(shape, seed):
    count = math.prod(shape)
    radius = np.sqrt(np.float32(-2) * np.log(uniform(count, 2 * seed)))
    return (radius * np.cos(np.float32(2 * math.pi) * uniform(count, 2 * seed + 1))).reshape(shape)


def parameters(specifications):
    return {
        name: normal(shape, seed) * np.float32(deviation) + np.float32(mean)
        for seed, (name, shape, mean, deviation) in enumerate(specifications)
    }


class Bert:
    name, optimizer = "bert_base", "adam"

    def __init__(self, gpu):
        self.sizes = BERT[gpu]

    def converted(self, name):
        return True

    def parameters(self):
        width, vocabulary = self.sizes["width"], self.sizes["vocabulary"]

        def dense(name, rows, columns):
            return [(name, (rows, columns), 0, rows**-0.5), (name + ".bias", (columns,), 0, 0.02)]

        def norm(name):
            return [(name + ".gain", (width,), 1, 0.05), (name + ".shift", (width,), 0, 0.02)]

        names = [("word", (vocabulary, width), 0, 0.05), ("position", (512, width), 0, 0.05), ("type", (2, width), 0, 0.05)]
        names += norm("embedding")
        for n in range(1, self.sizes["layers"] + 1):
            for name in ("query", "key", "value", "attention"):
                names += dense(f"{n}.{name}", width, width)
            names += norm(f"{n}.attention")
            names += dense(f"{n}.intermediate", width, 4 * width)
            names += dense(f"{n}.output", 4 * width, width) + norm(f"{n}.output")
        names += dense("transform", width, width) + norm("transform") + [("vocabulary.bias", (vocabulary,), 0, 0.02)]
        return parameters(names)

    def averages(self):
        return {}

    def batch(self):
        batch, tokens, vocabulary = self.sizes["batch"], self.sizes["tokens"], self.sizes["vocabulary"]
        numbers = np.arange(batch * tokens, dtype=np.int64).reshape(batch, tokens)
        padded = (np.arange(tokens)[None, :] >= tokens - 4) & (np.arange(batch)[:, None] % 2 == 1)
        return ((numbers * 7919 + 13) % vocabulary, ~padded[:, None, None, :]), (numbers * 104_729 + 7) % vocabulary

    def forward(self, ops, p, _averages, inputs):
        tokens, mask = inputs
        x = ops.take(p["word"], tokens) + p["position"][: tokens.shape[1]] + p["type"][0]
        x = self.norm(ops, p, x, "embedding")
        for n in range(1, self.sizes["layers"] + 1):
            q, k, v = (ops.heads(self.linear(ops, p, x, f"{n}.{name}"), self.sizes["heads"]) for name in ("query", "key", "value"))
            seen = ops.attention(q, k, v, mask)
            x = self.norm(ops, p, self.linear(ops, p, seen, f"{n}.attention") + x, f"{n}.attention")
            inner = ops.gelu(self.linear(ops, p, x, f"{n}.intermediate"))
            x = self.norm(ops, p, self.linear(ops, p, inner, f"{n}.output") + x, f"{n}.output")
        return x

    def loss(self, ops, p, averages, inputs, labels):
        x = ops.gelu(self.linear(ops, p, self.forward(ops, p, averages, inputs), "transform"))
        logits = ops.linear(self.norm(ops, p, x, "transform"), p["word"].T, p["vocabulary.bias"])
        return ops.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1)), averages

    def linear(self, ops, p, x, name):
        return ops.linear(x, p[name], p[name + ".bias"])

    def norm(self, ops, p, x, name):
        return ops.layer_norm(x, p[name + ".gain"], p[name + ".shift"])


class ResNet:
    name, optimizer = "resnet50", "momentum"

    def __init__(self, gpu):
        self.sizes = RESNET[gpu]

    def converted(self, name):
        return not name.endswith((".gain", ".shift"))

    def convolutions(self):
        """Each with its name, size, and channels in and out, in the order of Bench.ResNet."""
        width, before = self.sizes["width"], self.sizes["width"]
        yield "stem", 7, 3, width
        for stage, count in enumerate(self.sizes["stages"]):
            for n in range(1, count + 1):
                inner, name = width * 2**stage, f"{stage + 1}.{n}."
                yield name + "reduce", 1, before, inner
                yield name + "middle", 3, inner, inner
                yield name + "expand", 1, inner, 4 * inner
                if n == 1:
                    yield name + "shortcut", 1, before, 4 * inner
                before = 4 * inner

    def parameters(self):
        names = []
        for name, size, rows, columns in self.convolutions():
            names += [
                (name, (size, size, rows, columns), 0, math.sqrt(2 / (size * size * rows))),
                (name + ".gain", (columns,), 1, 0.05),
                (name + ".shift", (columns,), 0, 0.02),
            ]
        features, classes = 4 * self.sizes["width"] * 2 ** (len(self.sizes["stages"]) - 1), self.sizes["classes"]
        return parameters(names + [("classes", (features, classes), 0, features**-0.5), ("classes.bias", (classes,), 0, 0.02)])

    def averages(self):
        return {name: (np.zeros(n, np.float32), np.ones(n, np.float32)) for name, _, _, n in self.convolutions()}

    def batch(self):
        batch, image = self.sizes["batch"], self.sizes["image"]
        labels = np.arange(batch, dtype=np.int64) * 7919 % self.sizes["classes"]
        return (normal((batch, image, image, 3), 1000),), labels

    def forward(self, ops, p, averages, inputs):
        return self.network(ops, p, averages, inputs, False)[0]

    def loss(self, ops, p, averages, inputs, labels):
        logits, averages = self.network(ops, p, averages, inputs, True)
        return ops.cross_entropy(logits, labels), averages

    def network(self, ops, p, averages, inputs, training):
        after = {}

        def unit(x, name, stride):
            x = ops.convolution(x, p[name], stride)
            x, after[name] = ops.batch_norm(x, averages[name], p[name + ".gain"], p[name + ".shift"], training)
            return x

        x = ops.max_pool(ops.relu(unit(ops.images(inputs[0], p["stem"]), "stem", 2)))
        for stage, count in enumerate(self.sizes["stages"]):
            for n in range(1, count + 1):
                name, stride = f"{stage + 1}.{n}.", 2 if n == 1 and stage > 0 else 1
                y = ops.relu(unit(x, name + "reduce", 1))
                y = ops.relu(unit(y, name + "middle", stride))
                y = unit(y, name + "expand", 1)
                x = ops.relu(y + (unit(x, name + "shortcut", stride) if n == 1 else x))
        return ops.linear(ops.mean_pool(x), p["classes"], p["classes.bias"]), after


class TorchOps:
    def __init__(self, torch):
        self.torch, self.f = torch, torch.nn.functional

    def take(self, table, tokens):
        return self.f.embedding(tokens, table)

    def linear(self, x, matrix, bias):
        return self.f.linear(x, matrix.T, bias)

    def layer_norm(self, x, gain, shift):
        return self.f.layer_norm(x, gain.shape, gain, shift, 1e-12)

    def heads(self, x, heads):
        return x.view(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)

    def attention(self, q, k, v, mask):
        return self.f.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2)

    def gelu(self, x):
        return self.f.gelu(x)

    def relu(self, x):
        return self.f.relu(x)

    def cross_entropy(self, logits, labels):
        return self.f.cross_entropy(logits.float(), labels)

    def images(self, x, like):
        return x.to(like.dtype)

    def convolution(self, x, kernel, stride):
        return self.f.conv2d(x, kernel, stride=stride, padding=kernel.shape[2] // 2)

    def batch_norm(self, x, averages, gain, shift, training):
        return self.f.batch_norm(x, *averages, gain, shift, training, 0.1, 1e-5), averages

    def max_pool(self, x):
        return self.f.max_pool2d(x, 3, 2, 1)

    def mean_pool(self, x):
        return x.mean((2, 3))


class JaxOps:
    def __init__(self, jax):
        self.jax, self.jnp = jax, jax.numpy

    def take(self, table, tokens):
        return table[tokens]

    def linear(self, x, matrix, bias):
        return x @ matrix + bias

    def layer_norm(self, x, gain, shift):
        wide = x.astype("float32")
        centred = wide - wide.mean(-1, keepdims=True)
        variance = (centred * centred).mean(-1, keepdims=True)
        return (centred * self.jax.lax.rsqrt(variance + 1e-12) * gain + shift).astype(x.dtype)

    def heads(self, x, heads):
        return x.reshape(x.shape[0], x.shape[1], heads, -1)

    def attention(self, q, k, v, mask):
        return self.jax.nn.dot_product_attention(q, k, v, mask=mask).reshape(q.shape[0], q.shape[1], -1)

    def gelu(self, x):
        return self.jax.nn.gelu(x, approximate=False)

    def relu(self, x):
        return self.jax.nn.relu(x)

    def cross_entropy(self, logits, labels):
        log_softmax = self.jax.nn.log_softmax(logits.astype("float32"))
        return -self.jnp.take_along_axis(log_softmax, labels[:, None], 1).mean()

    def images(self, x, like):
        return x.astype(like.dtype)

    def convolution(self, x, kernel, stride):
        padding = [(kernel.shape[0] // 2,) * 2] * 2
        return self.jax.lax.conv_general_dilated(x, kernel, (stride, stride), padding, dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def batch_norm(self, x, averages, gain, shift, training):
        wide = x.astype("float32")
        mean, variance = (wide.mean((0, 1, 2)), wide.var((0, 1, 2))) if training else averages
        after = tuple(0.9 * old + 0.1 * new for old, new in zip(averages, (mean, variance)))
        return ((wide - mean) * self.jax.lax.rsqrt(variance + 1e-5) * gain + shift).astype(x.dtype), after

    def max_pool(self, x):
        window = ((1, 3, 3, 1), (1, 2, 2, 1), ((0, 0), (1, 1), (1, 1), (0, 0)))
        # Its gradient needs the identity of max as a number of the host.
        return self.jax.lax.reduce_window(x, -np.inf, self.jax.lax.max, *window)

    def mean_pool(self, x):
        return x.mean((1, 2))


def measure(peer, model, type, kind, run, number, emit, median):
    """Prints `number` of the second result of `run`, and emits the median of the runs."""
    run()
    print(f"{peer} {model.name}_{kind}_{type}: {number(run())}", file=sys.stderr, flush=True)
    emit(f"{model.name}_{kind}_{type}", peer, 1e3 * median(run, RUNS), "ms")


def wanted(peer, model, type, kind):
    return os.environ.get("ONLY", "") in f"{peer} {model.name}_{kind}_{type}"


def torch_models(peer, gpu, emit, median):
    torch, device = peer.lib, peer.device
    torch.backends.cudnn.allow_tf32 = False
    ops = TorchOps(torch)
    for model in (Bert(gpu), ResNet(gpu)):
        names = [(name, kind, type) for name in ("torch", "torch-compile") for type in ("f32", "bf16") for kind in ("forward", "step")]
        names = [(name, kind, type) for name, kind, type in names if wanted(name, model, type, kind)]
        if not names:
            continue
        on_device = lambda array: torch.from_numpy(array).to(device)
        # Channels before height and width, in memory after them, as a kernel for bf16 wants it.
        image = lambda x: x.permute(0, 3, 1, 2) if x.dim() == 4 and x.is_floating_point() else x
        kernel = lambda x: x.permute(3, 2, 0, 1).contiguous() if x.dim() == 4 else x
        source = {name: kernel(on_device(x)) for name, x in model.parameters().items()}
        inputs, labels = model.batch()
        inputs, labels = [image(on_device(x)) for x in inputs], on_device(labels)

        for name, kind, type in names:
            layout = torch.channels_last if type == "bf16" else torch.contiguous_format
            images = lambda x: x.contiguous(memory_format=layout) if x.dim() == 4 and x.is_floating_point() else x
            dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[type]
            convert = lambda p: {name: x.to(dtype) if model.converted(name) else x for name, x in p.items()}
            averages = {name: [on_device(x.copy()) for x in pair] for name, pair in model.averages().items()}
            p = {name: images(x.clone()) for name, x in source.items()}
            batch = [images(x) for x in inputs]
            if kind == "forward":
                run = torch_forward(torch, ops, model, convert(p), averages, batch, name)
                number = lambda result: result.float().abs().mean().item()
            else:
                run = torch_step(torch, ops, model, p, convert, averages, batch, labels, name)
                number = lambda loss: loss.item()
            waiting = lambda: (result := run(), peer.wait(result))[0]
            measure(name, model, type, kind, waiting, number, emit, median)
            torch._dynamo.reset()


def torch_forward(torch, ops, model, p, averages, batch, name):
    forward = lambda p, averages, batch: model.forward(ops, p, averages, batch)
    if name == "torch-compile":
        forward = torch.compile(forward, mode="reduce-overhead" if batch[0].is_cuda else "default")

    def run():
        with torch.no_grad():
            return forward(p, averages, batch)

    return run


def torch_step(torch, ops, model, p, convert, averages, batch, labels, name):
    for x in p.values():
        x.requires_grad_(True)
    loss_of = lambda p, averages, batch, labels: model.loss(ops, convert(p), averages, batch, labels)[0]
    if name == "torch-compile":
        loss_of = torch.compile(loss_of)
    if model.optimizer == "adam":
        optimizer = torch.optim.Adam(list(p.values()), lr=1e-4, fused=True)
    else:
        optimizer = torch.optim.SGD(list(p.values()), lr=0.01, momentum=0.9, fused=True)

    def run():
        optimizer.zero_grad()
        loss = loss_of(p, averages, batch, labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return run


def jax_models(peer, gpu, emit, median):
    jax, jnp = peer.lib, peer.jnp
    ops = JaxOps(jax)
    for model in (Bert(gpu), ResNet(gpu)):
        names = [(kind, type) for type in ("f32", "bf16") for kind in ("forward", "step") if wanted("jax", model, type, kind)]
        if not names:
            continue
        source = {name: jnp.asarray(x) for name, x in model.parameters().items()}
        averages = jax.tree.map(jnp.asarray, model.averages())
        inputs, labels = jax.tree.map(jnp.asarray, model.batch())

        for kind, type in names:
            dtype = {"f32": "float32", "bf16": "bfloat16"}[type]
            convert = lambda p: {name: x.astype(dtype) if model.converted(name) else x for name, x in p.items()}
            if kind == "forward":
                forward = jax.jit(lambda p, averages, inputs: model.forward(ops, p, averages, inputs))
                p = convert(source)
                run = lambda: peer.lib.block_until_ready(forward(p, averages, inputs))
                number = lambda result: float(jnp.abs(result.astype("float32")).mean())
            else:
                run, number = jax_step(jax, ops, model, source, convert, averages, inputs, labels), float
            measure("jax", model, type, kind, run, number, emit, median)


def jax_step(jax, ops, model, source, convert, averages, inputs, labels):
    tree = jax.tree.map

    def update(p, gradients, moments, count):
        if model.optimizer == "momentum":
            moments = tree(lambda v, g: 0.9 * v + g, moments, gradients)
            return tree(lambda p, v: p - 0.01 * v, p, moments), moments
        means = tree(lambda m, g: 0.9 * m + 0.1 * g, moments[0], gradients)
        squares = tree(lambda s, g: 0.999 * s + 0.001 * g * g, moments[1], gradients)

        def changed(p, mean, square):
            mean, square = mean / (1 - 0.9**count), square / (1 - 0.999**count)
            return p - 1e-4 * mean / (jax.numpy.sqrt(square) + 1e-8)

        return tree(changed, p, means, squares), (means, squares)

    def step(state, inputs, labels):
        p, averages, count, moments = state
        loss = lambda p: model.loss(ops, convert(p), averages, inputs, labels)
        (value, averages), gradients = jax.value_and_grad(loss, has_aux=True)(p)
        p, moments = update(p, gradients, moments, count + 1)
        return value, (p, averages, count + 1, moments)

    zeros = tree(jax.numpy.zeros_like, source)
    moments = (zeros, zeros) if model.optimizer == "adam" else zeros
    held = {"state": (source, averages, jax.numpy.float32(0), moments)}
    compiled = jax.jit(step)

    def run():
        loss, held["state"] = compiled(held["state"], inputs, labels)
        jax.block_until_ready(held["state"])
        return loss

    return run


def models(peer, gpu, emit, median):
    {"torch": torch_models, "jax": jax_models}[peer.name](peer, gpu, emit, median)
