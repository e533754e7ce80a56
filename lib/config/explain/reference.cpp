// The reference page, the tables of upstream names, and explanations of single keys.

#include "config/explain/reference.h"
#include "base/json_text.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/text.h"
#include "config/read/read.h"
#include "config/report/diagnostics.h"
#include "config/schema/describe.h"
#include "config/schema/fields.h"
#include "config/schema/known_paths.h"
#include "config/schema/list_values.h"
#include "config/schema/presets.h"
#include "config/schema/values.h"
#include "config/support/standing.h"
#include "config/upstream/upstream.h"

namespace trainctl {
namespace {

using Json = nlohmann::ordered_json;

/// A default as JSON if it is valid JSON, else as a string.
Json json_of(std::string_view yaml) { return Json::accept(yaml) ? Json::parse(yaml) : Json(yaml); }

void append(std::string& note, const std::string& sentence) {
  note += (note.empty() ? "" : " ") + sentence;
}

/// The note of the row, extended by the status of its path.
std::string note_of(const UpstreamKey& row) {
  std::string note;
  if (row.deprecated()) note = formatted("Deprecated: write {}.", row.replacement);
  if (!row.note.empty()) append(note, std::string(row.note));
  const Standing* standing = find_standing(row.path);
  if (standing == nullptr) return note;
  std::string words(standing->note);
  if (standing->built && note.empty()) {
    words[0] = static_cast<char>(words[0] >= 'a' && words[0] <= 'z' ? words[0] - 32 : words[0]);
    append(note, words + ".");
  }
  if (status_of(row.path) == "partly built") append(note, "Built: " + words + ".");
  return note;
}

}  // namespace

std::string upstream_json(std::string_view list) {
  Json rows = Json::array();
  const auto add = [&rows](std::span<const UpstreamKey> keys, bool further) {
    for (const UpstreamKey& row : keys) {
      rows.push_back({{"upstream_key", row.key},
                      {"canonical_path", row.path},
                      {"default", json_of(row.fallback)},
                      {"status", status_of(row.path)},
                      {"note", note_of(row)},
                      {"deprecated", row.deprecated()},
                      {"further", further}});
    }
  };
  add(upstream_keys(list), false);
  add(further_keys(list), true);
  return json_text(rows, JsonText::Style::indent_2) + "\n";
}

std::string upstream_table(std::string_view list) {
  constexpr std::string_view heads[] = {"UPSTREAM KEY", "CANONICAL PATH", "DEFAULT", "STATUS"};
  std::size_t widths[] = {heads[0].size(), heads[1].size(), heads[2].size(), heads[3].size()};
  const auto cells = [](const UpstreamKey& row) {
    return std::array{row.key, row.path, row.fallback, status_of(row.path)};
  };
  for (const auto& keys : {upstream_keys(list), further_keys(list)}) {
    for (const UpstreamKey& row : keys) {
      for (std::size_t i = 0; i < 4; ++i) widths[i] = std::max(widths[i], cells(row)[i].size());
    }
  }
  std::string text;
  const auto add = [&](const auto& columns, const std::string& note) {
    std::string line;
    for (std::size_t i = 0; i < 4; ++i) {
      line += std::string(columns[i]) + std::string(widths[i] + 2 - columns[i].size(), ' ');
    }
    line += note;
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  add(heads, "NOTE");
  for (const UpstreamKey& row : upstream_keys(list)) add(cells(row), note_of(row));
  if (!further_keys(list).empty()) text += "\nFurther names\n";
  for (const UpstreamKey& row : further_keys(list)) add(cells(row), note_of(row));
  return text;
}

std::string upstream_markdown() {
  std::string text;
  const auto code = [](std::string_view word) { return formatted("`{}`", word); };
  const auto open = [&text](const char* title) {
    text += formatted(
        "### {}\n\n| upstream key | ours | default upstream | status | note "
        "|\n|---|---|---|---|---|\n",
        title);
  };
  const auto add = [&](std::span<const UpstreamKey> keys) {
    for (const UpstreamKey& row : keys) {
      text += formatted("| {} | {} | {} | {} | {} |\n", code(row.key), code(row.path),
                        code(row.fallback), status_of(row.path), note_of(row));
    }
  };
  constexpr std::pair<const char*, const char*> lists[] = {
      {"mindspore", "MindSpore (set_auto_parallel_context)"},
      {"mindformers", "MindFormers (TransformerOpParallelConfig, MoEConfig)"},
      {"megatron", "Megatron-Core (ModelParallelConfig)"}};
  for (const auto& [list, title] : lists) {
    open(title);
    add(upstream_keys(list));
    text += "\n";
  }
  open("Further names");
  add(further_keys("megatron"));
  add(further_keys("mindformers"));
  return text + "\n";
}

namespace {

using detail::code;

/// Text such as "**required**, or tokens".
std::string required_text(const Field& field) {
  std::string text = "**required**";
  for (std::string keys : split_words(field.given_by)) {
    const std::size_t plus = keys.find('+');
    if (plus != std::string::npos) keys.replace(plus, 1, " and ");
    text += ", or " + keys;
  }
  return text;
}

/// The visitor that writes the table of a section, followed by those of nested sections.
class TableWriter {
 public:
  explicit TableWriter(std::string path) : path_(std::move(path)) {}

  template <class Value>
  void operator()(const Value& value, const Field& field) {
    row(field, type_of<Value>(field), field.is_required ? required_text(field) : default_of(value),
        range_of<Value>(field));
  }
  template <class Value>
  void operator()(const std::optional<Value>&, const Field& field) {
    row(field, field.is_internal ? "null" : type_of<Value>(field), std::string(field.unset_note),
        range_of<Value>(field));
  }
  void operator()(const std::vector<DataSource>&, const Field& field) {
    row(field, "string or list", "**required**", "at least one path");
    const DataSource source;
    nested(source, formatted("{}.{}[]", path_, field.key), "One of several data sources");
  }
  void operator()(const std::vector<LayerEntry>&, const Field& field) {
    row(field, "list of maps", code("[]"), "up to 64 kinds");
    nested(LayerEntry{}, formatted("{}.{}[]", path_, field.key), "One kind of layers");
  }
  template <class Section>
  void section(const std::optional<Section>&, const Field& field) {
    row(field, "map", std::string(field.unset_note), "");
  }
  template <class Section>
  void section(const Section& value, const Field& field) {
    const std::string path = (path_.empty() ? "" : path_ + ".") + std::string(field.key);
    if (!path_.empty()) row(field, "map", "", "");
    nested(value, path, field.meaning);
  }

  std::string text() const {
    if (rows_.empty()) return nested_;
    return "| key | type | default | allowed | meaning |\n|---|---|---|---|---|\n" + rows_ + "\n" +
           nested_;
  }

 private:
  template <class Section>
  void nested(const Section& value, const std::string& path, std::string_view meaning) {
    TableWriter inner(path);
    fields(inner, value);
    const std::string level = path_.empty() ? "## " : "### ";
    nested_ += formatted("{}{}\n\n{}.\n\n{}", level, path, meaning, inner.text());
  }

  void row(const Field& field, const std::string& type, const std::string& fallback,
           const std::string& range) {
    std::string meaning = meaning_of(formatted("{}.{}", path_, field.key), field);
    for (std::size_t at = 0; (at = meaning.find('|', at)) != std::string::npos; at += 2) {
      meaning.insert(at, "\\");
    }
    rows_ += "| " + code(field.key) + " | " + type + " | " + fallback + " | " + range + " | " +
             meaning + " |\n";
  }

  std::string path_;
  std::string rows_;
  std::string nested_;
};

std::string upstream_section() {
  return "## Upstream names\n\n"
         "Every key in these lists is also accepted under its upstream name: in `parallel`, and in "
         "the section that our key belongs to (MoEConfig's keys in `moe`, those of the recompute "
         "config in `recompute`). MindFormers' sections `parallel_config`, `recompute_config` and "
         "`moe_config` are accepted with their keys; `moe_config` has its router's own definitions "
         "and "
         "defaults ([experts.md](experts.md#mindformers-router)). Two spellings of one key with "
         "different "
         "values are an error; `--set` overrides the file in any spelling. The status says what "
         "`train` does with the key; `validate` refuses what `train` refuses, and `plan` shows it "
         "with a warning.\n\n" +
         upstream_markdown();
}

}  // namespace

std::string reference_markdown() {
  TableWriter writer("");
  const Config config;
  fields(writer, config);
  return "# Configuration reference\n\n"
         "Generated from the program's field lists by `trainctl schema --format markdown`. A "
         "configuration is one YAML file of at most 1 MiB; each section below is a map. The five "
         "required sizes of the model may come from a preset or from a model directory.\n\n"
         "Presets: " +
         joined(preset_names(), ", ", code) + ".\n\n" + writer.text() + upstream_section();
}

namespace {

struct Row {  // a key or a section
  std::string path;
  std::string meaning;
  bool is_section = false;
  std::string value{};  // YAML text; "" if an optional value is not given
  std::string type{};
  std::string allowed{};
  std::string unset{};  // the value in effect without the key
};

/// Collects a Row for every key of the schema, with the values of one configuration.
struct RowCollector {
  std::vector<Row>& rows;

  template <class Value>
  void operator()(const std::string& path, const Value& value, const Field& field) {
    Row& row = add(path, field);
    row.value = plain(default_of(value));
    row.type = type_of<Value>(field);
    row.allowed = plain(range_of<Value>(field));
    row.unset = field.is_required ? "required" : "";
  }
  template <class Value>
  void operator()(const std::string& path, const std::optional<Value>& value, const Field& field) {
    Row& row = add(path, field);
    row.value = value ? plain(default_of(*value)) : "";
    row.type = type_of<Value>(field);
    row.allowed = plain(range_of<Value>(field));
    row.unset = formatted("not given: {}", field.unset_note);
  }
  void operator()(const std::string& path, const std::vector<DataSource>& sources,
                  const Field& field) {
    Row& row = add(path, field);
    for (const DataSource& source : sources) {
      row.value += (row.value.empty() ? "[" : ", ") + formatted("{{path: {}, weight: {}}}",
                                                                write_value(source.path),
                                                                write_value(source.weight));
    }
    row.value += sources.empty() ? "[]" : "]";
    row.type = "string or list";
    row.allowed = "at least one path";
    row.unset = "required";
  }
  void operator()(const std::string& path, const std::vector<LayerEntry>& entries,
                  const Field& field) {
    Row& row = add(path, field);
    row.value = write_value(entries);
    row.type = "list of maps";
    row.allowed = "up to 64 kinds";
  }
  void section(const std::string& path, const Field& field) { add(path, field).is_section = true; }

 private:
  Row& add(const std::string& path, const Field& field) {
    return rows.emplace_back(Row{.path = path, .meaning = meaning_of(path, field)});
  }
  /// Removes Markdown's marks for code.
  static std::string plain(std::string text) {
    std::erase(text, '`');
    return text;
  }
};

std::vector<Row> rows_of(const Config& config) {
  std::vector<Row> rows;
  visit_values(config, RowCollector{rows});
  return rows;
}

std::string line(std::string name, const std::string& text) {
  if (text.empty()) return "";
  name.resize(std::max<std::size_t>(name.size() + 1, 12), ' ');
  return "  " + name + printable(text) + "\n";
}

std::string place_text(const ReadResult& read, const Place& place) {
  std::string text = place.to_string();
  const auto parent = read.included_by.find(place.file);
  if (place.origin == Place::Origin::file && parent != read.included_by.end()) {
    text += ", included by " + parent->second.position();
  }
  return text;
}

std::string origin(const ReadResult& read, const std::string& path) {
  const auto found = read.sources.places().find(path);
  return found == read.sources.places().end() ? "default" : place_text(read, found->second);
}

const Diagnostic* mistake_at(const ReadResult& read, const std::string& path) {
  for (const Diagnostic& diagnostic : read.diagnostics.list()) {
    if (diagnostic.severity == Severity::error && diagnostic.path == path) return &diagnostic;
  }
  return nullptr;
}

std::string upstream_of(const std::string& path) {
  constexpr std::pair<const char*, const char*> lists[] = {
      {"mindspore", "MindSpore"}, {"mindformers", "MindFormers"}, {"megatron", "Megatron"}};
  std::string text;
  for (const auto& [list, name] : lists) {
    for (const auto& keys : {upstream_keys(list), further_keys(list)}) {
      for (const UpstreamKey& row : keys) {
        if (row.path != path) continue;
        text += formatted("{}{} {}", text.empty() ? "" : ", ", name, row.key);
      }
    }
  }
  return text;
}

std::string headline(const ReadResult& read, const Row& row) {
  const Diagnostic* mistake = mistake_at(read, row.path);
  if (mistake != nullptr) {
    return row.path + " has no valid value\n" +
           line("error", "[" + mistake->code + "] " + mistake->message);
  }
  return row.path + (row.value.empty() ? " is not given" : " = " + printable(row.value)) + "\n";
}

std::string status_text(const std::string& path) {
  const Standing* standing = find_standing(path);
  std::string status(status_of(path));
  if (standing != nullptr && !standing->note.empty()) status += formatted(": {}", standing->note);
  return status;
}

std::string default_text(const Row& row, const Row& fallback) {
  return row.unset.empty() ? fallback.value : row.unset;
}

/// The lines of a key's description that do not depend on a configuration.
std::string described(const Row& row, const Row& fallback) {
  return line("meaning", row.meaning) + line("type", row.type) + line("allowed", row.allowed) +
         line("default", default_text(row, fallback)) + line("upstream", upstream_of(row.path)) +
         line("status", status_text(row.path));
}

std::string explain_key(const ReadResult& read, const Row& row, const Row& fallback) {
  std::string text = headline(read, row);
  const Diagnostic* mistake = mistake_at(read, row.path);
  text +=
      line("from", mistake != nullptr ? place_text(read, mistake->place) : origin(read, row.path));
  const auto replaced = read.replaced.find(row.path);
  if (replaced != read.replaced.end()) {
    for (const ReplacedValue& value : replaced->second) {
      text += line("instead of", value.text + ", " + place_text(read, value.place));
    }
  }
  return text + described(row, fallback);
}

std::string explain_section(const ReadResult& read, const std::vector<Row>& rows,
                            const Row& section) {
  const auto shown_value = [&](const Row& row) {
    if (mistake_at(read, row.path) != nullptr) return std::string("no valid value");
    return row.value.empty() ? "not given" : printable(row.value);
  };
  std::string text = section.path + ": " + section.meaning + "\n";
  std::size_t widest = 0;
  const std::string prefix = section.path + ".";
  const auto inside = [&](const Row& row) {
    return row.path.starts_with(prefix) && !row.is_section;
  };
  for (const Row& row : rows) {
    if (!inside(row)) continue;
    widest = std::max(widest, std::min<std::size_t>(60, row.path.size() - prefix.size() + 2 +
                                                            shown_value(row).size()));
  }
  for (const Row& row : rows) {
    if (!inside(row)) continue;
    std::string left = row.path.substr(prefix.size()) + ": " + shown_value(row);
    left.resize(std::max(left.size(), widest), ' ');
    const Diagnostic* mistake = mistake_at(read, row.path);
    const std::string from =
        mistake != nullptr ? place_text(read, mistake->place) : origin(read, row.path);
    text += "  " + left + "  # " + printable(from) + "\n";
  }
  return text;
}

}  // namespace

std::optional<std::string> explain_value(const ReadResult& read, const std::string& path) {
  const std::vector<Row> rows = rows_of(read.config);
  const auto at =
      std::find_if(rows.begin(), rows.end(), [&](const Row& row) { return row.path == path; });
  if (at == rows.end()) return std::nullopt;
  if (at->is_section) return explain_section(read, rows, *at);
  const std::vector<Row> defaults = rows_of(Config{});
  return explain_key(read, *at, defaults[static_cast<std::size_t>(at - rows.begin())]);
}

std::optional<KeyNote> note_of_key(const std::string& path) {
  const std::vector<Row> rows = rows_of(Config{});
  const auto at = std::ranges::find(rows, path, &Row::path);
  if (at == rows.end()) return std::nullopt;
  KeyNote note{at->path, at->meaning, "section", "", "", "", "", ""};
  if (at->is_section) {
    note.text = at->path + ": " + at->meaning + "\n";
    for (const Row& row : rows) {
      if (!row.path.starts_with(path + ".") || row.is_section) continue;
      note.text += line(row.path.substr(path.size() + 1) + ":", row.meaning);
    }
    return note;
  }
  note.type = at->type;
  note.allowed = at->allowed;
  note.fallback = default_text(*at, *at);
  note.upstream = upstream_of(path);
  note.status = status_text(path);
  note.text = at->path + "\n" + described(*at, *at);
  return note;
}

std::string path_of_upstream(const std::string& key) {
  for (const UpstreamKey& row : all_upstream_keys()) {
    const std::string name(row.key);
    if (name == key || formatted("{}.{}", row.section, name) == key) return std::string(row.path);
  }
  return "";
}

std::string nearest_path(const std::string& path) {
  const std::string key = last_key(path);
  for (const UpstreamKey& row : all_upstream_keys()) {
    if (row.key == key) return std::string(row.path);
  }
  std::vector<std::string> paths;
  for (const Row& row : rows_of(Config{})) {
    if (row.path.ends_with("." + key)) return row.path;
    paths.push_back(row.path);
  }
  return nearest(path, paths);
}

}  // namespace trainctl
