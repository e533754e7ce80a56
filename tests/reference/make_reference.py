#!/usr/bin/env python3
"""Writes the reference values that tests/engine compares with: CASE.safetensors and CASE.yaml beside this file.

Needs PyTorch, numpy and safetensors; the tests themselves need none of them. The models below are written out in
plain PyTorch operations, with autograd for the gradients, so that they share nothing with the engine.

    python3 tests/reference/make_reference.py
"""
import math
import pathlib

import torch
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).resolve().parent
STEPS = 4
ADAMW = dict(lr=1e-2, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, clip=0.5)

BASE = dict(num_layers=2, hidden_size=32, ffn_hidden_size=64, num_attention_heads=4, seq_length=16,
            vocab_size=96, norm_epsilon=1e-5)
CASES = {
    "gpt2_tied": dict(BASE, family="gpt2"),
    "gpt2_untied_no_bias": dict(BASE, family="gpt2", tie_word_embeddings=False, add_bias_linear=False),
    "llama_gqa": dict(BASE, family="llama", num_query_groups=2),
    "llama_qk_norm_scaled_rope": dict(
        BASE, family="llama", num_query_groups=1, qk_layernorm=True, rotary_base=500.0, norm_epsilon=1e-6,
        rope_scaling=dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                          original_max_position_embeddings=64)),
    "qwen2_qkv_bias": dict(BASE, family="llama", num_query_groups=2, add_qkv_bias=True,
                           tie_word_embeddings=True),
    "gpt2_documents": dict(BASE, family="gpt2", documents=True),
}


def default(case, key, value):
    return case.get(key, value)


def padded_vocab(case):
    return (case["vocab_size"] + 127) // 128 * 128


def linear_bias(case):
    return default(case, "add_bias_linear", case["family"] == "gpt2")


def parameter_shapes(case):
    """Our names and shapes; matrices are [out, in]."""
    h, f, heads = case["hidden_size"], case["ffn_hidden_size"], case["num_attention_heads"]
    head_dim = h // heads
    kv = default(case, "num_query_groups", heads) * head_dim
    gpt2 = case["family"] == "gpt2"
    shapes = {"embedding.token.weight": (padded_vocab(case), h)}
    if gpt2:
        shapes["embedding.position.weight"] = (case["seq_length"], h)
    for i in range(case["num_layers"]):
        linears = {"attention.q": (h, h), "attention.k": (kv, h), "attention.v": (kv, h), "attention.out": (h, h),
                   "mlp.up": (f, h), "mlp.down": (h, f)}
        if not gpt2:
            linears["mlp.gate"] = (f, h)
        for name, shape in linears.items():
            shapes[f"layers.{i}.{name}.weight"] = shape
            qkv = name in ("attention.q", "attention.k", "attention.v")
            if default(case, "add_qkv_bias", linear_bias(case)) if qkv else linear_bias(case):
                shapes[f"layers.{i}.{name}.bias"] = shape[:1]
        for norm in ("norm1", "norm2"):
            shapes[f"layers.{i}.{norm}.weight"] = (h,)
            if gpt2:
                shapes[f"layers.{i}.{norm}.bias"] = (h,)
        if default(case, "qk_layernorm", False):
            shapes[f"layers.{i}.attention.q_norm.weight"] = (head_dim,)
            shapes[f"layers.{i}.attention.k_norm.weight"] = (head_dim,)
    shapes["final_norm.weight"] = (h,)
    if gpt2:
        shapes["final_norm.bias"] = (h,)
    if not default(case, "tie_word_embeddings", gpt2):
        shapes["head.weight"] = (padded_vocab(case), h)
    return shapes


def make_parameters(case, generator):
    """Larger than usual initial values, so that every term of the gradients counts."""
    params = {}
    for name, shape in parameter_shapes(case).items():
        noise = torch.randn(shape, generator=generator)
        if "norm" in name and name.endswith("weight"):
            value = 1 + 0.2 * noise
        elif name.endswith("bias"):
            value = 0.1 * noise
        else:
            value = noise * (0.5 if name.startswith(("embedding", "head")) else 1.5 / math.sqrt(shape[1]))
        params[name] = value.requires_grad_()
    return params


