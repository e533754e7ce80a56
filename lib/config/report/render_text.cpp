#include "config/report/codes.h"
#include "config/report/diagnostics.h"
#include "config/report/snippet.h"

namespace trainctl {
namespace {

/// Terminal colours, or nothing.
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
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string source_lines(const Diagnostics& diagnostics, const Place& place,
                         const Palette& palette) {
  const Snippet snippet = make_snippet(diagnostics, place);
  if (snippet.text.empty()) return "";
  const bool numbered = place.origin == Place::Origin::file;
  std::string number = numbered ? std::to_string(place.line) : "";
  number.insert(0, number.size() < 4 ? 4 - number.size() : 0, ' ');
  const std::string mark = "^" + std::string(snippet.length - 1, '~');
  return number + " | " + snippet.text + "\n" + std::string(number.size(), ' ') + " | " +
         snippet.padding + palette.mark + mark + palette.off + "\n";
}

std::string one(const Diagnostics& diagnostics, const Diagnostic& diagnostic,
                const Palette& palette) {
  const bool is_error = diagnostic.severity == Severity::error;
  const std::string where = diagnostic.place.origin == Place::Origin::defaulted
                                ? ""
                                : printable(diagnostic.place.position()) + ": ";
  std::string text = palette.bold + where + palette.off;
  text += (is_error ? palette.error : palette.warning) +
          std::string(is_error ? "error" : "warning") + "[" + diagnostic.code + "]" + palette.off +
          ": ";
  if (!diagnostic.path.empty()) {
    text += palette.bold + printable(diagnostics.written(diagnostic.path)) + palette.off + ": ";
  }
  text += printable(diagnostic.message) + "\n";
  text += source_lines(diagnostics, diagnostic.place, palette);
  if (!diagnostic.place.note.empty()) {
    text += "     note: the value is " + printable(diagnostic.place.note) + "\n";
  }
  if (!diagnostic.help.empty()) {
    text += std::string("     ") + palette.help + "help" + palette.off + ": " +
            printable(diagnostic.help) + "\n";
  }
  return text;
}

/// The command that explains the first error; nothing if there are only warnings.
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

}  // namespace trainctl
