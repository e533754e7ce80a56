#!/usr/bin/env python3
"""Exports every directory of tests/reference/hugging_face with trainctl, loads the exports in transformers and compares
logits with those of the original. Also trains two steps from each and compares what transformers makes of the weights
with the directories that `checkpoint export` writes from them.

    python3 tests/reference/check_hugging_face.py build/release/bin/trainctl
"""
import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers
from transformers import AutoModelForCausalLM

HERE = pathlib.Path(__file__).resolve().parent / "hugging_face"
TOKENS = 12


def run(*words):
    subprocess.run([str(word) for word in words], check=True, capture_output=True)


def logits_of(directory, tokens):
    model, info = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"], info
    with torch.no_grad():
        return model.eval()(tokens[None]).logits[0]


def train(program, source, output):
    """Two steps on generated tokens, which the run's own files are the result of."""
    vocab = 75 if source.name != "bytes" else 256
    tokens = output.parent / f"{source.name}.bin"
    torch.randint(vocab, (4000,), dtype=torch.int32).to(torch.int16).numpy().tofile(tokens)
    config = output.parent / f"{source.name}.yaml"
    config.write_text(f"model: {{from: {source}, seq_length: 16}}\ndata: {{train: {tokens}}}\n"
                      "train: {steps: 2, global_batch_size: 4}\nlr_schedule: {max_lr: 1.0e-2}\n"
                      f"output: {{dir: {output}}}\n")
    run(program, "train", "--config", config, "--local-ranks", "2", "--set", "parallel.tensor_parallel=2")


def main(program):
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    tokens = torch.randint(75, (TOKENS,), generator=torch.Generator().manual_seed(1))
    largest = 0.0
    for source in sorted(path for path in HERE.iterdir() if path.is_dir()):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            original = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32).eval()
            with torch.no_grad():
                expected = original(tokens[None]).logits[0]
                rounded = original.bfloat16().state_dict()
            run(program, "checkpoint", "export", "--from", source, "--to", "hf", folder / "one")
            run(program, "checkpoint", "export", "--from", source, "--to", "hf", folder / "cut", "--shard-size", "5KB")
            run(program, "checkpoint", "export", "--from", source, "--to", "hf", folder / "bf16", "--dtype", "bf16")
            found = {name: (logits_of(folder / name, tokens) - expected).abs().max().item() for name in ("one", "cut")}
            largest = max(largest, *found.values())
            stored = AutoModelForCausalLM.from_pretrained(folder / "bf16")
            assert stored.dtype == torch.bfloat16
            assert all(torch.equal(value.bfloat16(), rounded[name]) for name, value in stored.state_dict().items())
            train(program, source, folder / "run")
            run(program, "checkpoint", "export", "--from", folder / "run", "--to", "hf", folder / "trained")
            trained = logits_of(folder / "run", tokens)
            assert torch.equal(trained, logits_of(folder / "trained", tokens))
            ids = stored.config.eos_token_id, stored.generation_config.eos_token_id
            print(f"{source.name:10s} export differs by {found}, bf16 equal, eos {ids}, "
                  f"training moved logits by {(trained - expected).abs().max():.3f}")
    print(f"largest difference {largest:.2e}")
    assert largest <= 1e-4


if __name__ == "__main__":
    main(sys.argv[1])
