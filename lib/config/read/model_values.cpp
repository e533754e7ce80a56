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

/// Parses `yaml` as a text of that origin and adds its keys to the model section. Returns its node.
int add_values(Reading& reading, int model, Place::Origin origin, const std::string& name,
               const std::string& yaml) {
  const int text = reading.tree.add_text(origin, name);
  const int values = parse_yaml(reading.tree, yaml, text, reading.result.diagnostics);
  if (values >= 0) reading.tree.fill_in(model, values, "model");
  return values;
}

void apply_preset(Reading& reading, int model, const YamlNode& given) {
  const Preset* preset = find_preset(given.scalar);
  reading.model_complete = preset != nullptr;
  if (preset != nullptr) {
    add_values(reading, model, Place::Origin::preset, std::string(preset->name),
               std::string(preset->yaml));
  } else if (given.kind == YamlNode::Kind::scalar && !given.scalar.empty()) {
    reading.report(unknown_preset(given.scalar), "model.preset", reading.tree.place(given.span));
  }
}

std::optional<StartingModel> apply_from(Reading& reading, int model, const YamlNode& given,
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
  const std::string file = (std::filesystem::path(given.scalar) / "config.json").string();
  const Surroundings::Loaded loaded = around.load(file);
  if (!loaded.text) {
    refuse(shown(file) + ": " + loaded.why,
           "model.from is a directory with config.json and safetensors files; a relative path "
           "starts in the working directory");
    return std::nullopt;
  }
  const HuggingFaceConfig read = read_hugging_face_config(*loaded.text);
  for (const std::string& problem : read.problems) {
    refuse(shown(file) + ": " + problem, "see docs/huggingface.md for what is read");
  }
  if (!read.problems.empty()) return std::nullopt;
  const int values = add_values(reading, model, Place::Origin::model_files, file, read.model);
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

std::map<std::string, std::string> values_of(const ModelConfig& model) {
  std::map<std::string, std::string> values;
  ValueLister lister(values, "model.");
  fields(lister, model);
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
  if (preset != nullptr) apply_preset(reading, model, YamlNode(tree.node(preset->value)));
  if (from == nullptr) return std::nullopt;
  return apply_from(reading, model, YamlNode(tree.node(from->value)), around);
}

void check_model_against(Reading& reading, const StartingModel& start) {
  static const std::set<std::string> of_training{"model.seq_length", "model.init_method_std"};
  ReadResult alone;
  Reading scratch{reading.tree, alone};
  read_section(scratch, start.values, "model", {}, alone.config.model);
  const auto theirs = values_of(alone.config.model);
  auto ours = values_of(reading.result.config.model);
  for (const auto& [path, place] : alone.sources.places()) {
    const auto value = theirs.find(path);
    if (value == theirs.end() || of_training.contains(path) || ours[path] == value->second)
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
