#include "config/read/model_values.h"

#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "config/schema/presets.h"
#include "config/upstream/hugging_face.h"

namespace trainctl {
namespace {

const Preset* find_preset(const std::string& name) {
  for (const Preset& preset : presets()) {
    if (preset.name == name) return &preset;
  }
  return nullptr;
}

Problem unknown_preset(const std::string& name) {
  std::string listed;
  for (const std::string& known : preset_names()) listed += (listed.empty() ? "" : ", ") + known;
  const std::string near = nearest(name, preset_names());
  return {"bad-word", "unknown preset \"" + shown(name) + "\"; available: " + listed,
          near.empty() ? "" : "did you mean " + near + "?"};
}

/// The node of the model section, -1 unless it is a map.
int model_section(const YamlTree& tree, int root) {
  const YamlEntry* model = tree.find(root, "model");
  const bool is_map = model != nullptr && tree.node(model->value).kind == YamlNode::Kind::map;
  return is_map ? model->value : -1;
}

/// Parses two maps, the second of which may be "", as a text of that origin and adds their keys to
/// the sections model and moe. Returns the node of both.
int add_values(Reading& reading, int root, Place::Origin origin, const std::string& name,
               std::string_view model, std::string_view moe) {
  const int text = reading.tree.add_text(origin, name);
  const std::string yaml =
      "model: " + std::string(model) + (moe.empty() ? std::string() : "\nmoe: " + std::string(moe));
  const int values = parse_yaml(reading.tree, yaml, text, reading.result.diagnostics);
  if (values >= 0) reading.tree.fill_in(root, values, "");
  return values;
}

void apply_preset(Reading& reading, int root, const YamlNode& given) {
  const Preset* preset = find_preset(given.scalar);
  reading.model_complete = preset != nullptr;
  if (preset != nullptr) {
    add_values(reading, root, Place::Origin::preset, std::string(preset->name), preset->model,
               preset->moe);
  } else if (given.kind == YamlNode::Kind::scalar && !given.scalar.empty()) {
    reading.report(unknown_preset(given.scalar), "model.preset", reading.tree.place(given.span));
  }
}

/// Keys of the sections model and moe that say how a model is trained, not what it is.
const std::set<std::string>& keys_of_training() {
  static const std::set<std::string> keys{"model.seq_length",
                                          "model.init_method_std",
                                          "model.hidden_dropout",
                                          "model.attention_dropout",
                                          "model.embedding_dropout",
                                          "model.make_vocab_size_divisible_by",
                                          "model.perform_initialization",
                                          "model.use_cpu_initialization",
                                          "model.use_te_rng_tracker",
                                          "model.cross_entropy_loss_fusion",
                                          "model.cross_entropy_fusion_impl",
                                          "moe.capacity_factor",
                                          "moe.overflow",
                                          "moe.capacity_group_size",
                                          "moe.expert_group",
                                          "moe.router_choice",
                                          "moe.balance_counts",
                                          "moe.router_bias_update_rate",
                                          "moe.router_load_balancing_type",
                                          "moe.aux_loss_factor",
                                          "moe.z_loss_factor",
                                          "moe.expert_group_size",
                                          "moe.group_wise_a2a",
                                          "moe.comp_comm_parallel",
                                          "moe.comp_comm_parallel_degree",
                                          "moe.overlap_expert_parallel_comm",
                                          "moe.extended_tp"};
  return keys;
}

/// Keeps of a section of a run's configuration what says what the model is.
void keep_network(YamlTree& tree, const YamlEntry& section) {
  std::erase_if(tree.node(section.value).entries, [&](const YamlEntry& entry) {
    const bool of_training = keys_of_training().contains(section.key + "." + entry.key);
    return entry.key == "from" || entry.key == "preset" ||
           (of_training && entry.key != "seq_length");
  });
}

/// The sections model and moe of a run's resolved configuration. Returns the node of both, -1 if
/// there is no model.
int add_values_of_run(Reading& reading, int root, const std::string& name,
                      const std::string& yaml) {
  YamlTree& tree = reading.tree;
  const int text = tree.add_text(Place::Origin::model_files, name);
  const int values = parse_yaml(tree, yaml, text, reading.result.diagnostics);
  if (values < 0) return -1;
  std::erase_if(tree.node(values).entries, [&](const YamlEntry& entry) {
    return (entry.key != "model" && entry.key != "moe") ||
           tree.node(entry.value).kind != YamlNode::Kind::map;
  });
  const YamlEntry* section = tree.find(values, "model");
  if (section == nullptr) return -1;
  const int model = section->value;
  for (const YamlEntry& entry : tree.node(values).entries) keep_network(tree, entry);
  // Where the run did not say it, there are as many positions as its sequences were long.
  const YamlEntry* length = tree.find(model, "seq_length");
  if (length != nullptr && tree.find(model, "max_position_embeddings") == nullptr) {
    const YamlEntry positions{"max_position_embeddings", length->key_span, length->value};
    tree.node(model).entries.push_back(positions);
  }
  tree.fill_in(root, values, "");
  return values;
}

std::optional<StartingModel> apply_from(Reading& reading, int root, const YamlNode& given,
                                        const Surroundings& around) {
  if (given.kind != YamlNode::Kind::scalar || given.scalar.empty()) return std::nullopt;
  reading.model_complete = false;  // until its values are there
  const auto refuse = [&](const std::string& message, const std::string& help) {
    reading.report({"model-directory", message, help}, "model.from",
                   reading.tree.place(given.span));
  };
  if (!around.load) {
    refuse("model.from is supported only in files", "");
    return std::nullopt;
  }
  const std::filesystem::path directory(given.scalar);
  const std::string file = (directory / "config.json").string();
  const Surroundings::Loaded loaded = around.load(file);
  if (!loaded.text) {
    const std::string own = (directory / "config.yaml").string();
    const Surroundings::Loaded run = around.load(own);
    const int values = run.text ? add_values_of_run(reading, root, own, *run.text) : -1;
    reading.model_complete = values >= 0;
    if (values >= 0) return StartingModel{own, values};
    refuse(shown(file) + ": " + loaded.why,
           "model.from is a Hugging Face directory, with config.json and safetensors files, or the "
           "directory of a run or a checkpoint; a relative path starts in the working directory");
    return std::nullopt;
  }
  const HuggingFaceConfig read = read_hugging_face_config(*loaded.text);
  for (const std::string& problem : read.problems) {
    refuse(shown(file) + ": " + problem, "see docs/huggingface.md for what is read");
  }
  if (!read.problems.empty()) return std::nullopt;
  const int values =
      add_values(reading, root, Place::Origin::model_files, file, read.model, read.moe);
  reading.model_complete = values >= 0;
  return StartingModel{file, values};
}

/// The visitor that writes every value that is given, by its path.
class ValueLister {
 public:
  ValueLister(std::map<std::string, std::string>& values, std::string path)
      : values_(values), path_(std::move(path)) {}

