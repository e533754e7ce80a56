#include "any_text.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "config/explain/reference.h"
#include "config/migrate/migrate.h"
#include "config/read/read.h"

namespace trainctl::test {
namespace {

std::string check_messages(const ReadResult& result) {
  for (const Diagnostic& diagnostic : result.diagnostics.list()) {
    if (diagnostic.code.empty() || diagnostic.message.empty()) return "an empty message";
    if (diagnostic.message.find('\n') != std::string::npos) return "a message of several lines";
    const Place& place = diagnostic.place;
    if (place.line > 0 && place.end_column <= place.column) return "an empty range";
    const std::size_t width = result.diagnostics.source_line(place).size();
    if (place.line > 0 && static_cast<std::size_t>(place.end_column) > width + 2) {
      return "a range beyond its line: " + diagnostic.code + " " + place.to_string();
    }
  }
  const auto json = nlohmann::json::parse(render_json(result.diagnostics));
  if (json["diagnostics"].size() != result.diagnostics.list().size()) return "JSON lost a message";
  if (json["valid"] == result.diagnostics.has_errors()) return "JSON disagrees about the errors";
  const std::string text = render_text(result.diagnostics, false);
  bool control = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    control = control || (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F;
    if (byte == 0xC2 && i + 1 < text.size()) {
      const auto next = static_cast<unsigned char>(text[i + 1]);
      control = control || (next >= 0x80 && next < 0xA0);
    }
  }
  return control ? "a control character reaches the terminal" : "";
}

/// A few variables, and the files that the input brings.
Surroundings surroundings(const std::map<std::string, std::string>& files) {
  Surroundings around;
  around.load = [files](const std::string& path) -> Surroundings::Loaded {
    const auto found = files.find(path);
    if (found == files.end()) return {std::nullopt, "no such file"};
    return {found->second, ""};
  };
  around.variable = [](const std::string& name) -> std::optional<std::string> {
    static const std::map<std::string, std::string> known{
        {"A", "5"}, {"EMPTY", ""}, {"TEXT", "x: [\"y"}, {"BYTES", "\xff\n"}};
    const auto found = known.find(name);
    return found == known.end() ? std::nullopt : std::optional<std::string>(found->second);
  };
  return around;
}

std::string check_explanations(const ReadResult& result) {
  for (const char* path : {"model", "parallel", "train.steps", "log.every", "data.train"}) {
    const auto text = explain_value(result, path);
    if (!text || text->empty()) return std::string("no explanation of ") + path;
  }
  const std::string lines = render_github(result.diagnostics);
  const auto count = static_cast<std::size_t>(std::count(lines.begin(), lines.end(), '\n'));
  return count == result.diagnostics.list().size() ? "" : "an annotation of several lines";
}

bool has(const Diagnostics& diagnostics, const std::string& code) {
  return std::any_of(diagnostics.list().begin(), diagnostics.list().end(),
                     [&](const Diagnostic& d) { return d.code == code; });
}

/// `alone` was read without --set options.
std::string check_migration(const std::string& text, const ReadResult& alone,
                            const Surroundings& around) {
  const Migrated migrated = migrate_config(text, "fuzz.yaml");
  const bool valid = !alone.diagnostics.has_errors() && !has(alone.diagnostics, "not-carried");
  if (!valid) return "";
  if (!migrated.ok) return "a valid configuration is not migrated";
  const ReadResult again = read_config_text(migrated.text, "fuzz.yaml", {}, around);
  if (again.diagnostics.has_errors()) {
    return "the migrated text has mistakes: " + render_text(again.diagnostics, false) +
           migrated.text;
  }
  return again.config == alone.config
             ? ""
             : "the migrated text reads to another configuration:\n" + migrated.text;
}

std::string check_dump(const ReadResult& result) {
  const std::string dumped = dump_config(result.config, &result.sources);
  const ReadResult again = read_config_text(dumped, "dump.yaml", {});
  if (again.diagnostics.has_errors()) {
    return "the dump has mistakes: " + render_text(again.diagnostics, false) + dumped;
  }
  return again.config == result.config ? "" : "the dump reads back to another configuration";
}

}  // namespace

std::string broken_promise(std::string_view input) {
  std::vector<std::string> parts;
  for (std::size_t start = 0; start <= input.size();) {
    const std::size_t end = std::min(input.find('\0', start), input.size());
    parts.emplace_back(input.substr(start, end - start));
    start = end + 1;
  }
  std::vector<std::string> set_options;
  std::map<std::string, std::string> files;
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const std::size_t name = parts[i].starts_with('@') ? parts[i].find('\n') : std::string::npos;
    if (name == std::string::npos) {
      set_options.push_back(parts[i]);
    } else {
      files[parts[i].substr(1, name - 1)] = parts[i].substr(name + 1);
    }
  }
  const Surroundings around = surroundings(files);
  const ReadResult result = read_config_text(parts[0], "fuzz.yaml", set_options, around);
  std::string wrong = check_messages(result);
  if (wrong.empty()) wrong = check_explanations(result);
  if (wrong.empty()) {
    const ReadResult alone = read_config_text(parts[0], "fuzz.yaml", {}, around);
    wrong = check_migration(parts[0], alone, around);
  }
  if (!wrong.empty() || result.diagnostics.has_errors()) return wrong;
  return check_dump(result);
}

}  // namespace trainctl::test