def inverse_frequencies(case, head_dim):
    theta = default(case, "rotary_base", 10000.0)
    freq = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    scaling = case.get("rope_scaling")
    if not scaling:
        return freq
    low_wave = scaling["original_max_position_embeddings"] / scaling["low_freq_factor"]
    high_wave = scaling["original_max_position_embeddings"] / scaling["high_freq_factor"]
    result = []
    for value in freq.tolist():
        wave = 2 * math.pi / value
        if wave < high_wave:
            result.append(value)
        elif wave > low_wave:
            result.append(value / scaling["factor"])
        else:
            smooth = (scaling["original_max_position_embeddings"] / wave - scaling["low_freq_factor"]) / (
                scaling["high_freq_factor"] - scaling["low_freq_factor"])
            result.append((1 - smooth) * value / scaling["factor"] + smooth * value)
    return torch.tensor(result, dtype=torch.float64)


def rotate(case, x, position):
    """x [batch, seq, heads, head_dim]; halves are rotated against each other."""
    angle = position[..., None].double() * inverse_frequencies(case, x.shape[-1])
    cos, sin = angle.cos().float()[:, :, None], angle.sin().float()[:, :, None]
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def rms_norm(x, weight, eps):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def layer_norm(x, weight, bias, eps):
    centred = x - x.mean(-1, keepdim=True)
    return centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps) * weight + bias


def norm(case, params, name, x):
    if case["family"] == "gpt2":
        return layer_norm(x, params[name + ".weight"], params[name + ".bias"], case["norm_epsilon"])
    return rms_norm(x, params[name + ".weight"], case["norm_epsilon"])


def linear(params, name, x):
    y = x @ params[name + ".weight"].T
    return y + params[name + ".bias"] if name + ".bias" in params else y


def attention(case, params, name, x, batch):
    heads = case["num_attention_heads"]
    groups = default(case, "num_query_groups", heads)
    split = lambda t, n: t.view(*t.shape[:2], n, -1)
    q = split(linear(params, name + ".q", x), heads)
    k = split(linear(params, name + ".k", x), groups)
    v = split(linear(params, name + ".v", x), groups)
    if default(case, "qk_layernorm", False):
        q = rms_norm(q, params[name + ".q_norm.weight"], case["norm_epsilon"])
        k = rms_norm(k, params[name + ".k_norm.weight"], case["norm_epsilon"])
    if case["family"] == "llama":
        q, k = rotate(case, q, batch["position"]), rotate(case, k, batch["position"])
    k, v = (t.repeat_interleave(heads // groups, dim=2) for t in (k, v))
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1])
    length = x.shape[1]
    visible = torch.ones(length, length, dtype=torch.bool).tril()[None]
    if case.get("documents"):
        visible = visible & (batch["document"][:, :, None] == batch["document"][:, None, :])
    scores = scores.masked_fill(~visible[:, None], float("-inf"))
    context = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v)
    return linear(params, name + ".out", context.reshape(*x.shape[:2], -1))


def mlp(case, params, name, x):
    up = linear(params, name + ".up", x)
    if case["family"] == "gpt2":
        act = 0.5 * up * (1 + torch.tanh(math.sqrt(2 / math.pi) * (up + 0.044715 * up**3)))
    else:
        gate = linear(params, name + ".gate", x)
        act = gate * torch.sigmoid(gate) * up
    return linear(params, name + ".down", act)


def loss_of(case, params, batch):
    x = params["embedding.token.weight"][batch["tokens"].long()]
    if case["family"] == "gpt2":
        x = x + params["embedding.position.weight"][batch["position"].long()]
    for i in range(case["num_layers"]):
        layer = f"layers.{i}"
        x = x + attention(case, params, layer + ".attention", norm(case, params, layer + ".norm1", x), batch)
        x = x + mlp(case, params, layer + ".mlp", norm(case, params, layer + ".norm2", x))
    x = norm(case, params, "final_norm", x)
    head = params.get("head.weight", params["embedding.token.weight"])[: case["vocab_size"]]
    logits = x @ head.T
    nll = -logits.log_softmax(-1).gather(-1, batch["labels"].long()[..., None])[..., 0]
    return (batch["loss_weight"] * nll).sum() / batch["loss_weight"].sum()


