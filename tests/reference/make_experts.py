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
from transformers import MixtralConfig, Qwen3MoeConfig
from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock, load_balancing_loss_func
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeSparseMoeBlock

HERE = pathlib.Path(__file__).resolve().parent / "experts"
HIDDEN, WIDTH, EXPERTS, TOKENS = 16, 24, 6, 40
BALANCE, Z = 0.3, 0.1  # factors of the losses beside the main one

QWEN = dict(hidden_size=HIDDEN, moe_intermediate_size=WIDTH, num_experts=EXPERTS, num_experts_per_tok=3)
CASES = {
    "mixtral": MixtralSparseMoeBlock(MixtralConfig(hidden_size=HIDDEN, intermediate_size=WIDTH,
                                                   num_local_experts=EXPERTS, num_experts_per_tok=2)),
    "qwen3_moe": Qwen3MoeSparseMoeBlock(Qwen3MoeConfig(**QWEN, norm_topk_prob=True)),
    "qwen3_moe_not_normalised": Qwen3MoeSparseMoeBlock(Qwen3MoeConfig(**QWEN, norm_topk_prob=False)),
}


def fill(block, generator):
    with torch.no_grad():
        for value in block.parameters():
            value.copy_(torch.randn(value.shape, generator=generator) * 1.2 / math.sqrt(value.shape[-1]))


def parts(name, value):
    """A parameter of theirs by our names."""
    if name == "gate.weight":
        return {"router.weight": value}
    if name == "experts.gate_up_proj":
        return {"experts.gate.weight": value[:, :WIDTH], "experts.up.weight": value[:, WIDTH:]}
    assert name == "experts.down_proj", name
    return {"experts.down.weight": value}


def write(name, block, seed):
    generator = torch.Generator().manual_seed(seed)
    fill(block, generator)
    x = torch.randn(1, TOKENS, HIDDEN, generator=generator).requires_grad_()
    dy = torch.randn(1, TOKENS, HIDDEN, generator=generator)
    logits, weight, chosen = block.gate(x)
    logits.retain_grad()
    y = block.experts(x[0], chosen, weight)
    assert torch.equal(y, block(x)[0])
    topk = chosen.shape[1]
    # The mean over the tokens of the balance loss, 1 if even (theirs is topk then), and of the z-loss.
    balance = load_balancing_loss_func((logits,), EXPERTS, topk) / topk
    z_loss = logits.logsumexp(-1).square().mean()
    (y * dy[0]).sum().add(BALANCE * balance + Z * z_loss).backward()
    tensors = {"x": x[0], "dy": dy[0], "y": y, "d_x": x.grad[0], "logits": logits, "d_logits": logits.grad,
               "chosen": chosen.int(), "weight": weight, "balance_loss": balance.reshape(1),
               "z_loss": z_loss.reshape(1),
               # The tokens of each expert in order: row after row of what the experts get.
               "token_of_row": torch.cat([(chosen == e).any(-1).nonzero()[:, 0] for e in range(EXPERTS)]).int()}
    for theirs, value in block.named_parameters():
        tensors |= {f"param.{ours}": part for ours, part in parts(theirs, value).items()}
        tensors |= {f"grad.{ours}": part for ours, part in parts(theirs, value.grad).items()}
    HERE.mkdir(exist_ok=True)
    save_file({key: value.detach().contiguous() for key, value in tensors.items()}, HERE / f"{name}.safetensors")
    print(f"{name}: balance {balance:.4f}, z {z_loss:.4f}")


def main():
    torch.set_num_threads(1)
    for seed, (name, block) in enumerate(CASES.items(), 1):
        write(name, block, seed)


if __name__ == "__main__":
    main()
