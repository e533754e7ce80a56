#include "config/schema/presets.h"

#include <string>
#include <vector>

namespace trainctl {
namespace {

// Sizes as in the published configuration files of the models. Dropout keeps our default, since
// these files give the value for fine-tuning.
constexpr Preset table[] = {
    {"cwm-32b",
     "{family: llama, num_layers: 64, hidden_size: 6144, num_attention_heads: 48, "
     "num_query_groups: 8, kv_channels: 128, ffn_hidden_size: 21504, seq_length: 131072, "
     "vocab_size: 128256, layers: [{name: full}, {name: sliding, sliding_window: 8192}], "
     "layer_pattern: \"full, sliding*3\", rotary_base: 1000000, "
     "rope_scaling: {factor: 16, low_freq_factor: 1, high_freq_factor: 4, "
     "original_max_position_embeddings: 8192}, tie_word_embeddings: false}"},
    {"ernie4.5-0.3b",
     "{family: llama, num_layers: 18, hidden_size: 1024, num_attention_heads: 16, "
     "num_query_groups: 2, kv_channels: 128, ffn_hidden_size: 3072, seq_length: 131072, "
     "vocab_size: 103424, rotary_base: 500000, rotary_interleaved: true, "
     "tie_word_embeddings: true}"},
    {"exaone4-1.2b",
     "{family: llama, num_layers: 30, hidden_size: 2048, num_attention_heads: 32, "
     "num_query_groups: 8, kv_channels: 64, ffn_hidden_size: 4096, seq_length: 65536, "
     "vocab_size: 102400, rotary_base: 1000000, rope_scaling: {factor: 16, low_freq_factor: 1, "
     "high_freq_factor: 4, original_max_position_embeddings: 8192}, norm_placement: post, "
     "qk_layernorm: true, tie_word_embeddings: true}"},
    {"gemma2-2b",
     "{family: llama, num_layers: 26, hidden_size: 2304, num_attention_heads: 8, "
     "num_query_groups: 4, kv_channels: 256, ffn_hidden_size: 9216, seq_length: 8192, "
     "vocab_size: 256000, layers: [{name: sliding, sliding_window: 4096}, {name: full}], "
     "layer_pattern: \"sliding, full\", norm_epsilon: 1.0e-6, zero_centered_norm: true, "
     "norm_placement: both, activation: gelu, softmax_scale: 0.0625, embedding_multiplier: 48, "
     "attn_logit_softcapping: 50, final_logit_softcapping: 30, tie_word_embeddings: true}"},
    {"gemma3-1b",
     "{family: llama, num_layers: 26, hidden_size: 1152, num_attention_heads: 4, "
     "num_query_groups: 1, kv_channels: 256, ffn_hidden_size: 6912, seq_length: 32768, "
     "vocab_size: 262144, layers: [{name: sliding, sliding_window: 512, rotary_base: 10000}, "
     "{name: full}], layer_pattern: \"sliding*5, full\", rotary_base: 1000000, "
     "norm_epsilon: 1.0e-6, zero_centered_norm: true, norm_placement: both, qk_layernorm: true, "
     "activation: gelu, softmax_scale: 0.0625, embedding_multiplier: 33.941125496954285, "
     "tie_word_embeddings: true}"},
    {"glm4-9b",
     "{family: llama, num_layers: 40, hidden_size: 4096, num_attention_heads: 32, "
     "num_query_groups: 2, kv_channels: 128, ffn_hidden_size: 13696, seq_length: 32768, "
     "vocab_size: 151552, rotary_percent: 0.5, rotary_interleaved: true, add_qkv_bias: true, "
     "norm_placement: both, norm_epsilon: 1.5625e-7, tie_word_embeddings: false}"},
    {"gpt2-1.5b",
     "{family: gpt2, num_layers: 48, hidden_size: 1600, num_attention_heads: 25, "
     "seq_length: 1024, vocab_size: 50257, tie_word_embeddings: true}"},
    {"gpt2-124m",
     "{family: gpt2, num_layers: 12, hidden_size: 768, num_attention_heads: 12, "
     "seq_length: 1024, vocab_size: 50257, tie_word_embeddings: true}"},
    {"gpt2-355m",
     "{family: gpt2, num_layers: 24, hidden_size: 1024, num_attention_heads: 16, "
     "seq_length: 1024, vocab_size: 50257, tie_word_embeddings: true}"},
    {"gpt2-774m",
     "{family: gpt2, num_layers: 36, hidden_size: 1280, num_attention_heads: 20, "
     "seq_length: 1024, vocab_size: 50257, tie_word_embeddings: true}"},
    {"granite3.1-8b",
     "{family: llama, num_layers: 40, hidden_size: 4096, num_attention_heads: 32, "
     "num_query_groups: 8, ffn_hidden_size: 12800, seq_length: 131072, vocab_size: 49155, "
     "rotary_base: 10000000, softmax_scale: 0.0078125, embedding_multiplier: 12, "
     "residual_multiplier: 0.22, logit_scale: 0.0625, tie_word_embeddings: true}"},
    {"llama2-7b",
     "{family: llama, num_layers: 32, hidden_size: 4096, num_attention_heads: 32, "
     "ffn_hidden_size: 11008, seq_length: 4096, vocab_size: 32000, "
     "tie_word_embeddings: false}"},
    {"llama3-70b",
     "{family: llama, num_layers: 80, hidden_size: 8192, num_attention_heads: 64, "
     "num_query_groups: 8, ffn_hidden_size: 28672, seq_length: 8192, "
     "vocab_size: 128256, rotary_base: 500000, tie_word_embeddings: false}"},
    {"llama3-8b",
     "{family: llama, num_layers: 32, hidden_size: 4096, num_attention_heads: 32, "
     "num_query_groups: 8, ffn_hidden_size: 14336, seq_length: 8192, "
     "vocab_size: 128256, rotary_base: 500000, tie_word_embeddings: false}"},
    {"llama3.1-8b",
     "{family: llama, num_layers: 32, hidden_size: 4096, num_attention_heads: 32, "
     "num_query_groups: 8, ffn_hidden_size: 14336, seq_length: 8192, "
     "max_position_embeddings: 131072, vocab_size: 128256, rotary_base: 500000, "
     "rope_scaling: {factor: 8, low_freq_factor: 1, high_freq_factor: 4, "
     "original_max_position_embeddings: 8192}, tie_word_embeddings: false}"},
    {"llama3.2-1b",
     "{family: llama, num_layers: 16, hidden_size: 2048, num_attention_heads: 32, "
     "num_query_groups: 8, ffn_hidden_size: 8192, seq_length: 8192, "
     "max_position_embeddings: 131072, vocab_size: 128256, rotary_base: 500000, "
     "rope_scaling: {factor: 32, low_freq_factor: 1, high_freq_factor: 4, "
     "original_max_position_embeddings: 8192}, tie_word_embeddings: true}"},
    // Limited to 16384 positions, where the temperature of its attention is 1.
    {"ministral3-8b",
     "{family: llama, num_layers: 34, hidden_size: 4096, num_attention_heads: 32, "
     "num_query_groups: 8, kv_channels: 128, ffn_hidden_size: 14336, seq_length: 16384, "
     "vocab_size: 131072, rotary_base: 1000000, rope_scaling: {type: yarn, factor: 16, mscale: 1, "
     "mscale_all_dim: 1, original_max_position_embeddings: 16384}, tie_word_embeddings: false}"},
    {"mistral-7b-v0.1",
     "{family: llama, num_layers: 32, hidden_size: 4096, num_attention_heads: 32, "
     "num_query_groups: 8, ffn_hidden_size: 14336, seq_length: 32768, vocab_size: 32000, "
     "sliding_window: 4096, tie_word_embeddings: false}"},
    {"mistral-7b-v0.3",
     "{family: llama, num_layers: 32, hidden_size: 4096, "
     "num_attention_heads: 32, num_query_groups: 8, ffn_hidden_size: 14336, "
     "seq_length: 32768, vocab_size: 32768, rotary_base: 1000000, "
     "tie_word_embeddings: false}"},
    {"mixtral-8x22b",
     "{family: llama, num_layers: 56, hidden_size: 6144, num_attention_heads: 48, "
     "num_query_groups: 8, ffn_hidden_size: 16384, seq_length: 65536, vocab_size: 32000, "
     "rotary_base: 1000000, tie_word_embeddings: false}",
     "{num_experts: 8, router_topk: 2}"},
    {"mixtral-8x7b",
     "{family: llama, num_layers: 32, hidden_size: 4096, num_attention_heads: 32, "
     "num_query_groups: 8, ffn_hidden_size: 14336, seq_length: 32768, vocab_size: 32000, "
     "rotary_base: 1000000, tie_word_embeddings: false}",
     "{num_experts: 8, router_topk: 2}"},
    {"olmo2-7b",
     "{family: llama, num_layers: 32, hidden_size: 4096, num_attention_heads: 32, "
     "ffn_hidden_size: 11008, seq_length: 4096, vocab_size: 100352, rotary_base: 500000, "
     "norm_epsilon: 1.0e-6, norm_placement: post, qk_layernorm: true, qk_layernorm_form: whole, "
     "tie_word_embeddings: false}"},
    {"phi3-mini",
     "{family: llama, num_layers: 32, hidden_size: 3072, num_attention_heads: 32, "
     "ffn_hidden_size: 8192, seq_length: 4096, vocab_size: 32064, sliding_window: 2047, "
     "tie_word_embeddings: false}"},
    {"phi4",
     "{family: llama, num_layers: 40, hidden_size: 5120, num_attention_heads: 40, "
     "num_query_groups: 10, ffn_hidden_size: 17920, seq_length: 16384, vocab_size: 100352, "
     "rotary_base: 250000, tie_word_embeddings: false}"},
    {"qwen2-0.5b",
     "{family: llama, num_layers: 24, hidden_size: 896, num_attention_heads: 14, "
     "num_query_groups: 2, ffn_hidden_size: 4864, seq_length: 32768, "
     "vocab_size: 151936, rotary_base: 1000000, norm_epsilon: 1.0e-6, "
     "add_qkv_bias: true, tie_word_embeddings: true}"},
    {"qwen2-7b",
     "{family: llama, num_layers: 28, hidden_size: 3584, num_attention_heads: 28, "
     "num_query_groups: 4, ffn_hidden_size: 18944, seq_length: 32768, "
     "vocab_size: 152064, rotary_base: 1000000, norm_epsilon: 1.0e-6, "
     "add_qkv_bias: true, tie_word_embeddings: false}"},
    {"qwen2.5-1.5b",
     "{family: llama, num_layers: 28, hidden_size: 1536, num_attention_heads: 12, "
     "num_query_groups: 2, ffn_hidden_size: 8960, seq_length: 32768, "
     "vocab_size: 151936, rotary_base: 1000000, norm_epsilon: 1.0e-6, "
     "add_qkv_bias: true, tie_word_embeddings: true}"},
    {"qwen2.5-3b",
     "{family: llama, num_layers: 36, hidden_size: 2048, num_attention_heads: 16, "
     "num_query_groups: 2, ffn_hidden_size: 11008, seq_length: 32768, "
     "vocab_size: 151936, rotary_base: 1000000, norm_epsilon: 1.0e-6, "
     "add_qkv_bias: true, tie_word_embeddings: true}"},
    {"qwen3-0.6b",
     "{family: llama, num_layers: 28, hidden_size: 1024, num_attention_heads: 16, "
     "num_query_groups: 8, kv_channels: 128, ffn_hidden_size: 3072, "
     "seq_length: 32768, vocab_size: 151936, rotary_base: 1000000, "
     "norm_epsilon: 1.0e-6, qk_layernorm: true, tie_word_embeddings: true}"},
    {"qwen3-30b-a3b",
     "{family: llama, num_layers: 48, hidden_size: 2048, num_attention_heads: 32, "
     "num_query_groups: 4, kv_channels: 128, ffn_hidden_size: 6144, seq_length: 40960, "
     "vocab_size: 151936, rotary_base: 1000000, norm_epsilon: 1.0e-6, qk_layernorm: true, "
     "tie_word_embeddings: false}",
     "{num_experts: 128, router_topk: 8, ffn_hidden_size: 768}"},
    {"qwen3-8b",
     "{family: llama, num_layers: 36, hidden_size: 4096, num_attention_heads: 32, "
     "num_query_groups: 8, kv_channels: 128, ffn_hidden_size: 12288, "
     "seq_length: 32768, vocab_size: 151936, rotary_base: 1000000, "
     "norm_epsilon: 1.0e-6, qk_layernorm: true, tie_word_embeddings: false}"},
    {"seed-oss-36b",
     "{family: llama, num_layers: 64, hidden_size: 5120, num_attention_heads: 80, "
     "num_query_groups: 8, kv_channels: 128, ffn_hidden_size: 27648, seq_length: 524288, "
     "vocab_size: 155136, rotary_base: 10000000, norm_epsilon: 1.0e-6, add_qkv_bias: true, "
     "tie_word_embeddings: false}"},
    {"smollm3-3b",
     "{family: llama, num_layers: 36, hidden_size: 2048, num_attention_heads: 16, "
     "num_query_groups: 4, ffn_hidden_size: 11008, seq_length: 65536, vocab_size: 128256, "
     "layers: [{name: rope, use_rope: true}, {name: no_rope, use_rope: false}], "
     "layer_pattern: \"rope*3, no_rope\", rotary_base: 5000000, norm_epsilon: 1.0e-6, "
     "tie_word_embeddings: true}"},
    {"tinyllama-1.1b",
     "{family: llama, num_layers: 22, hidden_size: 2048, "
     "num_attention_heads: 32, num_query_groups: 4, ffn_hidden_size: 5632, "
     "seq_length: 2048, vocab_size: 32000, tie_word_embeddings: false}"},
};

}  // namespace

std::span<const Preset> presets() { return table; }

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : table) names.emplace_back(preset.name);
  return names;
}

}  // namespace trainctl