def make_batch(case, generator):
    size = (2, case["seq_length"])
    batch = {
        "tokens": torch.randint(case["vocab_size"], size, generator=generator).int(),
        "labels": torch.randint(case["vocab_size"], size, generator=generator).int(),
        "position": torch.arange(case["seq_length"]).expand(size).int().contiguous(),
        "document": torch.zeros(size).int(),
        "loss_weight": torch.ones(size),
    }
    if case.get("documents"):
        starts = torch.zeros(size).int()
        starts[0, 5] = starts[0, 6] = starts[1, 11] = 1
        batch["document"] = starts.cumsum(1).int()
        for row in range(size[0]):
            since = 0
            for column in range(size[1]):
                since = 0 if starts[row, column] else since
                batch["position"][row, column] = since
                since += 1
        batch["loss_weight"][0, 4] = batch["loss_weight"][1, 10] = 0
        batch["loss_weight"][1, 3] = 0.5
    return batch


def adamw_run(case, params, batch):
    """Losses and gradient norms (before clipping) of some AdamW steps on the same batch."""
    params = {name: value.detach().clone().requires_grad_() for name, value in params.items()}
    moments = {name: (torch.zeros_like(v), torch.zeros_like(v)) for name, v in params.items()}
    losses, norms = [], []
    for step in range(1, STEPS + 1):
        loss = loss_of(case, params, batch)
        grads = dict(zip(params, torch.autograd.grad(loss, params.values())))
        total = math.sqrt(sum(g.double().square().sum().item() for g in grads.values()))
        scale = min(1.0, ADAMW["clip"] / (total + 1e-6))
        losses.append(loss.item())
        norms.append(total)
        with torch.no_grad():
            for name, value in params.items():
                g = grads[name] * scale
                m, v = moments[name]
                m.mul_(ADAMW["beta1"]).add_(g, alpha=1 - ADAMW["beta1"])
                v.mul_(ADAMW["beta2"]).addcmul_(g, g, value=1 - ADAMW["beta2"])
                update = (m / (1 - ADAMW["beta1"] ** step)) / (
                    (v / (1 - ADAMW["beta2"] ** step)).sqrt() + ADAMW["eps"])
                if value.dim() > 1:
                    update = update + ADAMW["weight_decay"] * value
                value.sub_(ADAMW["lr"] * update)
    return torch.tensor(losses, dtype=torch.float64), torch.tensor(norms, dtype=torch.float64)


def yaml_of(case):
    lines = ["model:"]
    for key, value in case.items():
        if key == "documents":
            continue
        if isinstance(value, dict):
            inner = ", ".join(f"{k}: {v}" for k, v in value.items())
            lines.append(f"  {key}: {{{inner}}}")
        else:
            text = str(value).lower() if isinstance(value, bool) else value
            text = f"{value:.6f}" if isinstance(value, float) else text
            lines.append(f"  {key}: {text}")
    return "\n".join(lines) + "\n"


def main():
    torch.set_num_threads(1)
    for seed, (name, case) in enumerate(CASES.items()):
        generator = torch.Generator().manual_seed(seed + 1)
        params = make_parameters(case, generator)
        batch = make_batch(case, generator)
        loss = loss_of(case, params, batch)
        grads = torch.autograd.grad(loss, params.values())
        losses, norms = adamw_run(case, params, batch)
        tensors = {f"batch.{key}": value for key, value in batch.items()}
        tensors |= {f"param.{key}": value.detach() for key, value in params.items()}
        tensors |= {f"grad.{key}": value for key, value in zip(params, grads)}
        tensors |= {"loss": loss.detach().double().reshape(1), "adamw.loss": losses, "adamw.grad_norm": norms}
        save_file({key: value.contiguous() for key, value in tensors.items()}, HERE / f"{name}.safetensors")
        (HERE / f"{name}.yaml").write_text(yaml_of(case))
        print(f"{name}: loss {loss.item():.6f}, then {[round(x, 6) for x in losses.tolist()]}")


if __name__ == "__main__":
    main()
