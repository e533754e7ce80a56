#include "config/explain/explain_value.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "config/report/snippet.h"
#include "config/schema/describe.h"
#include "config/support/standing.h"
#include "config/upstream/upstream.h"

namespace trainctl {
namespace {

struct Row {  // of one key or section
  std::string path;
  std::string meaning;
  bool is_section = false;
  std::string value;  // as YAML; "" where an optional is not given
  std::string type;
  std::string allowed;
  std::string unset;  // what holds without the key
};

/// Describes every key of the schema with the values of one configuration.
class RowCollector {
 public:
  RowCollector(std::vector<Row>& rows, std::string path) : rows_(rows), path_(std::move(path)) {}

  template <class Value>
  void operator()(const Value& value, const Field& field) {
    Row& row = add(field);
    row.value = plain(default_of(value));
    row.type = type_of<Value>(field);
    row.allowed = plain(range_of<Value>(field));
    row.unset = field.is_required ? "required" : "";
  }
  template <class Value>
  void operator()(const std::optional<Value>& value, const Field& field) {
    Row& row = add(field);
    row.value = value ? plain(default_of(*value)) : "";
    row.type = type_of<Value>(field);
    row.allowed = plain(range_of<Value>(field));
    row.unset = "not given: " + std::string(field.unset_note);
  }
  void operator()(const std::vector<DataSource>& sources, const Field& field) {
    Row& row = add(field);
    for (const DataSource& source : sources) {
      row.value += (row.value.empty() ? "[" : ", ") + std::string("{path: ") +
                   write_value(source.path) + ", weight: " + write_value(source.weight) + "}";
    }
    row.value += sources.empty() ? "[]" : "]";
    row.type = "string or list";
    row.allowed = "at least one path";
    row.unset = "required";
  }
  void operator()(const std::vector<LayerEntry>& entries, const Field& field) {
    Row& row = add(field);
    row.value = write_value(entries);
    row.type = "list of maps";
    row.allowed = "up to 64 kinds";
  }
  template <class Section>
  void section(const Section& value, const Field& field) {
    const std::string path = add(field).path;
    rows_.back().is_section = true;
    RowCollector inner(rows_, path + ".");
    fields(inner, value);
  }

 private:
  Row& add(const Field& field) {
    Row row;
    row.path = path_ + std::string(field.key);
    row.meaning = meaning_of(row.path, field);
    return rows_.emplace_back(std::move(row));
  }
  /// Without Markdown's marks.
  static std::string plain(std::string text) {
    std::erase(text, '`');
    return text;
  }

  std::vector<Row>& rows_;
  std::string path_;  // "" or ends in "."
};

std::vector<Row> rows_of(const Config& config) {
  std::vector<Row> rows;
  RowCollector collector(rows, "");
  fields(collector, config);
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
  constexpr std::pair<Upstream, const char*> lists[] = {{Upstream::mindspore, "MindSpore"},
                                                        {Upstream::mindformers, "MindFormers"},
                                                        {Upstream::megatron, "Megatron"}};
  std::string text;
  for (const auto& [list, name] : lists) {
    for (const auto& keys : {upstream_keys(list), further_keys(list)}) {
      for (const UpstreamKey& row : keys) {
        if (row.path != path) continue;
        text += (text.empty() ? "" : ", ") + std::string(name) + " " + std::string(row.key);
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
  if (standing != nullptr && !standing->note.empty()) status += ": " + std::string(standing->note);
  return status;
}

std::string default_text(const Row& row, const Row& fallback) {
  return row.unset.empty() ? fallback.value : row.unset;
}

/// What does not depend on a configuration.
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
    if (name == key || std::string(row.section) + "." + name == key) return std::string(row.path);
  }
  return "";
}

std::string nearest_path(const std::string& path) {
  const std::string key = path.substr(path.rfind('.') + 1);
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
