#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "config/mindformers/file_parts.h"
#include "config/schema/values.h"
#include "config/yaml/numbers.h"

namespace trainctl {
namespace {

using Kind = YamlNode::Kind;

/// A model that MindFormers knows by one of three names, and the properties that the names imply.
struct NamedModel {
  std::string_view name;  // value of `model_type`
  std::string_view kind;  // value of "type" in older files; "" if there is none
  std::string_view architecture;
  std::string_view family;
  std::string_view implied = {};  // key of ours that is set to true
  bool has_experts = false;
};

constexpr NamedModel named_models[] = {
    {"gpt2", "GPT2Config", "GPT2LMHeadModel", "gpt2"},
    {"llama", "LlamaConfig", "LlamaForCausalLM", "llama"},
    {"mistral", "MistralConfig", "MistralForCausalLM", "llama"},
    {"mixtral", "MixtralConfig", "MixtralForCausalLM", "llama", "", true},
    {"qwen2", "Qwen2Config", "Qwen2ForCausalLM", "llama", "model.add_qkv_bias"},
    {"qwen2_moe", "Qwen2MoeConfig", "Qwen2MoeForCausalLM", "llama", "model.add_qkv_bias", true},
    {"qwen3", "Qwen3Config", "Qwen3ForCausalLM", "llama", "model.qk_layernorm"},
    {"qwen3_moe", "Qwen3MoeConfig", "Qwen3MoeForCausalLM", "llama", "model.qk_layernorm", true},
};

const NamedModel* find_model(const std::string& key, const std::string& name) {
  for (const NamedModel& row : named_models) {
    const std::string_view theirs = key == "type"            ? row.kind
                                    : key == "architectures" ? row.architecture
                                                             : row.name;
    if (theirs == name || row.name == name) return &row;
  }
  return nullptr;
}

/// A key whose value indicates the family of the layers.
struct Mark {
  std::string_view key;
  std::string_view words;  // "value=family|..."; "*" matches every number
  std::string_view subject;
};

constexpr Mark marks[] = {
    {"hidden_act", "silu=llama|swish=llama|swiglu=llama|fusedswiglu=llama|gelu=gpt2|gelu_new=gpt2",
     "activation"},
    {"gated_linear_unit", "true=llama|false=gpt2", "activation"},
    {"normalization", "RMSNorm=llama|FusedRMSNorm=llama|LayerNorm=gpt2|FusedLayerNorm=gpt2",
     "norm"},
    {"rms_norm_eps", "*=llama", "norm"},
    {"position_embedding_type", "rope=llama|learned_absolute=gpt2", "positions"},
    {"theta", "*=llama", "positions"},
    {"rope_theta", "*=llama", "positions"},
    {"rotary_base", "*=llama", "positions"},
};

/// Whether the mark is a word; otherwise it is a number that is also a value of ours.
bool is_word(const Mark& mark) { return !mark.words.starts_with("*"); }

std::string family_in(const Mark& mark, const std::string& value) {
  for (const std::string& pair : split_words(mark.words)) {
    const std::size_t equals = pair.find('=');
    const std::string word = pair.substr(0, equals);
    if (word == "*" || word == value) return pair.substr(equals + 1);
  }
  return "";
}

class FamilyReader {
 public:
  explicit FamilyReader(MindformersFile& file) : file_(file) {}

  void run() {
    const YamlEntry* given = file_.find("model.model_config");
    if (given == nullptr) return;
    const Span where = given->key_span;
    read_names();
    read_marks();
    if (refused_) return;
    std::string family =
        model_ != nullptr ? std::string(model_->family) : file_.text("model.family");
    if (family.empty()) family = family_of_marks(where);
    if (family.empty()) return;
    for (const Said& said : said_) {
      if (said.family != family) return contradict(said, family);
    }
    file_.give("model.family", family, name_span_.line > 0 ? name_span_ : where);
    if (model_ != nullptr) check_experts(where);
  }

  std::string implied() const { return model_ == nullptr ? "" : std::string(model_->implied); }

 private:
  struct Said {
    std::string key;
    std::string value;
    std::string family;
    Span span;
  };

