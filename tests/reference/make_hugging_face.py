#!/usr/bin/env python3
"""Writes tests/reference/hugging_face: small model directories as transformers saves them, the logits that it
computes from them, and a few training steps. tests/weights compares with them.

Needs PyTorch, transformers and safetensors; the tests themselves need none of them.

    python3 tests/reference/make_hugging_face.py [names of models]
"""
import json
import math
import pathlib
import shutil
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import (ArceeConfig, AutoModelForCausalLM, CwmConfig, Dots1Config, Ernie4_5Config, Exaone4Config,
                          Exaone4_5_Config, Exaone4_5_ForConditionalGeneration, Gemma2Config, Gemma3Config,
                          Gemma3ForConditionalGeneration, Gemma3TextConfig, GemmaConfig, Glm4Config, GlmConfig,
                          GPT2Config, GraniteConfig, GraniteSWAConfig, HeliumConfig, HunYuanDenseV1Config,
                          HyperCLOVAXConfig, InternLM3Config, IQuestCoderConfig, LlamaConfig, LlavaConfig,
                          LlavaForConditionalGeneration, Ministral3Config, MinistralConfig, Mistral3Config,
                          Mistral3ForConditionalGeneration, MistralConfig, MixtralConfig, Olmo2Config, Olmo3Config,
                          Phi3Config, Qwen2Config, Qwen2MoeConfig, Qwen3Config, Qwen3MoeConfig, SeedOssConfig,
                          SmolLM3Config, VaultGemmaConfig)
from transformers.integrations.finegrained_fp8 import Fp8Dequantize
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

HERE = pathlib.Path(__file__).resolve().parent / "hugging_face"
TOKENS = 12
STEPS = 3
GREEDY = 20  # tokens that follow the first ones
BALANCE = 0.05  # moe.aux_loss_factor in training
# A large eps: with 1e-8 the rounding of a gradient near zero would move its weight as far as any other.
ADAMW = dict(lr=1e-2, beta1=0.9, beta2=0.95, eps=1e-4, weight_decay=0.1, clip=0.5)

GPT2 = dict(vocab_size=75, n_positions=24, n_embd=16, n_layer=2, n_head=2, bos_token_id=74, eos_token_id=74)
SIZES = dict(vocab_size=75, hidden_size=16, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=32, bos_token_id=1)
FOUR = dict(SIZES, num_hidden_layers=4)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=8)
SCALED = dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=8)

TRAINED = ("gpt2", "llama", "mixtral", "qwen2_moe", "dots1", "llama_biases", "mistral_window", "smollm3", "arcee",
           "ernie4_5", "granite", "glm", "phi3", "gemma", "gemma2", "olmo2", "exaone4", "glm4", "hunyuan", "ministral",
           "qwen3_window", "seed_oss", "vaultgemma", "olmo3", "helium", "cwm", "internlm3", "iquestcoder",
           "hyperclovax", "gemma3", "ministral3", "granite_swa")

