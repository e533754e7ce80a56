// Experts in a config.json: Mixtral, Qwen2-MoE, Qwen3-MoE and dots1.
#include <algorithm>
#include <set>

#include "config/upstream/hugging_face_reader.h"

namespace trainctl {
namespace {

constexpr std::int64_t most_layers = 10'000;  // that num_layers may be
constexpr std::int64_t widest_experts = 1 << 22;

/// Either key; where both are there, they agree.
std::int64_t count_experts(HuggingFaceReader& reader, std::optional<std::int64_t> missing) {
  const char* old_key = "num_experts";
  const char* key = reader.has("n_routed_experts")    ? "n_routed_experts"
                    : reader.has("num_local_experts") ? "num_local_experts"
                    : reader.has(old_key) || missing  ? old_key
                                                      : "n_routed_experts";
  const std::int64_t count = reader.size_or(key, missing);
  if (reader.at(key) == 1) reader.problem(key, "a layer of experts has at least 2 here");
  if (reader.has(old_key) && reader.at(old_key) != reader.at(key)) {
    reader.problem(old_key, std::string(key) + " says otherwise");
  }
  return count;
}

/// Gives `first` and `every` if they are these layers, of which there is at least one.
bool give_layers(HuggingFaceReader& reader, const std::set<std::int64_t>& wanted,
                 std::int64_t layers) {
  const std::int64_t first = *wanted.begin();
  const std::int64_t second = wanted.size() > 1 ? *std::next(wanted.begin()) : first;
  for (const std::int64_t every : {std::int64_t{1}, second - first, first, layers}) {
    std::set<std::int64_t> found;
    for (std::int64_t i = first; every > 0 && i < layers; ++i) {
      if (i % every == 0) found.insert(i);
    }
    if (found != wanted) continue;
    reader.give_moe("first_dense_layers", first);
    reader.give_moe("layer_frequency", every);
    return true;
  }
  return false;
}

/// Layer i has experts if decoder_sparse_step divides i + 1, unless mlp_only_layers names it.
/// Returns them where no keys of section moe say it.
std::set<std::int64_t> read_qwen_layers(HuggingFaceReader& reader, std::int64_t layers) {
  if (layers > most_layers) return {};  // num_layers says so
  const std::int64_t step = reader.size("decoder_sparse_step", 1);
  const HuggingFaceJson& plain = reader.at("mlp_only_layers");
  if (!plain.is_null() && !plain.is_array()) {
    reader.problem("mlp_only_layers", "expected a list of layers");
    return {};
  }
  std::set<std::int64_t> wanted;
  for (std::int64_t i = 0; i < layers; ++i) {
    const bool is_plain = std::find(plain.begin(), plain.end(), i) != plain.end();
    if (!is_plain && (i + 1) % step == 0) wanted.insert(i);
  }
  if (wanted.empty()) reader.problem("mlp_only_layers", "no layer has experts");
  if (wanted.empty() || give_layers(reader, wanted, layers)) return {};
  return wanted;
}

/// Before a rule about a key that may be missing.
std::string said_by_default(const HuggingFaceReader& reader, const char* key, const char* value) {
  return reader.has(key) ? "" : std::string("that means ") + value + "; ";
}

/// DeepSeek-V3's router: sigmoid scores with a bias in the choice, and groups.
void read_dots_router(HuggingFaceReader& reader, std::int64_t topk) {
  const std::int64_t groups = reader.size("n_group", 1);
  const std::int64_t chosen = reader.size("topk_group", 1);
  const bool limited = chosen < groups;
  reader.give_moe("router_enable_expert_bias", true);
  reader.give_moe("router_num_groups", limited ? groups : 1);
  reader.give_moe("router_group_topk", limited ? chosen : 1);
  if (!reader.has("num_experts_per_tok")) return;  // which is a problem already
  if (limited && topk != 2 * chosen) {
    reader.problem(
        "topk_group",
        said_by_default(reader, "topk_group", "1") +
            "groups are compared there by their two best scores, here by num_experts_per_tok "
            "/ topk_group");
  }
  if (reader.flag("norm_topk_prob", false) != (topk > 1)) {
    reader.problem(
        "norm_topk_prob",
        said_by_default(reader, "norm_topk_prob", "false") +
            "with sigmoid scores, weights of several chosen experts add up to 1 here before "
            "they are scaled, and that of one is its score");
  }
}

void read_dots(HuggingFaceReader& reader, const HuggingFaceFamily& defaults, std::int64_t topk) {
  read_dots_router(reader, topk);
  const std::int64_t width =
      reader.size_or("moe_intermediate_size", defaults.moe_intermediate_size);
  const std::int64_t count = reader.size("n_shared_experts");
  if (count > widest_experts / width)
    reader.problem("n_shared_experts", "the shared experts are too wide");
  reader.give_moe("shared_expert_intermediate_size",
                  std::min(count, widest_experts) * std::min(width, widest_experts));
  const bool is_zero = reader.at("first_k_dense_replace") == 0;
  reader.give_moe("first_dense_layers", is_zero ? 0 : reader.size("first_k_dense_replace", 0));
  reader.give_moe("layer_frequency", std::int64_t{1});
}

void read_mixtral(HuggingFaceReader& reader) {
  reader.give_moe("first_dense_layers", std::int64_t{0});
  reader.give_moe("layer_frequency", std::int64_t{1});
  reader.only("router_jitter_noise", {0.0}, "noise on the router's input is not built");
}

}  // namespace

std::set<std::int64_t> read_hugging_face_experts(HuggingFaceReader& reader,
                                                 const HuggingFaceFamily& defaults,
                                                 std::int64_t layers) {
  const std::string_view type = defaults.type;
  const bool is_mixtral = type == "mixtral";
  const bool is_dots = type == "dots1";
  reader.give_moe("num_experts", count_experts(reader, defaults.experts));
  const std::int64_t topk = reader.size_or("num_experts_per_tok", defaults.num_experts_per_tok);
  reader.give_moe("router_topk", topk);
  reader.give_moe("ffn_hidden_size",
                  is_mixtral
                      ? reader.size_or("intermediate_size", defaults.sizes.intermediate_size)
                      : reader.size_or("moe_intermediate_size", defaults.moe_intermediate_size));
  reader.give_moe("router_score_function", std::string(is_dots ? "sigmoid" : "softmax"));
  reader.give_moe("router_topk_scaling_factor",
                  is_dots ? reader.number("routed_scaling_factor", 1.0) : 1.0);
  if (is_dots) {
    read_dots(reader, defaults, topk);
    return {};
  }
  reader.give_moe("router_pre_softmax", !is_mixtral && !reader.flag("norm_topk_prob", false));
  if (is_mixtral) {
    read_mixtral(reader);
    return {};
  }
  if (type == "qwen2_moe") {
    reader.give_moe("shared_expert_intermediate_size",
                    reader.size_or("shared_expert_intermediate_size",
                                   defaults.shared_expert_intermediate_size));
    reader.give_moe("shared_expert_gate", true);
  }
  return read_qwen_layers(reader, layers);
}

}  // namespace trainctl
