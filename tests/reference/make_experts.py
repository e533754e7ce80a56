#!/usr/bin/env python3
"""Writes tests/reference/experts: layers of experts of transformers, what they give for some tokens, and the gradients of
all their inputs. tests/weights/experts_reference_test.cpp compares with them.

Needs PyTorch, transformers and safetensors; the tests themselves need none of them.

    python3 tests/reference/make_experts.py
"""
import math
import pathlib

import torch
from safetensors.torch import save_file
from transformers import Dots1Config, MixtralConfig, Qwen2MoeConfig, Qwen3MoeConfig
from transformers.models.dots1.modeling_dots1 import Dots1MoE
from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock, load_balancing_loss_func
from transformers.models.qwen2_moe.modeling_qwen2_moe import Qwen2MoeSparseMoeBlock
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeSparseMoeBlock

HERE = pathlib.Path(__file__).resolve().parent / "experts"
HIDDEN, WIDTH, EXPERTS, TOKENS = 16, 24, 6, 40
SHARED = 20  # width of the shared expert of Qwen2-MoE; that of dots1 is twice WIDTH
BALANCE, Z = 0.3, 0.1  # factors of the router's losses

QWEN = dict(hidden_size=HIDDEN, moe_intermediate_size=WIDTH, num_experts=EXPERTS, num_experts_per_tok=3)
DOTS = dict(hidden_size=HIDDEN, moe_intermediate_size=WIDTH, n_routed_experts=EXPERTS, n_shared_experts=2,
            norm_topk_prob=True, routed_scaling_factor=2.5)
CASES = {
    "mixtral": MixtralSparseMoeBlock(MixtralConfig(hidden_size=HIDDEN, intermediate_size=WIDTH,
                                                   num_local_experts=EXPERTS, num_experts_per_tok=2)),
    "qwen3_moe": Qwen3MoeSparseMoeBlock(Qwen3MoeConfig(**QWEN, norm_topk_prob=True)),
    "qwen3_moe_not_normalised": Qwen3MoeSparseMoeBlock(Qwen3MoeConfig(**QWEN, norm_topk_prob=False)),
    "qwen2_moe": Qwen2MoeSparseMoeBlock(Qwen2MoeConfig(**QWEN, shared_expert_intermediate_size=SHARED)),
    "dots1": Dots1MoE(Dots1Config(**DOTS, num_experts_per_tok=3)),
    "dots1_groups": Dots1MoE(Dots1Config(**DOTS, num_experts_per_tok=2, n_group=3, topk_group=1)),
}


def fill(block, generator):
    with torch.no_grad():
        for value in block.parameters():
            value.copy_(torch.randn(value.shape, generator=generator) * 1.2 / math.sqrt(value.shape[-1]))
        for value in block.buffers():
            value.copy_(torch.randn(value.shape, generator=generator) * 0.3)


def parts(name, value):
    """A parameter of theirs by our names."""
    ours = {"gate.weight": "router.weight", "gate.e_score_correction_bias": "expert_bias",
            "shared_expert_gate.weight": "shared_gate.weight"}
    if name in ours:
        return {ours[name]: value}
    if name.startswith(("shared_expert.", "shared_experts.")):
        return {"shared." + name.split(".")[1].removesuffix("_proj") + ".weight": value}
    if name == "experts.gate_up_proj":
        return {"experts.gate.weight": value[:, :WIDTH], "experts.up.weight": value[:, WIDTH:]}
    assert name == "experts.down_proj", name
    return {"experts.down.weight": value}


def losses(block, logits, chosen):
    """The mean over the tokens of the balance loss, 1 if even (that of transformers is topk then), and of the z-loss.
    Models with sigmoid scores have no balance loss there: DeepSeek-V3's, equation 17, of the choices that were made."""
    topk = chosen.shape[1]
    z_loss = logits.logsumexp(-1).square().mean()
    if not hasattr(block.gate, "e_score_correction_bias"):
        return load_balancing_loss_func((logits,), EXPERTS, topk) / topk, z_loss
    scores = logits.sigmoid()
    share = (scores / scores.sum(-1, keepdim=True)).mean(0)
    counts = torch.bincount(chosen.flatten(), minlength=EXPERTS)
    return EXPERTS / (topk * TOKENS) * (counts * share).sum(), z_loss


def write(name, block, seed):
    generator = torch.Generator().manual_seed(seed)
    fill(block, generator)
    x = torch.randn(1, TOKENS, HIDDEN, generator=generator).requires_grad_()
    dy = torch.randn(1, TOKENS, HIDDEN, generator=generator)
    logits, weight, chosen = block.gate(x)
    logits.retain_grad()
    # The block computes as usual, but with logits whose gradient can be taken.
    block.gate.forward = lambda _: (logits, weight, chosen)
    y = block(x)[0]
    del block.gate.forward
    assert torch.equal(y, block(x)[0])
    balance, z_loss = losses(block, logits, chosen)
    (y * dy[0]).sum().add(BALANCE * balance + Z * z_loss).backward()
    order = chosen.argsort(-1)  # some choose in no order
    chosen, weight = chosen.gather(-1, order), weight.gather(-1, order)
    tensors = {"x": x[0], "dy": dy[0], "y": y, "d_x": x.grad[0], "logits": logits, "d_logits": logits.grad,
               "chosen": chosen.int(), "weight": weight, "balance_loss": balance.reshape(1),
               "z_loss": z_loss.reshape(1),
               # The tokens of each expert in order: row after row of what the experts get.
               "token_of_row": torch.cat([(chosen == e).any(-1).nonzero()[:, 0] for e in range(EXPERTS)]).int()}
    for theirs, value in block.named_parameters():
        tensors |= {f"param.{ours}": part for ours, part in parts(theirs, value).items()}
        tensors |= {f"grad.{ours}": part for ours, part in parts(theirs, value.grad).items()}
    for theirs, value in block.named_buffers():
        tensors |= {f"param.{ours}": part for ours, part in parts(theirs, value).items()}
    HERE.mkdir(exist_ok=True)
    save_file({key: value.detach().contiguous() for key, value in tensors.items()}, HERE / f"{name}.safetensors")
    print(f"{name}: balance {balance:.4f}, z {z_loss:.4f}")


def main():
    torch.set_num_threads(1)
    for seed, (name, block) in enumerate(CASES.items(), 1):
        write(name, block, seed)


if __name__ == "__main__":
    main()