# How each is saved: dtype, the largest shard, and changes to the files as older versions wrote them.
CASES = {
    "gpt2": (GPT2Config(**GPT2), dict()),
    "gpt2_hub": (GPT2Config(**GPT2), dict(hub=True)),
    "llama": (LlamaConfig(**SIZES, eos_token_id=[2, 3], rope_parameters=dict(SCALED, rope_theta=500.0)),
              dict(shard="12KB")),
    "llama_old": (LlamaConfig(**SIZES, eos_token_id=2, head_dim=8, tie_word_embeddings=True,
                              rope_parameters=dict(SCALED, rope_theta=500.0)), dict(old=True)),
    "mistral": (MistralConfig(**SIZES, eos_token_id=2, sliding_window=None), dict(dtype=torch.bfloat16)),
    "qwen2": (Qwen2Config(**SIZES, eos_token_id=2, tie_word_embeddings=True,
                          rope_parameters=dict(rope_type="default", rope_theta=1000000.0)),
              dict(dtype=torch.bfloat16, shard="6KB", old=True)),
    # A token for each byte, for whole runs on text.
    "bytes": (LlamaConfig(**dict(SIZES, vocab_size=256, max_position_embeddings=64), tie_word_embeddings=True,
                          pad_token_id=0, eos_token_id=0), dict()),
    "qwen3": (Qwen3Config(**SIZES, eos_token_id=2, head_dim=8), dict(dtype=torch.float16)),
    "mixtral": (MixtralConfig(**dict(SIZES, intermediate_size=24), eos_token_id=2, num_local_experts=4,
                              num_experts_per_tok=2), dict(old=True)),
    "mixtral_together": (MixtralConfig(**dict(SIZES, intermediate_size=24), eos_token_id=2, num_local_experts=4,
                                       num_experts_per_tok=2), dict(together=True)),
    "qwen3_moe": (Qwen3MoeConfig(**dict(SIZES, num_hidden_layers=3), eos_token_id=2, head_dim=8, num_experts=6,
                                 num_experts_per_tok=3, moe_intermediate_size=12, norm_topk_prob=True,
                                 mlp_only_layers=[0]), dict(dtype=torch.bfloat16, shard="8KB")),
    "qwen2_moe": (Qwen2MoeConfig(**SIZES, eos_token_id=2, num_experts=4, num_experts_per_tok=2,
                                 moe_intermediate_size=12, shared_expert_intermediate_size=20),
                  dict(dtype=torch.bfloat16, old=True)),
    "dots1": (Dots1Config(**SIZES, eos_token_id=2, head_dim=8, n_routed_experts=6,
                          n_shared_experts=2, num_experts_per_tok=2, moe_intermediate_size=12, n_group=3, topk_group=1,
                          norm_topk_prob=True, routed_scaling_factor=2.5, first_k_dense_replace=1), dict()),
    # Families that differ from Llama in forms, each also where it is written as older versions did.
    "llama_biases": (LlamaConfig(**SIZES, eos_token_id=2, attention_bias=True, mlp_bias=True,
                                 rope_parameters=dict(YARN, rope_theta=500.0)), dict()),
    "mistral_window": (MistralConfig(**SIZES, eos_token_id=2, sliding_window=5), dict(old=True)),
    "ministral": (MinistralConfig(**FOUR, eos_token_id=2, head_dim=8, sliding_window=5,
                                  layer_types=["sliding_attention", "full_attention"] * 2), dict()),
    "qwen3_window": (Qwen3Config(**FOUR, eos_token_id=2, head_dim=8, use_sliding_window=True, sliding_window=5,
                                 max_window_layers=2), dict(old=True, missing=("layer_types",))),
    "smollm3": (SmolLM3Config(**FOUR, eos_token_id=2, pad_token_id=0), dict()),
    "smollm3_old": (SmolLM3Config(**FOUR, eos_token_id=2, pad_token_id=0, no_rope_layers=[1, 0, 0, 1]), dict(old=True)),
    "arcee": (ArceeConfig(**SIZES, eos_token_id=2, mlp_bias=True), dict(old=True)),
    "seed_oss": (SeedOssConfig(**SIZES, eos_token_id=2, head_dim=8, attention_out_bias=True, attention_dropout=0.0,
                               residual_dropout=0.0), dict()),
    "ernie4_5": (Ernie4_5Config(**SIZES, eos_token_id=2, head_dim=8, use_bias=True), dict(old=True)),
    "granite": (GraniteConfig(**SIZES, eos_token_id=2, embedding_multiplier=3.0, logits_scaling=2.0,
                              residual_multiplier=0.5, attention_multiplier=0.4), dict(old=True)),
    "glm": (GlmConfig(**SIZES, eos_token_id=2, pad_token_id=0, head_dim=8), dict()),
    "phi3": (Phi3Config(**SIZES, eos_token_id=2, pad_token_id=0, sliding_window=7, original_max_position_embeddings=8,
                        rope_parameters=dict(rope_type="longrope", rope_theta=10000.0, short_factor=[1.0, 1.5],
                                             long_factor=[2.0, 4.0])), dict()),
    "gemma": (GemmaConfig(**SIZES, eos_token_id=2, pad_token_id=0, head_dim=8), dict()),
    "gemma2": (Gemma2Config(**SIZES, eos_token_id=2, pad_token_id=0, head_dim=8, sliding_window=5,
                            query_pre_attn_scalar=6, attn_logit_softcapping=3.0, final_logit_softcapping=4.0),
               dict(old=True, missing=("layer_types",))),
    "gemma3": (Gemma3TextConfig(**FOUR, eos_token_id=2, pad_token_id=0, head_dim=8, sliding_window=5,
                                query_pre_attn_scalar=6, sliding_window_pattern=3,
                                rope_parameters=dict(sliding_attention=dict(rope_type="default", rope_theta=100.0),
                                                     full_attention=dict(rope_type="linear", factor=4.0,
                                                                         rope_theta=5000.0))), dict()),
    "vaultgemma": (VaultGemmaConfig(**SIZES, eos_token_id=2, pad_token_id=0, head_dim=8, sliding_window=5,
                                    query_pre_attn_scalar=6, attn_logit_softcapping=3.0, final_logit_softcapping=4.0),
                   dict()),
    "olmo2": (Olmo2Config(**SIZES, eos_token_id=2, pad_token_id=0), dict(old=True)),
    "olmo3": (Olmo3Config(**FOUR, eos_token_id=2, pad_token_id=0, sliding_window=5,
                          rope_parameters=dict(sliding_attention=dict(rope_type="default", rope_theta=500.0),
                                               full_attention=dict(YARN, rope_theta=500.0))), dict()),
    "exaone4": (Exaone4Config(**FOUR, eos_token_id=2, pad_token_id=0, head_dim=8, sliding_window=5,
                              sliding_window_pattern=2), dict(old=True, missing=("layer_types",))),
    "glm4": (Glm4Config(**SIZES, eos_token_id=2, pad_token_id=0, head_dim=8), dict()),
    "hunyuan": (HunYuanDenseV1Config(**SIZES, eos_token_id=2, pad_token_id=0, head_dim=8,
                                     rope_parameters=dict(rope_type="dynamic", alpha=10.0, factor=1.0,
                                                          rope_theta=500.0)), dict()),
    "helium": (HeliumConfig(**SIZES, eos_token_id=2, pad_token_id=0, head_dim=4), dict()),
    "cwm": (CwmConfig(**dict(SIZES, num_hidden_layers=5), eos_token_id=2, head_dim=8, sliding_window=5,
                      rope_parameters=dict(SCALED, rope_theta=500.0)), dict(old=True, missing=("layer_types",))),
    "internlm3": (InternLM3Config(**SIZES, eos_token_id=2, head_dim=8, attention_bias=True, mlp_bias=True,
                                  rope_parameters=dict(rope_type="dynamic", factor=6.0, rope_theta=500.0)),
                  dict(old=True, renamed=dict(attention_bias="qkv_bias", mlp_bias="bias"))),
    "iquestcoder": (IQuestCoderConfig(**SIZES, eos_token_id=2, head_dim=8), dict()),
    "hyperclovax": (HyperCLOVAXConfig(**SIZES, eos_token_id=2, embedding_multiplier=3.0, logits_scaling=0.5,
                                      residual_multiplier=0.5, attention_multiplier=0.4), dict()),
    "hyperclovax_pre": (HyperCLOVAXConfig(**SIZES, eos_token_id=2, logits_scaling=0.5, use_post_norm=False), dict()),
}

