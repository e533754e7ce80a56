#!/usr/bin/env python3
"""Writes NAME.published.json next to each directory of tests/reference/hugging_face: its config.json as transformers 4
spells it, which is how most published models have it. tests/weights compares what both say.

Needs transformers 4.57, PyTorch and safetensors. Each file is checked: with it and the directory's weights, that version
computes the stored logits.

    python3 tests/reference/make_published.py [names of models]
"""
import json
import pathlib
import shutil
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

HERE = pathlib.Path(__file__).resolve().parent / "hugging_face"
# Keys that say how the file was made, and those that the older class computes.
NOT_OF_THE_MODEL = ("architectures", "dtype", "torch_dtype", "transformers_version", "model_type", "rope_parameters")


def older_keys(config):
    """RoPE as rope_theta and rope_scaling, of layers with a window as rope_local_base_freq."""
    older = {key: value for key, value in config.items() if key not in NOT_OF_THE_MODEL}
    if config["model_type"] == "qwen3_moe" and "num_local_experts" in older:
        older["num_experts"] = older.pop("num_local_experts")
    rope = config.get("rope_parameters")
    if rope is None:
        return older
    if "full_attention" in rope:
        older["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
    scaling = {key: value for key, value in rope.items() if key not in ("rope_theta", "partial_rotary_factor")}
    older["rope_theta"] = rope["rope_theta"]
    if config["model_type"] == "phi3" and scaling["rope_type"] == "longrope":
        older["original_max_position_embeddings"] = scaling.pop("original_max_position_embeddings")
        scaling["type"] = scaling.pop("rope_type")
    older["rope_scaling"] = None if scaling.get("rope_type") == "default" else scaling
    if "partial_rotary_factor" in rope:
        older["partial_rotary_factor"] = rope["partial_rotary_factor"]
    return older


def write(directory):
    name = directory.name
    config = json.loads((directory / "config.json").read_text())
    newer = config["model_type"] not in CONFIG_MAPPING or name == "mixtral_together"  # whose tensors it does not have
    if newer or "text_config" in config or "quantization_config" in config:
        print(f"{name}: left out")
        return
    written = CONFIG_MAPPING[config["model_type"]](**older_keys(config), architectures=config.get("architectures"))
    target = HERE / f"{name}.published.json"
    target.write_text(written.to_json_string())
    with tempfile.TemporaryDirectory() as folder:
        for file in directory.glob("model*"):
            shutil.copy(file, folder)
        shutil.copy(target, pathlib.Path(folder) / "config.json")
        model, info = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True,
                                                           attn_implementation="eager")
    assert not info["missing_keys"], info
    stored = load_file(HERE / f"{name}.logits.safetensors")
    with torch.no_grad():
        logits = model.eval()(stored["tokens"].long()[None]).logits[0].float()
    difference = (logits - stored["logits"]).abs().max().item()
    assert difference < 1e-4, (name, difference)
    print(f"{name}: differs by {difference:.1e}")


def main(names):
    transformers.utils.logging.set_verbosity_error()
    for directory in sorted(path for path in HERE.iterdir() if path.is_dir()):
        if not names or directory.name in names:
            write(directory)


if __name__ == "__main__":
    main(sys.argv[1:])
