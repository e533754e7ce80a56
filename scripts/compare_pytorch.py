#!/usr/bin/env python3
"""Trains the same GPT-2 124M with PyTorch and with trainctl, alternating, and prints the ratio of tokens/s.

Optional; needs PyTorch from PyPI. PyTorch runs the faster of eager and torch.compile (Inductor needs g++), with the attention that it
chooses itself. On a CUDA device neither side uses TF32 for fp32.

    python3 scripts/compare_pytorch.py [--device cpu|cuda] [--binary build/release/bin/trainctl] [--pairs 5] [--sequences 4] [--dtype fp32 bf16]
"""
import argparse
import json
import statistics
import subprocess
import time

import torch
import torch.nn.functional as F
from torch import nn

LAYERS, HEADS, HIDDEN, VOCAB, SEQ = 12, 12, 768, 50257, 1024


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.qkv, self.out = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.up, self.down = nn.Linear(HIDDEN, 4 * HIDDEN), nn.Linear(4 * HIDDEN, HIDDEN)

    def forward(self, x):
        batch, seq, _ = x.shape
        q, k, v = (t.view(batch, seq, HEADS, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).split(HIDDEN, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, seq, HIDDEN))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(50304, HIDDEN), nn.Embedding(SEQ, HIDDEN)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(HIDDEN)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, labels):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), labels.view(-1))


class Trainer:
    """One training step of PyTorch; bf16 is autocast over fp32 parameters, the usual mixed precision."""

    def __init__(self, device, dtype, compiled, sequences):
        torch.manual_seed(0)
        self.model = Gpt2().to(device)
        self.device, self.dtype = device, dtype
        self.run = torch.compile(self.model) if compiled else self.model
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=6e-4, weight_decay=0.1, fused=True)
        self.tokens, self.labels = (torch.randint(VOCAB, (sequences, SEQ), device=device) for _ in range(2))

    def wait(self):
        if self.device == "cuda":
            torch.cuda.synchronize()

    def step(self):
        self.wait()
        start = time.perf_counter()
        with torch.autocast(self.device, torch.bfloat16, enabled=self.dtype == "bf16"):
            loss = self.run(self.tokens, self.labels)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.wait()
        return time.perf_counter() - start


def best_trainer(device, dtype, sequences):
    best = None
    for compiled in (False, True):
        try:
            trainer = Trainer(device, dtype, compiled, sequences)
            trainer.step()
            seconds = min(trainer.step() for _ in range(2))
        except Exception as error:  # torch.compile needs a working C++ compiler
            print(f"# PyTorch {'compile' if compiled else 'eager'} {dtype}: {type(error).__name__}")
            continue
        print(f"# PyTorch {'compile' if compiled else 'eager'} {dtype}: {sequences * SEQ / seconds:.1f} tokens/s")
        if best is None or seconds < best[0]:
            best = (seconds, trainer)
    if best is None:
        raise SystemExit(f"PyTorch cannot train the model in {dtype} on {device}")
    return best[1]


def trainctl_seconds(args, dtype):
    command = [args.binary, "bench", "step", "--config", args.config, "--pairs", "1", "--format", "json", "--set",
               f"precision.compute={dtype}", "--set", f"train.global_batch_size={args.sequences}", "--set",
               f"train.micro_batch_size={args.sequences}", "--set"]
    command.append("parallel.device=cuda" if args.device == "cuda" else "parallel.threads_per_rank=2")
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout)["step_seconds"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--binary", default="build/release/bin/trainctl")
    parser.add_argument("--config", default="configs/gpt2-124m.yaml")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--sequences", type=int, default=4)
    parser.add_argument("--dtype", nargs="+", default=["fp32", "bf16"])
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("--device cuda: PyTorch sees no CUDA device")
    torch.set_num_threads(2)
    tokens = args.sequences * SEQ
    for dtype in args.dtype:
        trainer = best_trainer(args.device, dtype, args.sequences)
        ratios = []
        for pair in range(args.pairs):
            theirs = min(trainer.step() for _ in range(2))
            ours = trainctl_seconds(args, dtype)
            ratios.append(theirs / ours)
            print(f"{dtype} pair {pair + 1}: PyTorch {tokens / theirs:.1f} tokens/s, "
                  f"trainctl {tokens / ours:.1f}, ratio {ratios[-1]:.2f}")
        if ratios:
            print(f"{dtype}: trainctl / PyTorch = {statistics.median(ratios):.2f} "
                  f"({min(ratios):.2f} .. {max(ratios):.2f})")
        del trainer


if __name__ == "__main__":
    main()