# Models that also see images, of which the text's part is read.
EYES = dict(hidden_size=8, intermediate_size=12, num_hidden_layers=1, num_attention_heads=2, image_size=8, patch_size=4)
CASES |= {
    "gemma3_images": (Gemma3Config(text_config=dict(CASES["gemma3"][0].to_dict()), mm_tokens_per_image=4,
                                   vision_config=dict(EYES, model_type="siglip_vision_model")),
                      dict(images=Gemma3ForConditionalGeneration)),
    "mistral3_images": (Mistral3Config(text_config=dict(SIZES, model_type="mistral", head_dim=8, eos_token_id=2,
                                                        sliding_window=None), tie_word_embeddings=False,
                                       vision_config=dict(EYES, model_type="pixtral")),
                        dict(images=Mistral3ForConditionalGeneration, shard="12KB")),
    "llava_images": (LlavaConfig(text_config=dict(SIZES, model_type="llama", eos_token_id=2),
                                 vision_config=dict(EYES, model_type="clip_vision_model")),
                     dict(images=LlavaForConditionalGeneration)),
    "exaone4_5_images": (Exaone4_5_Config(text_config=CASES["exaone4"][0].to_dict(),
                                          vision_config=dict(depth=1, hidden_size=8, intermediate_size=12, num_heads=2,
                                                             num_key_value_heads=1, out_hidden_size=16, patch_size=4,
                                                             fullatt_block_indexes=[0])),
                         dict(images=Exaone4_5_ForConditionalGeneration)),
}

