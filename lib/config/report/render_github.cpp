// Findings as workflow commands, which GitHub shows as annotations of a pull request.
#include <algorithm>

#include "config/report/diagnostics.h"
#include "config/report/snippet.h"

namespace trainctl {
namespace {

/// Escapes as GitHub defines them; in a property also the colon and the comma.
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
    properties += (properties.empty() ? " " : ",") + std::string(name) + "=" +
                  escaped(printable(value), true);
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
  return std::string(is_error ? "::error" : "::warning") + properties + "::" + message + "\n";
}

}  // namespace

std::string render_github(const Diagnostics& diagnostics) {
  std::string text;
  for (const Diagnostic& diagnostic : diagnostics.list())
    text += annotation(diagnostics, diagnostic);
  return text;
}

}  // namespace trainctl
