#include "config/mindformers/family_of_file.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <vector>

#include "config/schema/values.h"

namespace trainctl {
namespace {

using Kind = YamlNode::Kind;

/// A model that MindFormers knows by one of three names, and what the name says.
struct NamedModel {
  std::string_view name;  // of `model_type`
  std::string_view kind;  // "type" in older files, "" where there is none
  std::string_view architecture;
  std::string_view family;
  std::string_view implied = {};  // a key of ours that is true
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

/// What a value says about the layers: of which family they are, "" for neither.
struct Mark {
  std::string_view key;
  std::string_view words;  // "value=family|..."; "*": every value of a number
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

/// Of a mark that is a word of its own and not also a value of ours.
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
  explicit FamilyReader(MindformersFile& file) : file_(file), edit_(file.edit) {}

  void run() {
    const YamlEntry* given = edit_.find("model.model_config");
    if (given == nullptr) return;
    const Span where = given->key_span;
    read_names();
    read_marks();
    if (refused_) return;
    std::string family =
        model_ != nullptr ? std::string(model_->family) : edit_.text("model.family");
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

  /// type, model_type and architectures, which must agree.
  void read_names() {
    for (const char* key : {"type", "model_type", "architectures"}) {
      const std::string path = file_model + key;
      const YamlEntry* found = edit_.find(path);
      if (found == nullptr) continue;
      const YamlEntry entry = *found;
      const YamlNode node = edit_.tree().node(entry.value);
      const bool is_list = node.kind == Kind::sequence && node.items.size() == 1;
      const std::string name = is_list ? edit_.tree().node(node.items[0]).scalar : node.scalar;
      edit_.remove(path);
      if (node.kind == Kind::null || (name.empty() && node.kind == Kind::scalar)) continue;
      const NamedModel* row = find_model(key, name);
      if (row == nullptr) {
        refused_ = true;
        file_.refuse(path, "the model " + shown(name) + " is not built; built are " + names(),
                     "see docs/huggingface.md for these models", entry.key_span);
      } else if (model_ != nullptr && model_ != row) {
        refused_ = true;
        file_.refuse(path,
                     shown(name) + " contradicts " + std::string(model_->name) +
                         ", which the file also names",
                     "remove one of the two", entry.key_span);
      } else {
        model_ = row;
        name_span_ = entry.key_span;
        file_.spellings["model.family"] = path;
      }
    }
  }

  static std::string names() {
    std::string text;
    for (const NamedModel& row : named_models) {
      text += (text.empty()                         ? ""
               : &row == std::end(named_models) - 1 ? " and "
                                                    : ", ") +
              std::string(row.name);
    }
    return text;
  }

  void read_marks() {
    for (const Mark& mark : marks) {
      const std::string path = file_model + std::string(mark.key);
      const YamlEntry* found = edit_.find(path);
      if (found == nullptr) continue;
      const YamlEntry entry = *found;
      const YamlNode node = edit_.tree().node(entry.value);
      if (is_word(mark)) edit_.remove(path);
      if (node.kind == Kind::null) continue;
      const std::string value = plain_word(node.scalar);
      const std::string family = family_in(mark, value);
      if (family.empty()) {
        refused_ = true;
        file_.refuse(path, shown(value) + " as " + std::string(mark.key) + " is not built",
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

  /// Without a name: the norm and one more subject must be said, and nothing against them.
  std::string family_of_marks(const Span& where) {
    for (const int which : {0, 1}) {
      const bool clear = (subjects_[which] & 1U) != 0 && (subjects_[which] & 6U) != 0;
      if (clear && subjects_[1 - which] == 0) return which == 0 ? "llama" : "gpt2";
    }
    const bool has_preset = edit_.has("model.preset") || edit_.has("model.from");
    if (has_preset) return "";
    std::string heard;
    for (const Said& said : said_) {
      heard += (heard.empty() ? "" : ", ") + said.key.substr(file_model.size()) + ": " + said.value;
    }
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
        counts, [&](std::string_view path) { return edit_.count(path, 1).value_or(1) > 1; });
    if (model_->has_experts && !has) {
      file_.refuse("model.model_config",
                   std::string(model_->name) + " has experts, but the file does not say how many",
                   "write num_experts", where);
    } else if (!model_->has_experts && has && model_->name.starts_with("qwen")) {
      file_.refuse("model.model_config",
                   std::string(model_->name) + " has no experts, but the file gives some",
                   "write model_type: " + std::string(model_->name) + "_moe", where);
    }
  }

  MindformersFile& file_;
  TreeEditor& edit_;
  const NamedModel* model_ = nullptr;
  Span name_span_{0, 0, 0, 0};
  std::vector<Said> said_;
  unsigned subjects_[2] = {0, 0};  // of llama and gpt2: norm, activation, positions
  bool refused_ = false;
};

}  // namespace

std::string name_family(MindformersFile& file) {
  FamilyReader reader(file);
  reader.run();
  return reader.implied();
}

}  // namespace trainctl