# Seeds follow the order: new cases come last.
CASES |= {
    "ministral3": (Ministral3Config(**SIZES, eos_token_id=2, pad_token_id=0, head_dim=8,
                                    rope_parameters=dict(YARN, rope_theta=500.0, mscale=1.0, mscale_all_dim=0.5,
                                                         llama_4_scaling_beta=0.3)), dict(old=True)),
    "granite_swa": (GraniteSWAConfig(**FOUR, eos_token_id=2, tie_word_embeddings=False, sliding_window=5,
                                     layer_types=["sliding_attention", "full_attention"] * 2,
                                     layer_rope_theta=[500, 0, 100.0, 500], embedding_multiplier=3.0, logits_scaling=2.0,
                                     residual_multiplier=0.5, attention_multiplier=0.4), dict()),
    "granite_swa_old": (GraniteSWAConfig(**dict(SIZES, num_hidden_layers=5), eos_token_id=2, sliding_window=5,
                                         mlp_bias=True, rope_parameters=dict(SCALED, rope_theta=500.0)),
                        dict(old=True, missing=("layer_types", "layer_rope_theta", "tie_word_embeddings"))),
}
CASES |= {
    "ministral3_images": (Mistral3Config(text_config=CASES["ministral3"][0].to_dict(), tie_word_embeddings=False,
                                         vision_config=dict(EYES, model_type="pixtral")),
                          dict(images=Mistral3ForConditionalGeneration)),
}

# Weights of 8 bits: the rows and columns that share a scale (None: the whole tensor), and the type of scales.
FP8 = {
    "fp8_blocks": ("llama_biases", (16, 8), torch.float32),
    "fp8_powers": ("granite", (16, 16), torch.float8_e8m0fnu),
    "fp8_tensor": ("phi3", None, torch.bfloat16),
    "fp8_ministral3": ("ministral3", None, torch.float32),
}


def fill(model, generator):
    """Larger than usual values, so that every term of the logits counts."""
    # Norms of Gemma multiply by 1 + weight.
    usual = 0 if "gemma" in model.config.model_type else 1
    with torch.no_grad():
        for name, value in model.named_parameters():
            noise = torch.randn(value.shape, generator=generator)
            if value.dim() == 1:
                value.copy_((usual if "bias" not in name else 0) + 0.2 * noise)
            else:
                value.copy_(noise * (0.6 if "wte" in name or "embed" in name else 1.2 / math.sqrt(value.shape[-1])))
        for name, value in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                value.copy_(0.3 * torch.randn(value.shape, generator=generator))


def as_older_versions(directory, renamed, missing):
    """config.json with rope_theta, rope_scaling and torch_dtype, older names of other keys and without some."""
    path = directory / "config.json"
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    config["torch_dtype"] = config.pop("dtype")
    for now, before in renamed.items():
        config[before] = config.pop(now)
    for key in missing:
        del config[key]
    path.write_text(json.dumps(config, indent=2) + "\n")