  /// Reads type, model_type and architectures, which must agree.
  void read_names() {
    for (const char* key : {"type", "model_type", "architectures"}) {
      const std::string path = file_model + key;
      const YamlEntry* found = file_.find(path);
      if (found == nullptr) continue;
      const YamlEntry entry = *found;
      const YamlNode node = file_.tree.node(entry.value);
      const bool is_list = node.kind == Kind::sequence && node.items.size() == 1;
      const std::string name = is_list ? file_.tree.node(node.items[0]).scalar : node.scalar;
      file_.remove(path);
      if (node.kind == Kind::null || (name.empty() && node.kind == Kind::scalar)) continue;
      const NamedModel* row = find_model(key, name);
      if (row == nullptr) {
        refused_ = true;
        file_.refuse(path, "the model " + shown(name) + " is not built; built are " + names(),
                     "see docs/huggingface.md for these models", entry.key_span);
      } else if (model_ != nullptr && model_ != row) {
        refused_ = true;
        file_.refuse(
            path,
            formatted("{} contradicts {}, which the file also names", shown(name), model_->name),
            "remove one of the two", entry.key_span);
      } else {
        model_ = row;
        name_span_ = entry.key_span;
        file_.spellings["model.family"] = path;
      }
    }
  }

  static std::string names() {
    std::vector<std::string> names;
    for (const NamedModel& row : named_models) names.emplace_back(row.name);
    return listed(names, " and ");
  }

  void read_marks() {
    for (const Mark& mark : marks) {
      const std::string path = file_model + std::string(mark.key);
      const YamlEntry* found = file_.find(path);
      if (found == nullptr) continue;
      const YamlEntry entry = *found;
      const YamlNode node = file_.tree.node(entry.value);
      if (is_word(mark)) file_.remove(path);
      if (node.kind == Kind::null) continue;
      const std::string value = plain_word(node.scalar);
      const std::string family = family_in(mark, value);
      if (family.empty()) {
        refused_ = true;
        file_.refuse(path, formatted("{} as {} is not built", shown(value), mark.key),
                     "gpt2 has learned positions, LayerNorm and GELU; llama has RoPE, RMSNorm and "
                     "SwiGLU",
                     entry.key_span);
        continue;
      }
      said_.push_back({path, value, family, entry.key_span});
      subjects_[family == "llama" ? 0 : 1] |= subject_bit(mark.subject);
    }
  }

  static unsigned subject_bit(std::string_view subject) {
    return subject == "norm" ? 1U : subject == "activation" ? 2U : 4U;
  }

  /// A model without a name needs its norm and one more subject, and none of the other family.
  std::string family_of_marks(const Span& where) {
    for (const int which : {0, 1}) {
      const bool clear = (subjects_[which] & 1U) != 0 && (subjects_[which] & 6U) != 0;
      if (clear && subjects_[1 - which] == 0) return which == 0 ? "llama" : "gpt2";
    }
    const bool has_preset = file_.has("model.preset") || file_.has("model.from");
    if (has_preset) return "";
    const std::string heard = joined(said_, ", ", [](const Said& said) {
      return said.key.substr(file_model.size()) + ": " + said.value;
    });
    file_.refuse("model.model_config",
                 "nothing says which model this is" +
                     (heard.empty() ? "" : "; " + shown(heard) + " alone does not decide"),
                 "write model.family: llama (RoPE, RMSNorm, SwiGLU) or gpt2 (learned positions, "
                 "LayerNorm, GELU)",
                 where);
    return "";
  }

  void contradict(const Said& said, const std::string& family) {
    const std::string what =
        "the " + family + " family has " +
        (family == "llama" ? "RoPE, RMSNorm and SwiGLU" : "learned positions, LayerNorm and GELU");
    file_.refuse(said.key,
                 said.key.substr(file_model.size()) + ": " + shown(said.value) +
                     " is of another model: " + what,
                 "remove one of the two", said.span);
  }

  void check_experts(const Span& where) {
    constexpr std::string_view counts[] = {"model.model_config.num_experts",
                                           "model.model_config.n_routed_experts",
                                           "model.model_config.num_moe_experts",
                                           "model.model_config.num_local_experts",
                                           "model.model_config.expert_num",
                                           "moe_config.expert_num",
                                           "moe_config.num_experts",
                                           "moe.num_experts"};
    const bool has = std::ranges::any_of(
        counts, [&](std::string_view path) { return file_.count(path, 1).value_or(1) > 1; });
    if (model_->has_experts && !has) {
      file_.refuse("model.model_config",
                   formatted("{} has experts, but the file does not say how many", model_->name),
                   "write num_experts", where);
    } else if (!model_->has_experts && has && model_->name.starts_with("qwen")) {
      file_.refuse("model.model_config",
                   formatted("{} has no experts, but the file gives some", model_->name),
                   formatted("write model_type: {}_moe", model_->name), where);
    }
  }

