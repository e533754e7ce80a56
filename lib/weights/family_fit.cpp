#include "weights/family_fit.h"

#include <algorithm>
#include <cmath>

#include "config/schema/words.h"

namespace trainctl {

namespace {

/// Whether frequencies of this type depend on the context that they were made for.
bool has_original_context(RopeType type) {
  return type == RopeType::llama3 || type == RopeType::yarn || type == RopeType::longrope;
}

class Comparison {
 public:
  Comparison(const ModelShape& model, const HuggingFaceFamily& family)
      : model_(model), family_(family) {}

  std::vector<std::string> all() && {
    compare_biases();
    compare_mlp();
    compare_scales();
    compare_kinds();
    compare_attention();
    compare_windows();
    compare_rope();
    return std::move(found_);
  }

 private:
  void unless(bool fits, std::string what) {
    if (!fits) found_.push_back(std::move(what));
  }

  void compare_biases() {
    const HuggingFaceFamily::Biases& rule = family_.biases;
    const bool qkv = model_.qkv_bias;
    unless(qkv || !rule.always, "has biases of q, k and v");
    unless(!qkv || rule.always || !rule.key.empty(), "has no biases of q, k and v");
    const auto others = [&](bool has, bool by_key, bool by_own_key, const std::string& what) {
      if (by_key)
        return unless(has == qkv, "has biases of " + what + " as it has those of q, k and v");
      unless(!has || by_own_key, "has no biases of " + what);
    };
    others(model_.out_bias, rule.out, !rule.out_key.empty(), "the attention's output");
    others(model_.mlp_bias, rule.mlp, !rule.mlp_key.empty(), "the MLP");
  }

  void compare_mlp() {
    unless(model_.gated_mlp == family_.gated,
           family_.gated ? "has a gated MLP" : "has an MLP without a gate");
    unless(model_.gate_offset == 0 && model_.gate_limit == 0, "has a gated MLP without limits");
  }

  void compare_scales() {
    const bool free = family_.multipliers;
    unless(model_.zero_centered_norm == family_.zero_centered_norms,
           family_.zero_centered_norms ? "has norms around 0" : "has norms around 1");
    const double usual =
        family_.zero_centered_norms ? std::sqrt(static_cast<double>(model_.hidden)) : 1;
    unless(free || model_.embedding_multiplier == usual,
           family_.zero_centered_norms ? "multiplies the embedding by sqrt(hidden_size)"
                                       : "does not scale the embedding");
    unless(!family_.square_out || model_.q_features() == model_.hidden,
           "has heads of hidden_size / heads");
    unless(free || (model_.residual_multiplier == 1 && model_.logit_scale == 1),
           "does not scale branches and logits");
    unless(free || family_.query_pre_attn_scalar > 0 ||
               model_.softmax_scale == default_softmax_scale(model_.head_dim),
           "divides scores by sqrt(head size)");
    unless(family_.soft_caps || (model_.attention_cap == 0 && model_.logit_cap == 0),
           "has no soft caps");
  }

  void compare_kinds() {
    const LayerKind& first = model_.kind(0);
    const bool alike = std::ranges::all_of(model_.kinds, [&](const LayerKind& kind) {
      return kind.ffn == first.ffn && kind.kv_heads == first.kv_heads &&
             kind.qk_norm == first.qk_norm;
    });
    unless(alike, "has layers with MLPs of one width and equally many key heads");
    unless(first.qk_norm == family_.qk_norms,
           family_.qk_norms ? "has q/k norms" : "has no q/k norms");
    unless(!first.qk_norm || (model_.qk_norm_form == family_.qk_norm_form &&
                              model_.qk_norm_after_rope == family_.qk_norm_after_rope),
           "has other q/k norms");
    const bool bare = family_.optional_post_norms && model_.norm_placement == NormPlacement::pre;
    unless(bare || model_.norm_placement == family_.norm_placement,
           "has its norms in other places (norm_placement " +
               std::string(word_of(family_.norm_placement)) + ")");
  }

  void compare_attention() {
    unless(
        std::ranges::all_of(model_.kinds,
                            [&](const LayerKind& kind) { return kind.sinks == family_.sinks; }),
        family_.sinks ? "has a sink in the softmax of each head" : "has no sinks in its softmax");
    compare_temperature();
    unless(!model_.output_gate, "has no output gate of attention");
  }

