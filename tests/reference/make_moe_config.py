#!/usr/bin/env python3
"""Writes moe_config.safetensors next to this file: one step of moe_config.yaml, a model with MindFormers' TopkRouter.

Needs numpy; the tests themselves need none of it. The model is written out in fp64, and every element of the gradients
is a derivative by complex steps, with what routers decide held constant. So nothing is shared with the engine, nor with
the formulas of its gradients.

    python3 tests/reference/make_moe_config.py
"""
import json
import math
import pathlib
import struct

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
LAYERS, HIDDEN, HEADS, LENGTH, VOCAB = 2, 16, 2, 8, 24
EXPERTS, TOPK, WIDTH, FACTOR, BALANCE = 4, 2, 8, 1.1, 0.05
BATCH, MICRO = 8, 2
RATE, DECAY, CLIP = 0.1, 0.1, 0.5
LEAST = 1e-9


def shapes():
    yield "embedding.token.weight", (VOCAB, HIDDEN)
    for i in range(LAYERS):
        layer = f"layers.{i}."
        yield layer + "norm1.weight", (HIDDEN,)
        for one in ("q", "k", "v", "out"):
            yield f"{layer}attention.{one}.weight", (HIDDEN, HIDDEN)
        yield layer + "norm2.weight", (HIDDEN,)
        yield layer + "moe.router.weight", (EXPERTS, HIDDEN)
        yield layer + "moe.experts.gate.weight", (EXPERTS, WIDTH, HIDDEN)
        yield layer + "moe.experts.up.weight", (EXPERTS, WIDTH, HIDDEN)
        yield layer + "moe.experts.down.weight", (EXPERTS, HIDDEN, WIDTH)
    yield "final_norm.weight", (HIDDEN,)
    yield "head.weight", (VOCAB, HIDDEN)


def make_parameters(random):
    params = {}
    for name, shape in shapes():
        noise = random.normal(size=shape)
        value = 1 + 0.2 * noise if "norm" in name else noise * (
            0.5 if name.startswith(("embedding", "head")) else 1.2 / math.sqrt(shape[-1]))
        params[name] = value.astype(np.float32).astype(np.float64)
    return params


