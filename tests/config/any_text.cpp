#include "any_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "config/read.h"

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
  const std::vector<std::string> set_options(parts.begin() + 1, parts.end());
  const ReadResult result = read_config_text(parts[0], "fuzz.yaml", set_options);
  const std::string wrong = check_messages(result);
  if (!wrong.empty() || result.diagnostics.has_errors()) return wrong;
  return check_dump(result);
}

}  // namespace trainctl::test
