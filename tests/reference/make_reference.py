#!/usr/bin/env python3
"""Writes the reference values that tests/engine compares with: CASE.safetensors and CASE.yaml next to this file.

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
    "window_caps_multipliers": dict(
        BASE, family="llama", num_query_groups=2, kv_channels=12, tie_word_embeddings=True, sliding_window=5,
        attn_logit_softcapping=2.0, final_logit_softcapping=3.0, softmax_scale=0.4, embedding_multiplier=2.5,
        logit_scale=0.5, zero_centered_norm=True, activation="gelu", qk_layernorm=True,
        rope_scaling=dict(type="linear", factor=4.0)),
    "chunks_biases_offset_limit": dict(
        BASE, family="llama", num_query_groups=2, kv_channels=8, attention_chunk_size=6, rotary_percent=0.5,
        rotary_interleaved=True, add_bias_linear=True, activation="quick_gelu", glu_linear_offset=1.0,
        activation_func_clamp_value=0.8, residual_multiplier=0.3, logit_scale=0.25, documents=True,
        rope_scaling=dict(type="alpha", alpha=50.0)),
    "yarn_relu2_out_bias": dict(
        BASE, family="llama", rotary_base=500.0, gated_linear_unit=False, activation="relu2", add_out_bias=True,
        sliding_window=3, rope_scaling=dict(type="yarn", factor=8.0, original_max_position_embeddings=64)),
    "longrope_mlp_bias": dict(
        BASE, family="llama", add_mlp_bias=True, max_position_embeddings=64, rotary_base=100.0,
        rope_scaling=dict(type="longrope", original_max_position_embeddings=8, short_factor=[1.0, 1.0, 1.0, 1.0],
                          long_factor=[1.0, 1.5, 2.5, 4.0])),
    "post_norms_whole_qk": dict(BASE, family="llama", num_query_groups=2, norm_placement="post", qk_layernorm=True,
                                qk_layernorm_form="whole"),
    "both_norms_after_rope": dict(BASE, family="llama", num_query_groups=2, norm_placement="both",
                                  zero_centered_norm=True, qk_layernorm=True, qk_layernorm_after_rope=True,
                                  residual_multiplier=0.7),
    "sinks_gate_window": dict(
        BASE, family="llama", num_query_groups=2, sliding_window=5, softmax_type="learnable",
        attention_output_gate=True, add_qkv_bias=True, attn_logit_softcapping=2.0),
    "l2_temperature": dict(
        BASE, family="llama", num_query_groups=2, rotary_percent=0.5, qk_layernorm=True, qk_layernorm_form="l2",
        attention_temperature=dict(beta=0.5, floor=4.0, add=1.0), documents=True),
    "gpt2_post_norms": dict(BASE, family="gpt2", norm_placement="post"),
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
    head_dim = default(case, "kv_channels", h // heads)
    q = heads * head_dim
    kv = default(case, "num_query_groups", heads) * head_dim
    gpt2 = case["family"] == "gpt2"
    shapes = {"embedding.token.weight": (padded_vocab(case), h)}
    if gpt2:
        shapes["embedding.position.weight"] = (case["seq_length"], h)
    for i in range(case["num_layers"]):
        linears = {"attention.q": (q, h), "attention.k": (kv, h), "attention.v": (kv, h), "attention.out": (h, q),
                   "mlp.up": (f, h), "mlp.down": (h, f)}
        if default(case, "attention_output_gate", False):
            shapes[f"layers.{i}.attention.gate.weight"] = (q, h)
        if default(case, "softmax_type", "vanilla") == "learnable":
            shapes[f"layers.{i}.attention.sinks.weight"] = (heads,)
        if default(case, "gated_linear_unit", not gpt2):
            linears["mlp.gate"] = (f, h)
        for name, shape in linears.items():
            shapes[f"layers.{i}.{name}.weight"] = shape
            kind = "out" if name == "attention.out" else "qkv" if name.startswith("attention") else "mlp"
            if default(case, f"add_{kind}_bias", linear_bias(case)):
                shapes[f"layers.{i}.{name}.bias"] = shape[:1]
        placement = default(case, "norm_placement", "pre")
        before = ("norm1", "norm2") if placement != "post" else ()
        after = ("post_norm1", "post_norm2") if placement != "pre" else ()
        for norm in before + after:
            shapes[f"layers.{i}.{norm}.weight"] = (h,)
            if gpt2:
                shapes[f"layers.{i}.{norm}.bias"] = (h,)
        if default(case, "qk_layernorm", False) and default(case, "qk_layernorm_form", "head") != "l2":
            whole = default(case, "qk_layernorm_form", "head") == "whole"
            shapes[f"layers.{i}.attention.q_norm.weight"] = (q if whole else head_dim,)
            shapes[f"layers.{i}.attention.k_norm.weight"] = (kv if whole else head_dim,)
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
            value = (0 if default(case, "zero_centered_norm", False) else 1) + 0.2 * noise
        elif name.endswith("bias"):
            value = 0.1 * noise
        elif "sinks" in name:
            value = 0.5 + noise
        else:
            value = noise * (0.5 if name.startswith(("embedding", "head")) else 1.5 / math.sqrt(shape[1]))
        params[name] = value.requires_grad_()
    return params


def yarn_frequencies(freq, theta, size, scaling):
    def pair_at(turns):
        return size * math.log(scaling["original_max_position_embeddings"] / (turns * 2 * math.pi)) / (
            2 * math.log(theta))
    low, high = max(math.floor(pair_at(32)), 0), min(math.ceil(pair_at(1)), size - 1)
    ramp = ((torch.arange(size // 2, dtype=torch.float64) - low) / (high - low)).clamp(0, 1)
    return freq * (1 - ramp) + freq / scaling["factor"] * ramp


def inverse_frequencies(case, size):
    """Of the pairs of `size` features that turn, and the factor of cos and sin."""
    theta = default(case, "rotary_base", 10000.0)
    scaling = case.get("rope_scaling")
    kind = scaling.get("type", "llama3") if scaling else "none"
    if kind == "alpha":
        theta *= scaling["alpha"] ** (size / (size - 2))
    freq = theta ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    if kind in ("none", "alpha"):
        return freq, 1.0
    if kind == "linear":
        return freq / scaling["factor"], 1.0
    if kind == "yarn":
        return yarn_frequencies(freq, theta, size, scaling), 0.1 * math.log(scaling["factor"]) + 1
    if kind == "longrope":
        original = scaling["original_max_position_embeddings"]
        longer = case["max_position_embeddings"] / original
        factors = scaling["long_factor" if case["seq_length"] > original else "short_factor"]
        return freq / torch.tensor(factors, dtype=torch.float64), math.sqrt(1 + math.log(longer) / math.log(original))
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
    return torch.tensor(result, dtype=torch.float64), 1.0


def rotate(case, x, position):
    """x [batch, seq, heads, head_dim]; halves of the first features, or neighbours, turn."""
    size = int(default(case, "rotary_percent", 1.0) * x.shape[-1])
    freq, factor = inverse_frequencies(case, size)
    angle = position[..., None].double() * freq
    cos, sin = (factor * angle.cos()).float()[:, :, None], (factor * angle.sin()).float()[:, :, None]
    turning, rest = x[..., :size], x[..., size:]
    if default(case, "rotary_interleaved", False):
        first, second = turning[..., 0::2], turning[..., 1::2]
        turned = torch.stack((first * cos - second * sin, second * cos + first * sin), dim=-1).flatten(-2)
    else:
        first, second = turning.chunk(2, dim=-1)
        turned = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
    return torch.cat((turned, rest), dim=-1)


def rms_norm(case, x, weight):
    if default(case, "zero_centered_norm", False):
        weight = 1 + weight
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + case["norm_epsilon"]) * weight


def layer_norm(x, weight, bias, eps):
    centred = x - x.mean(-1, keepdim=True)
    return centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps) * weight + bias


def norm(case, params, name, x):
    if case["family"] == "gpt2":
        return layer_norm(x, params[name + ".weight"], params[name + ".bias"], case["norm_epsilon"])
    return rms_norm(case, x, params[name + ".weight"])


def linear(params, name, x):
    y = x @ params[name + ".weight"].T
    return y + params[name + ".bias"] if name + ".bias" in params else y


def capped(scores, cap):
    return cap * torch.tanh(scores / cap) if cap else scores


def seen_from(case, position):
    """The first position of its document that a query sees."""
    if "sliding_window" in case:
        return (position - case["sliding_window"] + 1).clamp(min=0)
    if "attention_chunk_size" in case:
        return position // case["attention_chunk_size"] * case["attention_chunk_size"]
    return torch.zeros_like(position)


def qk_norms(case, params, name, q, k):
    if not default(case, "qk_layernorm", False):
        return q, k
    if default(case, "qk_layernorm_form", "head") == "l2":
        return rms_norm(case, q, 1.0), rms_norm(case, k, 1.0)
    if default(case, "qk_layernorm_form", "head") == "head":
        return (rms_norm(case, q, params[name + ".q_norm.weight"]), rms_norm(case, k, params[name + ".k_norm.weight"]))
    return (rms_norm(case, q.flatten(2), params[name + ".q_norm.weight"]).view_as(q),
            rms_norm(case, k.flatten(2), params[name + ".k_norm.weight"]).view_as(k))


def attention(case, params, name, x, batch):
    heads = case["num_attention_heads"]
    groups = default(case, "num_query_groups", heads)
    split = lambda t, n: t.view(*t.shape[:2], n, -1)
    q = split(linear(params, name + ".q", x), heads)
    k = split(linear(params, name + ".k", x), groups)
    v = split(linear(params, name + ".v", x), groups)
    after_rope = default(case, "qk_layernorm_after_rope", default(case, "qk_layernorm_form", "head") == "l2")
    if not after_rope:
        q, k = qk_norms(case, params, name, q, k)
    if case["family"] == "llama":
        q, k = rotate(case, q, batch["position"]), rotate(case, k, batch["position"])
    if after_rope:
        q, k = qk_norms(case, params, name, q, k)
    if "attention_temperature" in case:
        beta, floor, add = (case["attention_temperature"][key] for key in ("beta", "floor", "add"))
        q = q * (1 + beta * torch.log1p(((batch["position"] + add) / floor).floor()))[:, :, None, None]
    k, v = (t.repeat_interleave(heads // groups, dim=2) for t in (k, v))
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * default(case, "softmax_scale", 1 / math.sqrt(q.shape[-1]))
    scores = capped(scores, case.get("attn_logit_softcapping"))
    length = x.shape[1]
    visible = torch.ones(length, length, dtype=torch.bool).tril()[None]
    if case.get("documents"):
        visible = visible & (batch["document"][:, :, None] == batch["document"][:, None, :])
    visible = visible & (batch["position"][:, None, :] >= seen_from(case, batch["position"])[:, :, None])
    scores = scores.masked_fill(~visible[:, None], float("-inf"))
    if name + ".sinks.weight" in params:
        sinks = params[name + ".sinks.weight"][None, :, None, None].expand(*scores.shape[:3], 1)
        weights = torch.cat((scores, sinks), dim=-1).softmax(-1)[..., :-1]
    else:
        weights = scores.softmax(-1)
    context = torch.einsum("bhqk,bkhd->bqhd", weights, v).reshape(*x.shape[:2], -1)
    if name + ".gate.weight" in params:
        context = context * torch.sigmoid(linear(params, name + ".gate", x))
    return linear(params, name + ".out", context)


ACTIVATIONS = {
    "gelu": lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x * torch.sigmoid(x),
    "relu2": lambda x: torch.relu(x) ** 2,
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
}


def mlp(case, params, name, x):
    gpt2 = case["family"] == "gpt2"
    activation = ACTIVATIONS[default(case, "activation", "gelu" if gpt2 else "silu")]
    up = linear(params, name + ".up", x)
    if name + ".gate.weight" in params:
        gate = linear(params, name + ".gate", x)
        limit = case.get("activation_func_clamp_value")
        if limit:
            gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
        act = activation(gate) * (up + default(case, "glu_linear_offset", 0.0))
    else:
        act = activation(up)
    return linear(params, name + ".down", act)


def loss_of(case, params, batch):
    x = params["embedding.token.weight"][batch["tokens"].long()] * default(case, "embedding_multiplier", 1.0)
    branch = default(case, "residual_multiplier", 1.0)
    if case["family"] == "gpt2":
        x = x + params["embedding.position.weight"][batch["position"].long()]
    for i in range(case["num_layers"]):
        layer = f"layers.{i}"
        placed = lambda name, y: norm(case, params, name, y) if name + ".weight" in params else y
        y = attention(case, params, layer + ".attention", placed(layer + ".norm1", x), batch)
        x = x + branch * placed(layer + ".post_norm1", y)
        y = mlp(case, params, layer + ".mlp", placed(layer + ".norm2", x))
        x = x + branch * placed(layer + ".post_norm2", y)
    x = norm(case, params, "final_norm", x)
    head = params.get("head.weight", params["embedding.token.weight"])[: case["vocab_size"]]
    logits = capped(default(case, "logit_scale", 1.0) * (x @ head.T), case.get("final_logit_softcapping"))
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