  template <class Value>
  void operator()(const Value& value, const Field& field) {
    if constexpr (std::is_enum_v<Value>) {
      values_[path_ + std::string(field.key)] = word_of(value);
    } else {
      values_[path_ + std::string(field.key)] = write_value(value);
    }
  }
  template <class Value>
  void operator()(const std::optional<Value>& value, const Field& field) {
    if (value) (*this)(*value, field);
  }
  template <class Section>
  void section(const Section& value, const Field& field) {
    ValueLister inner(values_, path_ + std::string(field.key) + ".");
    fields(inner, value);
  }

 private:
  std::map<std::string, std::string>& values_;
  std::string path_;
};

/// Of the sections model and moe.
std::map<std::string, std::string> values_of(const Config& config) {
  std::map<std::string, std::string> values;
  ValueLister model(values, "model.");
  fields(model, config.model);
  ValueLister moe(values, "moe.");
  fields(moe, config.moe);
  return values;
}

}  // namespace

std::optional<StartingModel> fill_model(Reading& reading, int root, const Surroundings& around) {
  YamlTree& tree = reading.tree;
  const int model = model_section(tree, root);
  if (model < 0) return std::nullopt;
  // `from: null` is like no such key: --set can take it away.
  std::erase_if(tree.node(model).entries, [&](const YamlEntry& entry) {
    return entry.key == "from" && tree.node(entry.value).kind == YamlNode::Kind::null;
  });
  const YamlEntry* preset = tree.find(model, "preset");
  const YamlEntry* from = tree.find(model, "from");
  if (preset != nullptr && from != nullptr) {
    reading.model_complete = false;
    reading.report({"model-twice", "preset and from both describe the model", "remove one of them"},
                   "model.from", tree.place(from->key_span));
    return std::nullopt;
  }
  // Copies: adding nodes moves them.
  if (preset != nullptr) apply_preset(reading, root, YamlNode(tree.node(preset->value)));
  if (from == nullptr) return std::nullopt;
  return apply_from(reading, root, YamlNode(tree.node(from->value)), around);
}

void check_model_against(Reading& reading, const StartingModel& start) {
  ReadResult alone;
  Reading scratch{reading.tree, alone};
  const auto section = [&](const char* name) {
    const YamlEntry* found = reading.tree.find(start.values, name);
    return found == nullptr ? -1 : found->value;
  };
  read_section(scratch, section("model"), "model", {}, alone.config.model);
  read_section(scratch, section("moe"), "moe", {}, alone.config.moe);
  const auto theirs = values_of(alone.config);
  auto ours = values_of(reading.result.config);
  for (const auto& [path, place] : alone.sources.places()) {
    const auto value = theirs.find(path);
    if (value == theirs.end() || keys_of_training().contains(path) || ours[path] == value->second)
      continue;
    const bool is_scale =
        path.starts_with("model.rope_scaling.") && path != "model.rope_scaling.factor";
    if (is_scale && alone.config.model.rope_scaling.factor == 1.0) continue;
    reading.report({"model-differs",
                    path.substr(path.find('.') + 1) + " is " + shown(ours[path]) + ", but " +
                        shown(start.file) + " says " + value->second,
                    "remove the key: model.from gives it"},
                   path, reading.result.sources.find(path));
  }
}

}  // namespace trainctl
