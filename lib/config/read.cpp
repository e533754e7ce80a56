#include "config/read.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "base/error.h"
#include "config/presets.h"
#include "config/section_reader.h"
#include "config/set_option.h"
#include "config/syntax_error.h"

namespace trainctl {
namespace {

constexpr std::size_t most_diagnostics = 200;

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
  return {"bad-word", "\"" + shown(name) + "\" is no preset; the presets are " + listed,
          near.empty() ? "" : "did you mean " + near + "?"};
}

/// Adds the preset's keys that the model section does not give itself.
void apply_preset(Reading& reading, int root) {
  YamlTree& tree = reading.tree;
  const YamlEntry* model = tree.find(root, "model");
  if (model == nullptr || tree.node(model->value).kind != YamlNode::Kind::map) return;
  const YamlEntry* entry = tree.find(model->value, "preset");
  if (entry == nullptr) return;
  const YamlNode given = tree.node(entry->value);
  const Preset* preset = find_preset(given.scalar);
  reading.model_complete = preset != nullptr;
  if (preset == nullptr) {
    if (given.kind == YamlNode::Kind::scalar && !given.scalar.empty()) {
      reading.report(unknown_preset(given.scalar), "model.preset", tree.place(given.span));
    }
    return;
  }
  const int text = tree.add_text(Place::Origin::preset, std::string(preset->name));
  const int values = parse_yaml(tree, std::string(preset->yaml), text, reading.result.diagnostics);
  if (values >= 0) tree.fill_in(tree.find(root, "model")->value, values);
}

void read_root(Reading& reading, int root, const std::vector<std::string>& set_options,
               const std::string& text) {
  YamlTree& tree = reading.tree;
  const YamlNode given = tree.node(root);
  if (given.kind != YamlNode::Kind::map) {
    Problem problem = wrong_type(given, "a map of sections");
    const std::size_t behind = missing_space(text);
    if (given.kind == YamlNode::Kind::scalar && behind > 0) {
      problem.help = "put a space after the colon: `" + text.substr(0, behind) + " ...`";
    }
    reading.report(std::move(problem), "", tree.place(given.span));
    return;
  }
  for (const std::string& option : set_options) {
    apply_set_option(tree, root, option, reading.result.diagnostics);
  }
  apply_preset(reading, root);
  const Place file{Place::Origin::file, tree.texts[0].name, 0, 0, 0};
  read_section(reading, root, "", file, reading.result.config);
  reading.result.complete = reading.model_complete;
}

}  // namespace

ReadResult read_config_text(std::string_view text, const std::string& name,
                            const std::vector<std::string>& set_options) {
  ReadResult result;
  YamlTree tree;
  Reading reading{tree, result};
  const std::string normal = normalise_text(text.substr(0, max_yaml_bytes + 4));
  const int index = tree.add_text(Place::Origin::file, name);
  result.diagnostics.add_source(name, normal);
  if (!check_text(normal, tree.texts[0], result.diagnostics)) return result;
  const int root = parse_yaml(tree, normal, index, result.diagnostics);
  if (root >= 0) read_root(reading, root, set_options, normal);
  result.diagnostics.sort();
  result.diagnostics.keep_first(most_diagnostics);
  return result;
}

ReadResult read_config(const std::filesystem::path& file,
                       const std::vector<std::string>& set_options) {
  const std::string name = file.string();
  const auto refuse = [&](const std::string& why) {
    throw Error(ExitCode::missing_input, name + ": " + why);
  };
  std::error_code error;
  const auto status = std::filesystem::status(file, error);
  if (!std::filesystem::exists(status)) {
    refuse(error && error != std::errc::no_such_file_or_directory ? error.message()
                                                                  : "no such file");
  }
  if (std::filesystem::is_directory(status)) refuse("is a folder; a YAML file is due");
  errno = 0;
  std::ifstream stream(file, std::ios::binary);
  if (!stream) refuse(std::string("cannot be read: ") + std::strerror(errno));
  std::string text(max_yaml_bytes + 4, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (stream.bad()) refuse(std::string("cannot be read: ") + std::strerror(errno));
  text.resize(static_cast<std::size_t>(stream.gcount()));
  return read_config_text(text, name, set_options);
}

}  // namespace trainctl