def softmax(x):
    powers = np.exp(x - x.real.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def norm(x, weight):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weight


def rotate(x):
    """[sequences, LENGTH, HEADS, d]; halves are turned against each other."""
    d = x.shape[-1]
    angle = np.arange(LENGTH)[:, None] * 10000.0 ** (-np.arange(0, d, 2) / d)
    cos, sin = np.cos(angle)[None, :, None], np.sin(angle)[None, :, None]
    first, second = x[..., :d // 2], x[..., d // 2:]
    return np.concatenate((first * cos - second * sin, second * cos + first * sin), -1)


def attention(params, name, x):
    split = lambda one: (x @ params[f"{name}.{one}.weight"].T).reshape(-1, LENGTH, HEADS, HIDDEN // HEADS)
    q, k, v = rotate(split("q")), rotate(split("k")), split("v")
    scores = np.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(HIDDEN // HEADS)
    scores = np.where(np.tril(np.ones((LENGTH, LENGTH), bool)), scores, -1e30)
    context = np.einsum("bhqk,bkhd->bqhd", softmax(scores), v).reshape(x.shape)
    return context @ params[f"{name}.out.weight"].T


def route(p):
    """TopkRouter on the tokens of a micro-batch: chosen, kept [T][k], weights, the balance loss."""
    tokens = len(p)
    places = math.ceil(TOPK * tokens * FACTOR / EXPERTS)
    has = np.zeros(p.shape, bool)
    taken = np.zeros(EXPERTS, int)
    chosen, kept = np.zeros((tokens, TOPK), int), np.zeros((tokens, TOPK), bool)
    loss = 0
    for j in range(TOPK):
        left = p * ~has
        chosen[:, j] = left.real.argmax(-1)
        q = left / (left.sum(-1, keepdims=True) + LEAST)
        share = np.bincount(chosen[:, j], minlength=EXPERTS) / tokens
        loss = loss + EXPERTS * (share * q.mean(0)).sum()
        for t, e in enumerate(chosen[:, j]):
            kept[t, j] = taken[e] < places
            taken[e] += kept[t, j]
        has[np.arange(tokens)[kept[:, j]], chosen[kept[:, j], j]] = True
    at = np.take_along_axis(p, chosen, -1) * kept
    return chosen, kept, at / (at.sum(-1, keepdims=True) + LEAST), loss


def experts(params, name, x, seen):
    """x [T, HIDDEN] of a micro-batch."""
    chosen, kept, weights, loss = route(softmax(x @ params[name + ".router.weight"].T))
    y = np.zeros(x.shape, complex)
    for e in range(EXPERTS):
        t, j = np.nonzero((chosen == e) & kept)
        gate = x[t] @ params[name + ".experts.gate.weight"][e].T
        act = gate / (1 + np.exp(-gate)) * (x[t] @ params[name + ".experts.up.weight"][e].T)
        y[t] += weights[t, j][:, None] * (act @ params[name + ".experts.down.weight"][e].T)
    seen["dropped"] = seen.get("dropped", 0) + int((~kept).sum())
    return (y if any(np.iscomplexobj(one) for one in (x, *params.values())) else y.real), loss


def losses(params, tokens, labels, seen):
    """The mean loss of a token, and the balance loss: summed over layers, the mean over micro-batches."""
    x = params["embedding.token.weight"][tokens]
    balance = 0
    for i in range(LAYERS):
        layer = f"layers.{i}."
        x = x + attention(params, layer + "attention", norm(x, params[layer + "norm1.weight"]))
        inner = norm(x, params[layer + "norm2.weight"])
        made = []
        for first in range(0, BATCH, MICRO):
            part = inner[first:first + MICRO].reshape(-1, HIDDEN)
            y, loss = experts(params, layer + "moe", part, seen)
            made.append(y.reshape(MICRO, LENGTH, HIDDEN))
            balance = balance + loss / (BATCH // MICRO)
        x = x + np.concatenate(made)
    logits = norm(x, params["final_norm.weight"]) @ params["head.weight"].T
    at = np.take_along_axis(softmax(logits), labels[..., None], -1)
    return -np.log(at).mean(), balance


def gradients(params, tokens, labels):
    grads = {}
    for name, value in params.items():
        grads[name] = np.zeros(value.shape)
        for at in np.ndindex(*value.shape):
            moved = dict(params)
            moved[name] = value.astype(complex)
            moved[name][at] += 1e-200j
            main, balance = losses(moved, tokens, labels, {})
            grads[name][at] = (main + BALANCE * balance).imag / 1e-200
    return grads


def save(path, tensors):
    header, data = {}, b""
    kinds = {"float32": "F32", "float64": "F64", "int32": "I32"}
    for name, value in tensors.items():
        raw = np.ascontiguousarray(value).tobytes()
        header[name] = {"dtype": kinds[str(value.dtype)], "shape": list(value.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def main():
    random = np.random.default_rng(7)
    params = make_parameters(random)
    tokens, labels = (random.integers(VOCAB, size=(BATCH, LENGTH)) for _ in range(2))
    seen = {}
    loss, balance = losses(params, tokens, labels, seen)
    grads = gradients(params, tokens, labels)
    total = math.sqrt(sum((g * g).sum() for g in grads.values()))
    clip = min(1.0, CLIP / (total + 1e-6))
    tensors = {"tokens": tokens.astype(np.int32), "labels": labels.astype(np.int32),
               "loss": np.array([loss]), "balance_loss": np.array([balance / LAYERS]), "norm": np.array([total])}
    for name, value in params.items():
        decay = DECAY if value.ndim > 1 else 0
        step = RATE * (clip * grads[name] + decay * value)
        tensors["param." + name] = value.astype(np.float32)
        tensors["grad." + name] = grads[name].astype(np.float32)
        tensors["after." + name] = (value - step).astype(np.float32)
    save(HERE / "moe_config.safetensors", tensors)
    print(f"loss {loss:.6f}, balance loss {balance:.6f}, norm {total:.6f}, {seen['dropped']} choices dropped")


if __name__ == "__main__":
    main()
