#include "config/mindformers/model_of_file.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <vector>

#include "config/schema/values.h"
#include "config/yaml/numbers.h"

namespace trainctl {
namespace {

using Kind = YamlNode::Kind;

/// Takes a key of the model's section out and returns its text; "" where it is absent.
std::string take(TreeEditor& edit, const char* key) {
  std::string text = plain_word(edit.text(file_model + key));
  edit.remove(file_model + key);
  return text;
}

/// LlamaConfig's rule for a width that is not given (LlamaFeedForward).
void derive_width(MindformersFile& file) {
  TreeEditor& edit = file.edit;
  const YamlEntry* found = edit.find(file_model + "ffn_dim_multiplier");
  if (found == nullptr) return;
  const Span where = found->key_span;
  const std::string given = take(edit, "ffn_dim_multiplier");
  if (given.empty() || given == "null") return;
  if (edit.has("model.ffn_hidden_size")) {
    return file.ignore(file_model + "ffn_dim_multiplier", "intermediate_size says it", where);
  }
  double factor = 0;
  const std::int64_t hidden = edit.count("model.hidden_size", 0).value_or(0);
  const std::int64_t multiple = edit.count(file_model + "multiple_of", 256).value_or(256);
  if (parse_number(given, factor) || hidden == 0 || !(factor > 0) || factor > 100) {
    return file.refuse(file_model + "ffn_dim_multiplier", "the width of the MLP cannot be computed",
                       "write intermediate_size", where);
  }
  const auto scaled = static_cast<std::int64_t>((factor + 0.01) * 4 * static_cast<double>(hidden));
  const std::int64_t width = 2 * scaled / 3;
  edit.remove(file_model + "multiple_of");
  file.give("model.ffn_hidden_size", std::to_string((width + multiple - 1) / multiple * multiple),
            where);
}

/// extend_method: LLAMA3 with the map scaling_factor.
void derive_rope(MindformersFile& file) {
  TreeEditor& edit = file.edit;
  const YamlEntry* found = edit.find(file_model + "extend_method");
  const YamlEntry* factor = edit.find(file_model + "scaling_factor");
  const Span where = found != nullptr    ? found->key_span
                     : factor != nullptr ? factor->key_span
                                         : Span{};
  const int scaling = factor == nullptr ? -1 : factor->value;
  const std::string method = take(edit, "extend_method");
  edit.remove(file_model + "scaling_factor");
  const bool is_map = scaling >= 0 && edit.tree().node(scaling).kind == Kind::map;
  if (method == "LLAMA3" && is_map) {
    for (const YamlEntry& entry : std::vector<YamlEntry>(edit.tree().node(scaling).entries)) {
      edit.put("model.rope_scaling." + entry.key, entry.key_span, entry.value);
    }
    return;
  }
  double one = 1;
  const bool is_one =
      scaling < 0 || (!is_map && !parse_number(edit.tree().node(scaling).scalar, one) && one == 1);
  const bool is_none = method.empty() || method == "None" || method == "none";
  if (is_none && (is_one || scaling < 0)) return;
  file.refuse(file_model + (is_none ? "scaling_factor" : "extend_method"),
              "RoPE extended by " + shown(is_none ? "a scaling_factor" : method) + " is not built",
              "write extend_method: LLAMA3 with its scaling_factor, or None", where);
}

/// Shared experts are one MLP as wide as all of them.
void derive_shared_experts(MindformersFile& file, const char* key) {
  TreeEditor& edit = file.edit;
  const YamlEntry* found = edit.find(file_model + key);
  if (found == nullptr) return;
  const Span where = found->key_span;
  const std::int64_t count =
      edit.text(file_model + key) == "0" ? 0 : edit.count(file_model + key, 0).value_or(0);
  edit.remove(file_model + key);
  if (count == 0 || edit.has("moe.shared_expert_intermediate_size")) return;
  const std::int64_t width =
      edit.count("moe.ffn_hidden_size", edit.count("model.ffn_hidden_size", 0).value_or(0))
          .value_or(0);
  if (width == 0) {
    return file.refuse(file_model + key, "the width of the shared experts cannot be computed",
                       "write moe_shared_expert_intermediate_size", where);
  }
  file.give("moe.shared_expert_intermediate_size", std::to_string(count * width), where);
}

/// The weights of the chosen experts: p itself, or p over the sum of the chosen ones, which is the
/// softmax over their logits.
void derive_router_weights(MindformersFile& file) {
  TreeEditor& edit = file.edit;
  const YamlEntry* norm = edit.find(file_model + "norm_topk_prob");
  const YamlEntry* before = edit.find(file_model + "moe_router_pre_softmax");
  if (norm == nullptr && before == nullptr) return;
  const Span where = norm != nullptr ? norm->key_span : before->key_span;
  const std::string normed = take(edit, "norm_topk_prob");
  const std::string pre_softmax = take(edit, "moe_router_pre_softmax");
  if (!edit.has("moe.num_experts")) return;
  if (edit.text("moe.router_score_function") == "sigmoid") {
    if (normed == "false") {
      file.refuse(file_model + "norm_topk_prob",
                  "weights of sigmoid scores that are not divided by their sum are not built",
                  "write norm_topk_prob: true", where);
    }
    return;
  }
  const bool chosen = normed == "true" || pre_softmax == "false";
  file.give("moe.router_pre_softmax", chosen ? "false" : "true", where);
}

/// The loss that balances the experts, and its group. Without a factor there is none.
void derive_balance(MindformersFile& file) {
  TreeEditor& edit = file.edit;
  const YamlEntry* experts = edit.find("moe.num_experts");
  const Span at = experts == nullptr ? Span{} : experts->key_span;
  for (const char* key : {"moe_aux_loss_coeff", "router_aux_loss_coef", "aux_loss_factor"}) {
    const YamlEntry* found = edit.find(file_model + key);
    if (found == nullptr) continue;
    const Span where = found->key_span;
    double value = 0;
    const std::string text = take(edit, key);
    const bool is_number = !parse_number(text, value);
    if (is_number && value == 0) {
      file.give("moe.router_load_balancing_type", "none", where);
    } else if (edit.has("moe.aux_loss_factor") && edit.text("moe.aux_loss_factor") != text) {
      file.refuse(file_model + key,
                  shown(text) + " contradicts another factor of this loss, " +
                      shown(edit.text("moe.aux_loss_factor")),
                  "remove one of the two", where);
    } else {
      file.give("moe.aux_loss_factor", text, where);
    }
  }
  if (experts != nullptr && !edit.has("moe.aux_loss_factor")) {
    file.give("moe.router_load_balancing_type", "none", at);
  }
  const YamlEntry* found = edit.find(file_model + "moe_router_load_balancing_type");
  if (found == nullptr) return;
  const Span where = found->key_span;
  const std::string type = take(edit, "moe_router_load_balancing_type");
  if (edit.text("moe.router_load_balancing_type") == "none" || type == "seq_aux_loss") return;
  if (type == "none") return file.give("moe.router_load_balancing_type", "none", where);
  if (type == "aux_loss") return file.give("moe.expert_group", "micro_batch", where);
  file.refuse(file_model + "moe_router_load_balancing_type",
              "a balance loss of the kind " + shown(type) + " is not built",
              "write seq_aux_loss, whose groups are sequences, or none", where);
}

/// Which tokens a full expert drops; without a capacity it drops none.
void derive_overflow(MindformersFile& file) {
  TreeEditor& edit = file.edit;
  const YamlEntry* found = edit.find(file_model + "moe_token_drop_policy");
  if (found == nullptr) return;
  const Span where = found->key_span;
  const std::string policy = take(edit, "moe_token_drop_policy");
  if (!edit.has("moe.capacity_factor") || policy.empty()) return;
  file.give("moe.overflow", policy == "probs" ? "probability" : policy, where);
}

/// How many experts a token has is never a default.
void check_topk(MindformersFile& file) {
  const YamlEntry* experts = file.edit.find("moe.num_experts");
  if (experts == nullptr || file.edit.has("moe.router_topk")) return;
  file.refuse("model.model_config", "nothing says how many of the experts each token has",
              "write num_experts_per_tok", experts->key_span);
}

}  // namespace

void derive_model(MindformersFile& file) {
  derive_width(file);
  derive_rope(file);
  derive_shared_experts(file, "n_shared_experts");
  derive_shared_experts(file, "shared_expert_num");
  derive_router_weights(file);
  derive_balance(file);
  derive_overflow(file);
  check_topk(file);
}

}  // namespace trainctl
