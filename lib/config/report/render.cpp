// Renders findings as text with a caret below the source line, as JSON, and as workflow commands,
// which GitHub shows as annotations of a pull request.

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/json_text.h"
#include "base/log.h"
#include "base/text.h"
#include "config/report/codes.h"
#include "config/report/diagnostics.h"

namespace trainctl {
namespace {

/// The UTF-8 characters of a line.
std::vector<std::string> characters_of(const std::string& line) {
  std::vector<std::string> result;
  for (char c : line) {
    if ((static_cast<unsigned char>(c) & 0xC0U) == 0x80U && !result.empty()) {
      result.back() += c;
    } else {
      result.emplace_back(1, c);
    }
  }
  return result;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::size_t steering = text[i] == '\n' ? 1 : steering_bytes(text, i);
    result += steering > 0 ? '?' : text[i];
    i += steering > 1 ? steering - 1 : 0;
  }
  return result;
}

namespace {

struct Snippet {
  std::string text;           // "" if there is no text to show
  std::size_t highlight = 0;  // characters before the marked part
  std::size_t length = 0;     // characters of the marked part
  std::string padding;        // blanks as wide as the text before the marked part, with its tabs
};

/// The part of the source line to show for a place; empty if its text is unknown.
Snippet make_snippet(const Diagnostics& diagnostics, const Place& place) {
  constexpr std::size_t widest = 160;
  constexpr std::size_t lead = 60;  // characters kept before the place in a cut line
  const std::vector<std::string> line = characters_of(printable(diagnostics.source_line(place)));
  if (line.empty() || place.column < 1) return {};
  const std::size_t start = std::min(static_cast<std::size_t>(place.column) - 1, line.size());
  const bool cut = line.size() > widest;
  const std::size_t from = cut && start > lead ? start - lead : 0;
  const std::size_t to = cut ? std::min(line.size(), from + widest) : line.size();
  Snippet snippet;
  if (from > 0) {
    snippet.text = "...";
    snippet.padding = "   ";
  }
  for (std::size_t i = from; i < to; ++i) {
    snippet.text += line[i];
    if (i < start) snippet.padding += line[i] == "\t" ? '\t' : ' ';
  }
  if (to < line.size()) snippet.text += "...";
  const std::size_t end = std::min(static_cast<std::size_t>(std::max(place.end_column, 1)) - 1, to);
  snippet.highlight = start - from + (from > 0 ? 3 : 0);
  snippet.length = end > start ? end - start : 1;
  return snippet;
}

/// Escape sequences of terminal colours; empty without colours.
struct Palette {
  const char* bold = "";
  const char* error = "";
  const char* warning = "";
  const char* mark = "";
  const char* help = "";
  const char* off = "";
};

constexpr Palette colours{"\x1b[1m",    "\x1b[1;31m", "\x1b[1;33m",
                          "\x1b[1;32m", "\x1b[36m",   "\x1b[0m"};

std::string counted(std::size_t count, const std::string& noun) {
  return formatted("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string source_lines(const Diagnostics& diagnostics, const Place& place,
                         const Palette& palette) {
  const Snippet snippet = make_snippet(diagnostics, place);
  if (snippet.text.empty()) return "";
  const bool numbered = place.origin == Place::Origin::file;
  std::string number = numbered ? std::to_string(place.line) : "";
  number.insert(0, number.size() < 4 ? 4 - number.size() : 0, ' ');
  const std::string mark = formatted("^{}", std::string(snippet.length - 1, '~'));
  return formatted("{} | {}\n{} | {}{}{}{}\n", number, snippet.text,
                   std::string(number.size(), ' '), snippet.padding, palette.mark, mark,
                   palette.off);
}

std::string one(const Diagnostics& diagnostics, const Diagnostic& diagnostic,
                const Palette& palette) {
  const bool is_error = diagnostic.severity == Severity::error;
  const std::string where = diagnostic.place.origin == Place::Origin::defaulted
                                ? ""
                                : printable(diagnostic.place.position()) + ": ";
  std::string text = palette.bold + where + palette.off;
  text += formatted("{}{}[{}]{}: ", is_error ? palette.error : palette.warning,
                    is_error ? "error" : "warning", diagnostic.code, palette.off);
  if (!diagnostic.path.empty()) {
    text += palette.bold + printable(diagnostics.written(diagnostic.path)) + palette.off + ": ";
  }
  text += printable(diagnostic.message) + "\n";
  text += source_lines(diagnostics, diagnostic.place, palette);
  if (!diagnostic.place.note.empty()) {
    text += "     note: the value is " + printable(diagnostic.place.note) + "\n";
  }
  if (!diagnostic.help.empty()) {
    text += formatted("     {}help{}: {}\n", palette.help, palette.off, printable(diagnostic.help));
  }
  return text;
}

/// A line that names the command to explain the first error; "" if there are only warnings.
std::string pointer(const Diagnostics& diagnostics) {
  for (const Diagnostic& diagnostic : diagnostics.list()) {
    if (diagnostic.severity != Severity::error || find_code(diagnostic.code) == nullptr) continue;
    return "`trainctl explain " + diagnostic.code + "` explains this error\n";
  }
  return "";
}

}  // namespace

std::string render_text(const Diagnostics& diagnostics, bool color) {
  const Palette palette = color ? colours : Palette{};
  std::string text;
  std::size_t errors = 0;
  for (const Diagnostic& diagnostic : diagnostics.list()) {
    text += one(diagnostics, diagnostic, palette);
    errors += diagnostic.severity == Severity::error ? 1 : 0;
  }
  const std::size_t warnings = diagnostics.list().size() - errors;
  std::string summary = errors > 0 ? counted(errors, "error") : "";
  if (warnings > 0) summary += (errors > 0 ? ", " : "") + counted(warnings, "warning");
  return summary.empty() ? text : text + summary + "\n" + pointer(diagnostics);
}

namespace {

using Json = nlohmann::ordered_json;

const char* name_of(Place::Origin origin) {
  switch (origin) {
    case Place::Origin::file: return "file";
    case Place::Origin::set_option: return "set";
    case Place::Origin::preset: return "preset";
    case Place::Origin::model_files: return "model";
    case Place::Origin::defaulted: break;
  }
  return "default";
}

Json range_of(const Place& place) {
  if (place.line < 1) return {{"filename", place.file}, {"start", nullptr}, {"end", nullptr}};
  return {{"filename", place.file},
          {"start", {{"line", place.line}, {"column", place.column}}},
          {"end", {{"line", place.line}, {"column", std::max(place.end_column, place.column)}}}};
}

Json document_of(const Diagnostics& diagnostics, const Diagnostic& diagnostic) {
  const Place& place = diagnostic.place;
  Json json = {{"severity", diagnostic.severity == Severity::error ? "error" : "warning"},
               {"code", diagnostic.code},
               {"summary", diagnostic.message},
               {"path", diagnostic.path},
               {"written_as", diagnostics.written(diagnostic.path)},
               {"help", diagnostic.help.empty() ? Json(nullptr) : Json(diagnostic.help)},
               {"origin", name_of(place.origin)},
               {"range", range_of(place)}};
  const Snippet snippet = make_snippet(diagnostics, place);
  json["snippet"] = nullptr;
  if (!snippet.text.empty()) {
    json["snippet"] = {{"code", snippet.text},
                       {"start_line", place.line},
                       {"highlight_start_offset", snippet.highlight},
                       {"highlight_end_offset", snippet.highlight + snippet.length}};
  }
  return json;
}

}  // namespace

std::vector<std::string> json_rows(const Diagnostics& diagnostics) {
  std::vector<std::string> rows;
  for (const Diagnostic& diagnostic : diagnostics.list()) {
    rows.push_back(json_text(document_of(diagnostics, diagnostic), JsonText::Style::compact));
  }
  return rows;
}

std::string render_json(const Diagnostics& diagnostics,
                        const std::vector<std::string>& not_checked) {
  Json list = Json::array();
  std::size_t errors = 0;
  for (const Diagnostic& diagnostic : diagnostics.list()) {
    list.push_back(document_of(diagnostics, diagnostic));
    errors += diagnostic.severity == Severity::error ? 1 : 0;
  }
  Json document = {{"format_version", 1},
                   {"valid", errors == 0},
                   {"error_count", errors},
                   {"warning_count", diagnostics.list().size() - errors},
                   {"diagnostics", list}};
  if (!not_checked.empty()) document["not_checked"] = not_checked;
  return json_text(document, JsonText::Style::indent_2) + "\n";
}

namespace {

/// Escapes text as GitHub requires; in a property also colons and commas.
std::string escaped(const std::string& text, bool property) {
  std::string result;
  for (char c : text) {
    switch (c) {
      case '%': result += "%25"; break;
      case '\r': result += "%0D"; break;
      case '\n': result += "%0A"; break;
      case ':': result += property ? "%3A" : ":"; break;
      case ',': result += property ? "%2C" : ","; break;
      default: result += c;
    }
  }
  return result;
}

std::string annotation(const Diagnostics& diagnostics, const Diagnostic& diagnostic) {
  const Place& place = diagnostic.place;
  std::string properties;
  const auto add = [&](const char* name, const std::string& value) {
    properties +=
        formatted("{}{}={}", properties.empty() ? " " : ",", name, escaped(printable(value), true));
  };
  const bool in_file = place.origin == Place::Origin::file && !place.file.empty();
  if (in_file) add("file", place.file);
  if (in_file && place.line > 0) {
    add("line", std::to_string(place.line));
    add("col", std::to_string(place.column));
    add("endColumn", std::to_string(std::max(place.end_column, place.column)));
  }
  add("title", diagnostic.code);
  std::string message = diagnostic.path.empty() ? "" : diagnostics.written(diagnostic.path) + ": ";
  message += diagnostic.message;
  const bool elsewhere = !in_file && place.origin != Place::Origin::defaulted;
  if (elsewhere) message += " (" + place.to_string() + ")";
  message = escaped(printable(message), false);
  if (!diagnostic.help.empty()) {
    message += "%0Ahelp: " + escaped(printable(diagnostic.help), false);
  }
  const bool is_error = diagnostic.severity == Severity::error;
  return formatted("{}{}::{}\n", is_error ? "::error" : "::warning", properties, message);
}

}  // namespace

std::string render_github(const Diagnostics& diagnostics) {
  std::string text;
  for (const Diagnostic& diagnostic : diagnostics.list())
    text += annotation(diagnostics, diagnostic);
  return text;
}

}  // namespace trainctl
