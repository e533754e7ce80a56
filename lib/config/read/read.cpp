#include "config/read/read.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "config/devices/read_figures.h"
#include "config/read/compose.h"
#include "config/read/model_values.h"
#include "config/read/section_reader.h"
#include "config/schema/known_paths.h"
#include "config/schema/optimizers.h"
#include "config/upstream/mindformers_experts.h"
#include "config/yaml/syntax_error.h"

namespace trainctl {
namespace {

constexpr std::size_t most_diagnostics = 200;

/// Makes messages use the user's spelling of keys: for the whole path, and for its last keys where
/// no other path ends in them. A single word such as "layout" may be meant as a word, so it stays.
void call_as_written(const Spellings& spellings, Diagnostics& diagnostics) {
  for (const auto& [path, spelling] : spellings) {
    if (spelling == path) continue;
    diagnostics.call(path, spelling);
    const std::string last = spelling.substr(spelling.rfind('.') + 1);
    for (std::size_t dot = path.find('.'); dot != std::string::npos;
         dot = path.find('.', dot + 1)) {
      const std::string end = path.substr(dot + 1);
      const bool is_word = end.find_first_of("._") == std::string::npos;
      if (!is_word && is_unique_key(end)) diagnostics.call(end, last);
    }
  }
}

/// Gives keys that nobody gave the defaults of the optimizer, where it has its own.
void fill_optimizer(const SourceMap& sources, OptimizerConfig& optimizer) {
  for (const OptimizerKey& key : row_of(optimizer.type).keys) {
    const bool given = sources.places().contains("optimizer." + std::string(key.name));
    if (key.usual && !given) optimizer.*key.value = *key.usual;
  }
}

/// A file that names a GPU is for machines that have it.
void choose_device(const SourceMap& sources, Config& config) {
  const bool given = sources.places().contains("parallel.device");
  if (!given && names_gpu(config.cluster)) config.parallel.device = "auto";
}

void read_root(Reading& reading, int root, const std::vector<std::string>& set_options,
               const std::string& text, const Surroundings& around) {
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
  for (auto& [path, spelling] :
       override_values(tree, root, set_options, reading.result.diagnostics)) {
    reading.spellings.insert_or_assign(path, spelling);
  }
  call_as_written(reading.spellings, reading.result.diagnostics);
  const std::optional<StartingModel> start = fill_model(reading, root, around);
  fill_router(tree, root, reading.spellings, reading.result.diagnostics);
  const Place file{Place::Origin::file, tree.texts[0].name, 0, 0, 0};
  read_section(reading, root, "", file, reading.result.config);
  fill_optimizer(reading.result.sources, reading.result.config.optimizer);
  if (start) check_model_against(reading, *start);
  load_figures(reading.result.config.cluster, around);
  choose_device(reading.result.sources, reading.result.config);
  reading.result.complete = reading.model_complete;
}

std::string written(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::null: return "null";
    case YamlNode::Kind::map: return "a map";
    case YamlNode::Kind::sequence: return "a list";
    case YamlNode::Kind::scalar: break;
  }
  return shown(node.scalar);
}

void keep_replaced(const YamlTree& tree, ReadResult& result) {
  for (const YamlTree::Replaced& lost : tree.replaced) {
    const YamlNode& node = tree.node(lost.value);
    auto& list = result.replaced[lost.path];
    list.insert(list.begin(), {written(node), tree.place(node.span)});
  }
}

/// Keeps only the error about the variable where a variable has no value: what the reader reports
/// about that value follows from it. The reader's finding only supplies the path.
void drop_consequences(Diagnostics& diagnostics) {
  const auto is_cause = [](const Diagnostic& d) {
    return d.code == "unset-variable" || d.code == "bad-variable";
  };
  std::vector<Diagnostic> causes;
  for (const Diagnostic& diagnostic : diagnostics.list()) {
    if (is_cause(diagnostic)) causes.push_back(diagnostic);
  }
  if (causes.empty()) return;
  const auto cause_of = [&](const Diagnostic& d) -> Diagnostic* {
    for (Diagnostic& cause : causes) {
      const bool same = d.place.position() == cause.place.position();
      if (same && d.place.origin == cause.place.origin) return &cause;
    }
    return nullptr;
  };
  diagnostics.drop_if([&](const Diagnostic& diagnostic) {
    Diagnostic* cause = cause_of(diagnostic);
    if (cause != nullptr && !diagnostic.path.empty()) cause->path = diagnostic.path;
    return cause != nullptr;
  });
  for (Diagnostic& cause : causes) diagnostics.add(std::move(cause));
}

/// A key that is there under another name is not missing; no rule looks at its value.
void drop_missing(const std::vector<std::string>& named_otherwise, Diagnostics& diagnostics) {
  diagnostics.forgive_if([&](const Diagnostic& missing) {
    return missing.code == "missing-key" &&
           std::ranges::find(named_otherwise, missing.path) != named_otherwise.end();
  });
}

}  // namespace

ReadResult read_config_text(std::string_view text, const std::string& name,
                            const std::vector<std::string>& set_options,
                            const Surroundings& around) {
  ReadResult result;
  YamlTree tree;
  Reading reading{tree, result};
  Composed composed = compose(tree, text, name, around, result.diagnostics);
  result.included_by = std::move(composed.included_by);
  reading.spellings = std::move(composed.spellings);
  if (composed.root >= 0) read_root(reading, composed.root, set_options, composed.text, around);
  keep_replaced(tree, result);
  if (composed.missing) {
    result.complete = false;
    result.diagnostics.drop_if([](const Diagnostic& d) { return d.code == "missing-key"; });
  }
  drop_consequences(result.diagnostics);
  drop_missing(reading.named_otherwise, result.diagnostics);
  result.diagnostics.sort();
  result.diagnostics.keep_first(most_diagnostics);
  return result;
}

Surroundings::Loaded load_text(const std::string& path) {
  try {
    const FileKind kind = kind_of_file(path);
    if (kind == FileKind::none) return {std::nullopt, "no such file"};
    if (kind == FileKind::folder) return {std::nullopt, "expected a YAML file, found a directory"};
    return {read_beginning(path, static_cast<std::int64_t>(max_yaml_bytes + 4)), ""};
  } catch (const Error& error) {
    if (error.code() == ExitCode::io) throw;  // whether there is such a file is not known
    return {std::nullopt, error.what()};
  }
}

ReadResult read_config(const std::filesystem::path& file,
                       const std::vector<std::string>& set_options) {
  const std::string name = file.string();
  const Surroundings::Loaded loaded = load_text(name);
  if (!loaded.text) throw Error(ExitCode::missing_input, name + ": " + loaded.why);
  Surroundings around;
  around.load = load_text;
  return read_config_text(*loaded.text, name, set_options, around);
}

}  // namespace trainctl