  void compare_temperature() {
    if (model_.temperatures.empty()) return;
    if (family_.temperature.empty()) {
      return unless(false, "has queries that do not grow with their position");
    }
    const TemperatureConfig& form = model_.temperatures.front();
    const bool alike = std::ranges::all_of(
        model_.kinds, [](const LayerKind& kind) { return kind.temperature == 0; });
    unless(alike, "has queries that grow alike in all layers");
    unless(form.add == 0, "has queries that grow with their position, to which it adds nothing");
    const double floor =
        model_.ropes.empty() || !has_original_context(model_.ropes.front().type)
            ? std::floor(form.floor)
            : static_cast<double>(model_.ropes.front().scaling.original_max_position_embeddings);
    unless(form.floor == floor, "has queries whose floor is RoPE's original context");
  }

  void compare_windows() {
    const std::int64_t window = window_of(model_);
    const auto has = [&](const LayerKind& kind) { return kind.limits.window > 0; };
    bool one_window = true, chunks = false, as_rope = true;
    for (const LayerKind& kind : model_.kinds) {
      one_window = one_window && (!has(kind) || kind.limits.window == window);
      chunks = chunks || kind.limits.chunk > 0;
      as_rope = as_rope && has(kind) == (kind.rope < 0);
    }
    const bool all = std::ranges::all_of(model_.kinds, has);
    unless(!chunks, "has no chunks of attention");
    unless(one_window, "has windows of one length");
    if (window == 0) return;
    unless(family_.window != HuggingFaceWindow::none, "has no window");
    if (slides_everywhere(family_.window)) unless(all, "has its window in every layer");
    if (family_.window == HuggingFaceWindow::without_rope) {
      unless(as_rope, "has its window in the layers without RoPE");
    }
  }

  /// Kinds with a window, and those without, have the same RoPE each.
  bool ropes_go_with_windows() const {
    return std::ranges::all_of(model_.kinds, [&](const LayerKind& one) {
      return std::ranges::all_of(model_.kinds, [&](const LayerKind& other) {
        const bool alike = (one.limits.window > 0) == (other.limits.window > 0);
        return !alike || one.rope == other.rope;
      });
    });
  }

  /// All are one apart from their bases.
  bool ropes_differ_in_bases() const {
    return std::ranges::all_of(model_.ropes, [&](RopeForm rope) {
      rope.base = model_.ropes.front().base;
      return rope == model_.ropes.front();
    });
  }

  void compare_rope() {
    const bool everywhere =
        std::ranges::all_of(model_.kinds, [](const LayerKind& kind) { return kind.rope >= 0; });
    const bool windows = window_of(model_) > 0;
    const bool as_window = std::ranges::all_of(model_.kinds, [](const LayerKind& kind) {
      return (kind.rope >= 0) == (kind.limits.window > 0);
    });
    if (family_.turns_with_window) {
      unless(windows ? as_window : everywhere, "has RoPE in the layers with a window");
    } else {
      unless(everywhere || family_.no_rope_layer_interval > 0 || family_.theta_of_each_layer,
             "has RoPE in every layer");
    }
    if (family_.theta_of_each_layer) {
      unless(ropes_differ_in_bases(), "has RoPE that differs between layers only in its base");
    } else if (family_.scales_full_rope_only) {
      unless(ropes_go_with_windows(), "has RoPE that differs between windows and full attention");
    } else {
      unless(model_.ropes.size() <= 1, "has the same RoPE in all layers");
    }
    if (model_.ropes.empty()) return;
    const RopeForm& rope = model_.ropes.front();
    unless(rope.interleaved == family_.interleaved,
           family_.interleaved ? "turns pairs of neighbours" : "turns pairs of a head's halves");
    unless(rope.size == model_.head_dim || family_.partial_rotary, "turns whole heads");
    unless(rope.type != RopeType::alpha || family_.long_qk_names, "has no RoPE of type alpha");
  }

  const ModelShape& model_;
  const HuggingFaceFamily& family_;
  std::vector<std::string> found_;
};

}  // namespace

std::vector<std::string> differences(const ModelShape& model, const HuggingFaceFamily& family) {
  return Comparison(model, family).all();
}

const HuggingFaceFamily& nearest_family(const ModelShape& model) {
  const HuggingFaceFamily* nearest = nullptr;
  std::size_t fewest = 0;
  for (const HuggingFaceFamily& family : hugging_face_families()) {
    if (family.has_experts) continue;
    const std::size_t count = differences(model, family).size();
    if (nearest != nullptr && count >= fewest) continue;
    nearest = &family;
    fewest = count;
  }
  return *nearest;
}

std::int64_t window_of(const ModelShape& model) {
  for (const LayerKind& kind : model.kinds) {
    if (kind.limits.window > 0) return kind.limits.window;
  }
  return 0;
}

}  // namespace trainctl