def as_on_the_hub(directory):
    """GPT-2 as its first files are: no prefix, and the buffers of the causal mask."""
    path = directory / "model.safetensors"
    tensors = {name.removeprefix("transformer."): value for name, value in load_file(path).items()}
    for layer in range(GPT2["n_layer"]):
        positions = GPT2["n_positions"]
        tensors[f"h.{layer}.attn.bias"] = torch.tril(torch.ones(positions, positions)).view(1, 1, positions, positions)
        tensors[f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    save_file(tensors, path, metadata={"format": "pt"})


def save_experts_together(model, directory):
    """As the model itself names its tensors: those of all experts in one."""
    save_file({name: value.contiguous() for name, value in model.state_dict().items()},
              directory / "model.safetensors", metadata={"format": "pt"})


def unpacked(values, scales, block):
    """What 8 bits mean; a last block may be cut off."""
    result = values.float()
    rows, columns = block or values.shape
    for i, row in enumerate(scales.reshape(1, 1) if block is None else scales):
        for j, scale in enumerate(row):
            result[i * rows:(i + 1) * rows, j * columns:(j + 1) * columns] *= scale.float()
    return result


def packed(value, block, kind):
    """Values of 8 bits and their scales, powers of two only where `kind` has nothing else."""
    rows, columns = block or value.shape
    scales = torch.ones(-(-value.shape[0] // rows), -(-value.shape[1] // columns))
    for i in range(scales.shape[0]):
        for j in range(scales.shape[1]):
            scales[i, j] = value[i * rows:(i + 1) * rows, j * columns:(j + 1) * columns].abs().max() / 448
    scales = scales.to(kind)
    whole = scales.float().repeat_interleave(rows, 0).repeat_interleave(columns, 1)
    bits = (value / whole[:value.shape[0], :value.shape[1]]).to(torch.float8_e4m3fn)
    return bits, scales if block else scales.reshape(())


def same_as_transformers(bits, scales, found):
    """Where it has an answer: blocks that divide the matrix."""
    if scales.dim() == 2 and (bits.shape[0] % scales.shape[0] or bits.shape[1] % scales.shape[1]):
        return
    theirs = Fp8Dequantize(None)._dequantize_one(bits, scales, torch.float32)
    assert torch.equal(theirs, found)


def save_fp8(name, source, block, kind):
    """A directory of 8 bits from one that is there; all matrices but those of the first MLP's output."""
    directory = HERE / name
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(HERE / source, directory)
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    tensors, plain = {}, model.state_dict()
    for key, value in load_file(directory / "model.safetensors").items():
        tensors[key] = value
        if not key.endswith("_proj.weight") or key.endswith("0.mlp.down_proj.weight"):
            continue
        bits, scales = packed(value, block, kind)
        tensors[key], tensors[key + "_scale_inv"] = bits, scales
        if block is None:
            tensors[key.removesuffix("weight") + "activation_scale"] = torch.tensor(0.5)
        plain[key] = unpacked(bits, scales, block)
        same_as_transformers(bits, scales, plain[key])
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    path = directory / "config.json"
    config = json.loads(path.read_text())
    config["quantization_config"] = dict(quant_method="fp8", weight_block_size=block, modules_to_not_convert=["lm_head"],
                                         activation_scheme="dynamic" if block else "static")
    path.write_text(json.dumps(config, indent=2) + "\n")
    model.load_state_dict(plain)
    tokens = load_file(HERE / f"{source}.logits.safetensors")["tokens"]
    save_file({"tokens": tokens, "logits": logits_of(model, tokens.long()),
               "out": plain["model.layers.1.self_attn.o_proj.weight"]}, HERE / f"{name}.logits.safetensors")
    print(f"{name}: largest logit {logits_of(model, tokens.long()).abs().max():.3f}")


def logits_of(model, tokens):
    with torch.no_grad():
        return model(tokens[None]).logits[0].float()


def save(name, config, how, seed):
    directory = HERE / name
    shutil.rmtree(directory, ignore_errors=True)
    generator = torch.Generator().manual_seed(seed)
    kind = how.get("images", AutoModelForCausalLM)
    model = kind(config) if "images" in how else kind.from_config(config)
    fill(model, generator)
    model = model.to(how.get("dtype", torch.float32))
    model.save_pretrained(directory, max_shard_size=how.get("shard", "1GB"))
    if how.get("old"):
        as_older_versions(directory, how.get("renamed", {}), how.get("missing", ()))
    if how.get("hub"):
        as_on_the_hub(directory)
    if how.get("together"):
        save_experts_together(model, directory)
    # From the files, like a reader: a rounded model has rounded RoPE frequencies too.
    model = kind.from_pretrained(directory, dtype=torch.float32).eval()
    tokens = torch.randint(getattr(config, "text_config", config).vocab_size, (TOKENS,), generator=generator)
    logits = logits_of(model, tokens)
    save_file({"tokens": tokens.int(), "logits": logits}, HERE / f"{name}.logits.safetensors")
    print(f"{name}: largest logit {logits.abs().max():.3f}")
    model.generation_config.eos_token_id = None
    # As many as leave room for the others. A prompt may hold the id of padding.
    prompt = tokens[None, :min(TOKENS, getattr(config, "n_positions", TOKENS + GREEDY) - GREEDY)]
    found = model.generate(prompt, do_sample=False, max_new_tokens=GREEDY, attention_mask=torch.ones_like(prompt))[0]
    save_file({"tokens": found.int()}, HERE / f"{name}.greedy.safetensors")
    return model


def has_experts(config):
    return hasattr(config, "num_experts_per_tok")


def loss_of(model, tokens, labels):
    """Of the predictions, and what is differentiated: with the balance loss of each layer of experts, over all tokens, 1
    if even."""
    if not has_experts(model.config) or model.config.model_type == "dots1":
        loss = torch.nn.functional.cross_entropy(model(tokens).logits.flatten(0, 1), labels.flatten())
        return loss, loss
    result = model(tokens, output_router_logits=True)
    loss = torch.nn.functional.cross_entropy(result.logits.flatten(0, 1), labels.flatten())
    topk = model.config.num_experts_per_tok
    balance = sum(load_balancing_loss_func((one,), one.shape[-1], topk) / topk for one in result.router_logits)
    return loss, loss + BALANCE * balance


def train(name, model, seed):
    """AdamW with clipping on one batch, and the logits afterwards."""
    generator = torch.Generator().manual_seed(seed)
    size = (2, 16)
    tokens = torch.randint(model.config.vocab_size, size, generator=generator)
    labels = torch.randint(model.config.vocab_size, size, generator=generator)
    padding = getattr(model.config, "pad_token_id", None)
    if padding is not None:  # whose embedding gets no gradient there
        tokens[tokens == padding] = padding + 1
    params = [value for value in model.parameters()]
    moments = [(torch.zeros_like(value), torch.zeros_like(value)) for value in params]
    losses = []
    for step in range(1, STEPS + 1):
        loss, whole = loss_of(model, tokens, labels)
        grads = torch.autograd.grad(whole, params)
        total = math.sqrt(sum(g.double().square().sum().item() for g in grads))
        scale = min(1.0, ADAMW["clip"] / (total + 1e-6))
        losses.append(loss.item())
        with torch.no_grad():
            for value, grad, (m, v) in zip(params, grads, moments):
                g = grad * scale
                m.mul_(ADAMW["beta1"]).add_(g, alpha=1 - ADAMW["beta1"])
                v.mul_(ADAMW["beta2"]).addcmul_(g, g, value=1 - ADAMW["beta2"])
                update = (m / (1 - ADAMW["beta1"]**step)) / ((v / (1 - ADAMW["beta2"]**step)).sqrt() + ADAMW["eps"])
                if value.dim() > 1:
                    update = update + ADAMW["weight_decay"] * value
                value.sub_(ADAMW["lr"] * update)
    save_file({"tokens": tokens.int().contiguous(), "labels": labels.int().contiguous(),
               "loss": torch.tensor(losses, dtype=torch.float64), "logits": logits_of(model, tokens[0])},
              HERE / f"{name}.training.safetensors")
    print(f"{name}: losses {losses}")


def main(names):
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    HERE.mkdir(exist_ok=True)
    for seed, (name, (config, how)) in enumerate(CASES.items(), 1):
        if names and name not in names:
            continue
        model = save(name, config, how, seed)
        if name in TRAINED:
            train(name, model, 100 + seed)
    for name, how in FP8.items():
        if not names or name in names:
            save_fp8(name, *how)


if __name__ == "__main__":
    main(sys.argv[1:])