  MindformersFile& file_;
  const NamedModel* model_ = nullptr;
  Span name_span_{0, 0, 0, 0};
  std::vector<Said> said_;
  unsigned subjects_[2] = {0, 0};  // by llama, gpt2; bits: norm, activation, positions
  bool refused_ = false;
};

}  // namespace

std::string name_family(MindformersFile& file) {
  FamilyReader reader(file);
  reader.run();
  return reader.implied();
}

namespace {

using Kind = YamlNode::Kind;

/// Removes a key from the model's section and returns its text; "" if it is absent.
std::string take(MindformersFile& file, const char* key) {
  std::string text = plain_word(file.text(file_model + key));
  file.remove(file_model + key);
  return text;
}

/// Computes the MLP's width by the rule of LlamaConfig for a missing width (LlamaFeedForward).
void derive_width(MindformersFile& file) {
  const YamlEntry* found = file.find(file_model + "ffn_dim_multiplier");
  if (found == nullptr) return;
  const Span where = found->key_span;
  const std::string given = take(file, "ffn_dim_multiplier");
  if (given.empty() || given == "null") return;
  if (file.has("model.ffn_hidden_size")) {
    return file.ignore(file_model + "ffn_dim_multiplier", "intermediate_size says it", where);
  }
  double factor = 0;
  const std::int64_t hidden = file.count("model.hidden_size", 0).value_or(0);
  const std::int64_t multiple = file.count(file_model + "multiple_of", 256).value_or(256);
  if (parse_number(given, factor) || hidden == 0 || !(factor > 0) || factor > 100) {
    return file.refuse(file_model + "ffn_dim_multiplier", "the width of the MLP cannot be computed",
                       "write intermediate_size", where);
  }
  const auto scaled = static_cast<std::int64_t>((factor + 0.01) * 4 * static_cast<double>(hidden));
  const std::int64_t width = 2 * scaled / 3;
  file.remove(file_model + "multiple_of");
  file.give("model.ffn_hidden_size", std::to_string((width + multiple - 1) / multiple * multiple),
            where);
}

/// Converts extend_method: LLAMA3 with the map scaling_factor.
void derive_rope(MindformersFile& file) {
  const YamlEntry* found = file.find(file_model + "extend_method");
  const YamlEntry* factor = file.find(file_model + "scaling_factor");
  const Span where = found != nullptr    ? found->key_span
                     : factor != nullptr ? factor->key_span
                                         : Span{};
  const int scaling = factor == nullptr ? -1 : factor->value;
  const std::string method = take(file, "extend_method");
  file.remove(file_model + "scaling_factor");
  const bool is_map = scaling >= 0 && file.tree.node(scaling).kind == Kind::map;
  if (method == "LLAMA3" && is_map) {
    for (const YamlEntry& entry : std::vector<YamlEntry>(file.tree.node(scaling).entries)) {
      file.put("model.rope_scaling." + entry.key, entry.key_span, entry.value);
    }
    return;
  }
  double one = 1;
  const bool is_one =
      scaling < 0 || (!is_map && !parse_number(file.tree.node(scaling).scalar, one) && one == 1);
  const bool is_none = method.empty() || method == "None" || method == "none";
  if (is_none && (is_one || scaling < 0)) return;
  file.refuse(file_model + (is_none ? "scaling_factor" : "extend_method"),
              "RoPE extended by " + shown(is_none ? "a scaling_factor" : method) + " is not built",
              "write extend_method: LLAMA3 with its scaling_factor, or None", where);
}

/// Converts shared experts to one MLP that is as wide as all of them together.
void derive_shared_experts(MindformersFile& file, const char* key) {
  const YamlEntry* found = file.find(file_model + key);
  if (found == nullptr) return;
  const Span where = found->key_span;
  const std::int64_t count =
      file.text(file_model + key) == "0" ? 0 : file.count(file_model + key, 0).value_or(0);
  file.remove(file_model + key);
  if (count == 0 || file.has("moe.shared_expert_intermediate_size")) return;
  const std::int64_t width =
      file.count("moe.ffn_hidden_size", file.count("model.ffn_hidden_size", 0).value_or(0))
          .value_or(0);
  if (width == 0) {
    return file.refuse(file_model + key, "the width of the shared experts cannot be computed",
                       "write moe_shared_expert_intermediate_size", where);
  }
  file.give("moe.shared_expert_intermediate_size", std::to_string(count * width), where);
}

/// Sets the weights of the chosen experts: p itself, or p divided by the sum over the chosen
/// experts, which is the softmax over their logits.
void derive_router_weights(MindformersFile& file) {
  const YamlEntry* norm = file.find(file_model + "norm_topk_prob");
  const YamlEntry* before = file.find(file_model + "moe_router_pre_softmax");
  if (norm == nullptr && before == nullptr) return;
  const Span where = norm != nullptr ? norm->key_span : before->key_span;
  const std::string normed = take(file, "norm_topk_prob");
  const std::string pre_softmax = take(file, "moe_router_pre_softmax");
  if (!file.has("moe.num_experts")) return;
  if (file.text("moe.router_score_function") == "sigmoid") {
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

/// Sets the loss that balances the experts, and its group. Without a factor there is no loss.
void derive_balance(MindformersFile& file) {
  const YamlEntry* experts = file.find("moe.num_experts");
  const Span at = experts == nullptr ? Span{} : experts->key_span;
  for (const char* key : {"moe_aux_loss_coeff", "router_aux_loss_coef", "aux_loss_factor"}) {
    const YamlEntry* found = file.find(file_model + key);
    if (found == nullptr) continue;
    const Span where = found->key_span;
    double value = 0;
    const std::string text = take(file, key);
    const bool is_number = !parse_number(text, value);
    if (is_number && value == 0) {
      file.give("moe.router_load_balancing_type", "none", where);
    } else if (file.has("moe.aux_loss_factor") && file.text("moe.aux_loss_factor") != text) {
      file.refuse(file_model + key,
                  shown(text) + " contradicts another factor of this loss, " +
                      shown(file.text("moe.aux_loss_factor")),
                  "remove one of the two", where);
    } else {
      file.give("moe.aux_loss_factor", text, where);
    }
  }
  if (experts != nullptr && !file.has("moe.aux_loss_factor")) {
    file.give("moe.router_load_balancing_type", "none", at);
  }
  const YamlEntry* found = file.find(file_model + "moe_router_load_balancing_type");
  if (found == nullptr) return;
  const Span where = found->key_span;
  const std::string type = take(file, "moe_router_load_balancing_type");
  if (file.text("moe.router_load_balancing_type") == "none" || type == "seq_aux_loss") return;
  if (type == "none") return file.give("moe.router_load_balancing_type", "none", where);
  if (type == "aux_loss") return file.give("moe.expert_group", "micro_batch", where);
  file.refuse(file_model + "moe_router_load_balancing_type",
              "a balance loss of the kind " + shown(type) + " is not built",
              "write seq_aux_loss, whose groups are sequences, or none", where);
}

/// Sets which tokens a full expert drops; without a capacity it drops none.
void derive_overflow(MindformersFile& file) {
  const YamlEntry* found = file.find(file_model + "moe_token_drop_policy");
  if (found == nullptr) return;
  const Span where = found->key_span;
  const std::string policy = take(file, "moe_token_drop_policy");
  if (!file.has("moe.capacity_factor") || policy.empty()) return;
  file.give("moe.overflow", policy == "probs" ? "probability" : policy, where);
}

/// Requires the number of experts per token, which has no default.
void check_topk(MindformersFile& file) {
  const YamlEntry* experts = file.find("moe.num_experts");
  if (experts == nullptr || file.has("moe.router_topk")) return;
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

namespace {

using Kind = YamlNode::Kind;

constexpr const char* llama_factory = "optim_config";

bool is_triple(const YamlTree& tree, int node) {
  const YamlNode& list = tree.node(node);
  return list.kind == Kind::sequence && list.items.size() == 3 &&
         std::ranges::all_of(list.items,
                             [&](int one) { return tree.node(one).kind == Kind::scalar; });
}

/// The triples of [[[a, b, c], count], ...], each repeated `count` times; empty for a list of
/// another form.
std::vector<int> repeated_triples(const YamlTree& tree, const YamlNode& list) {
  std::vector<int> triples;
  for (const int item : list.items) {
    const YamlNode& pair = tree.node(item);
    std::int64_t count = 0;
    const bool is_pair = pair.kind == Kind::sequence && pair.items.size() == 2 &&
                         is_triple(tree, pair.items[0]) &&
                         !parse_number(tree.node(pair.items[1]).scalar, count);
    if (!is_pair || count < 1 || count > 100) return {};
    triples.insert(triples.end(), static_cast<std::size_t>(count), pair.items[0]);
  }
  return triples;
}

}  // namespace

MuonOfFile::MuonOfFile(MindformersFile& file, bool is_mindformers) : file_(file) {
  if (file_.tree.node(file_.root).kind != Kind::map) return;
  if (is_mindformers && file_.is_map("optimizer") && file_.text("optimizer.type") == "Muon") {
    take_mindformers();
  } else if (file_.is_map(llama_factory) && !file_.has("optimizer") &&
             file_.text("optim_config.name") == "muon") {
    take_llama_factory();
  }
}

void MuonOfFile::move(const std::string& from, const char* to) {
  const YamlEntry* found = file_.find(from);
  if (found == nullptr) return;
  const YamlEntry entry = *found;
  file_.remove(from);
  file_.put(to, entry.key_span, entry.value);
  file_.spellings[to] = from;
}

void MuonOfFile::give(const char* to, const char* value) { file_.give(to, value, where_); }

void MuonOfFile::move_betas(const std::string& from, const char* first, const char* second) {
  const YamlEntry* found = file_.find(from);
  if (found == nullptr) {
    give("optimizer.beta1", first);
    return give("optimizer.beta2", second);
  }
  const YamlEntry entry = *found;
  const YamlNode list = file_.tree.node(entry.value);
  file_.remove(from);
  if (list.kind != Kind::sequence || list.items.size() != 2) {
    return file_.refuse(from, "expected a list of two numbers", "write [0.9, 0.95], for example",
                        entry.key_span);
  }
  file_.put("optimizer.beta1", entry.key_span, list.items[0]);
  file_.put("optimizer.beta2", entry.key_span, list.items[1]);
}

/// Sets one triple, which all ns_steps use, or a list with a number of repetitions for each triple.
void MuonOfFile::put_coefficients(const std::string& from) {
  YamlTree& tree = file_.tree;
  const YamlEntry* found = file_.find(from);
  if (found == nullptr) return give("optimizer.muon.coefficients", "simple");
  const YamlEntry entry = *found;
  const YamlNode list = tree.node(entry.value);
  file_.remove(from);
  std::vector<int> triples;
  if (is_triple(tree, entry.value)) {
    triples = {entry.value};
  } else if (list.kind == Kind::sequence) {
    triples = repeated_triples(tree, list);
  }
  if (triples.empty()) {
    return file_.refuse(from, "expected [a, b, c] or [[[a, b, c], count], ...]",
                        "write the triples as optimizer.muon.coefficients", entry.key_span);
  }
  const YamlEntry* steps = file_.find("optimizer.muon.steps");
  if (!is_triple(tree, entry.value) && steps != nullptr) {
    if (file_.spellings.contains("optimizer.muon.steps")) {
      file_.ignore("optimizer.ns_steps", "ns_coefficients says how many steps there are",
                   steps->key_span);
    }
    file_.remove("optimizer.muon.steps");
  }
  file_.put("optimizer.muon.coefficients", entry.key_span,
            tree.add_list(std::move(triples), list.span));
  file_.spellings["optimizer.muon.coefficients"] = from;
}

/// Keeps the threshold, whose name is ours, only if clipping is on.
void MuonOfFile::settle_clipping() {
  if (file_.flag("optimizer.qk_clip_enabled", false)) {
    give("optimizer.qk_clip_threshold", "100");
  } else if (const YamlEntry* threshold = file_.find("optimizer.qk_clip_threshold")) {
    file_.ignore("optimizer.qk_clip_threshold", "it counts only with qk_clip_enabled: True",
                 threshold->key_span);
    file_.remove("optimizer.qk_clip_threshold");
  }
  file_.remove("optimizer.qk_clip_enabled");
}

void MuonOfFile::take_mindformers() {
  found_ = true;
  where_ = file_.find("optimizer.type")->key_span;
  file_.put("optimizer.type", where_, file_.tree.add_scalar("muon", where_));
  move("optimizer.momentum", "optimizer.muon.momentum");
  move("optimizer.nesterov", "optimizer.muon.nesterov");
  move("optimizer.ns_steps", "optimizer.muon.steps");
  move("optimizer.matched_adamw_rms", "optimizer.muon.scale_factor");
  move("optimizer.adamw_eps", "optimizer.eps");
  move_betas("optimizer.adamw_betas", "0.95", "0.95");
  give("optimizer.muon.scale", "spectral");
  give("optimizer.muon.scale_factor", "0.2");
  give("optimizer.muon.ns_dtype", "bf16");
  give("optimizer.muon.steps", "5");
  put_coefficients("optimizer.ns_coefficients");
  settle_clipping();
  if (const YamlEntry* fused = file_.find("optimizer.use_fused_adamw")) {
    file_.ignore("optimizer.use_fused_adamw", "it changes the speed alone", fused->key_span);
    file_.remove("optimizer.use_fused_adamw");
  }
  if (const YamlEntry* swap = file_.find("optimizer.swap")) {
    if (file_.flag("optimizer.swap", false)) {
      file_.refuse("optimizer.swap", "moments on the host are not built", "write false",
                   swap->key_span);
    }
    file_.remove("optimizer.swap");
  }
  if (const YamlEntry* included = file_.find("optimizer.adamw_include")) {
    const YamlEntry entry = *included;
    std::vector<std::string> names;
    for (const int item : file_.tree.node(entry.value).items) {
      names.push_back(file_.tree.node(item).scalar);
    }
    file_.remove("optimizer.adamw_include");
    if (names != std::vector<std::string>{"*word_embeddings*", "*output_layer*"}) {
      file_.refuse("optimizer.adamw_include", "its patterns are of other names of parameters",
                   "write entries of optimizer.groups with type: adamw; `trainctl plan` lists the "
                   "names",
                   entry.key_span);
    }
  }
  file_.ignore(
      "optimizer.type",
      "MindFormers takes the parts of latent attention apart (mla_parts); models here have "
      "none",
      where_);
}

void MuonOfFile::take_llama_factory() {
  found_ = true;
  decays_all_ = true;
  where_ = file_.find("optim_config.name")->key_span;
  file_.move("optim_config.name", "optimizer.type", "muon");
  move("optim_config.wd", "optimizer.weight_decay");
  move("optim_config.momentum", "optimizer.muon.momentum");
  move("optim_config.nesterov", "optimizer.muon.nesterov");
  move("optim_config.ns_steps", "optimizer.muon.steps");
  move("optim_config.adamw_eps", "optimizer.eps");
  give("optimizer.weight_decay", "0.1");
  move_betas("optim_config.adamw_betas", "0.9", "0.95");
  give("optimizer.muon.coefficients", "simple");
  give("optimizer.muon.ns_dtype", "bf16");
  if (file_.tree.node(file_.find(llama_factory)->value).entries.empty())
    file_.remove(llama_factory);
}

void MuonOfFile::give_groups() {
  if (!found_ || file_.has("optimizer.groups")) return;
  YamlTree& tree = file_.tree;
  const auto entry_of = [&](const std::vector<const char*>& patterns, const char* key,
                            const char* value) {
    std::vector<int> list;
    for (const char* pattern : patterns) {
      list.push_back(file_.tree.add_scalar(pattern, where_));
      tree.node(list.back()).quoted = true;
    }
    const int patterns_node = tree.add_list(std::move(list), where_);
    const int value_node = tree.add_scalar(value, where_);
    return tree.add_map({{"match", where_, patterns_node}, {key, where_, value_node}}, where_);
  };
  std::vector<const char*> matrices;
  if (!decays_all_ && file_.text("model.family") == "gpt2") {
    matrices.push_back("embedding.position.weight");
  }
  if (file_.has("moe.num_experts")) matrices.push_back("*.router.weight");
  if (file_.flag("moe.shared_expert_gate", false)) matrices.push_back("*.shared_gate.weight");
  std::vector<int> groups;
  if (!matrices.empty()) groups.push_back(entry_of(matrices, "type", "muon"));
  if (decays_all_) groups.push_back(entry_of({"*"}, "wd_mult", "1"));
  if (!groups.empty()) file_.put("optimizer.groups", where_, tree.add_list(groups, where_));
}

}  // namespace trainctl
