// trainctl explain: explains the code of a diagnostic.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "commands.h"
#include "config/report/codes.h"
#include "config/report/diagnostics.h"
#include "output.h"

namespace trainctl {

namespace {

constexpr const char* program = "trainctl explain";
constexpr const char* explain_examples =
    "  trainctl explain world-size\n"
    "  trainctl explain --list\n"
    "  trainctl explain --list --format json\n";

nlohmann::ordered_json json_of(const CodeNote& note) {
  return {{"code", note.code},
          {"summary", note.summary},
          {"rule", note.rule},
          {"fails", note.fails},
          {"passes", note.passes}};
}

/// The words of `text` in lines of at most `width` columns.
std::string wrapped(std::string_view text, std::size_t width) {
  std::string result;
  std::size_t column = 0;
  while (!text.empty()) {
    const std::size_t length = std::min(text.find(' '), text.size());
    const bool fits = column == 0 || column + 1 + length <= width;
    if (column > 0) result += fits ? ' ' : '\n';
    column = column > 0 && fits ? column + 1 + length : length;
    result += text.substr(0, length);
    text.remove_prefix(std::min(length + 1, text.size()));
  }
  return result + "\n";
}

std::string text_of(const CodeNote& note) {
  std::string text = std::string(note.code) + ": " + std::string(note.summary) + "\n\n";
  text += wrapped(note.rule, 78);
  if (!note.fails.empty()) {
    text += "\nFails:  " + std::string(note.fails) + "\nPasses: " + std::string(note.passes) + "\n";
  }
  return text;
}

std::string list_of_codes(bool json) {
  const std::vector<CodeNote>& notes = diagnostic_codes();
  if (json) {
    auto list = nlohmann::ordered_json::array();
    for (const CodeNote& note : notes) list.push_back(json_of(note));
    return list.dump(2);
  }
  std::string text;
  for (const CodeNote& note : notes) {
    std::string code(note.code);
    code.resize(std::max<std::size_t>(code.size(), 26), ' ');
    text += code + "  " + std::string(note.summary) + "\n";
  }
  return text;
}

[[noreturn]] void refuse_code(const std::string& code) {
  std::vector<std::string> known;
  for (const CodeNote& note : diagnostic_codes()) known.emplace_back(note.code);
  const std::string near = nearest(code, known);
  refuse(program, "unknown code '" + code + "'" +
                      (near.empty() ? "; trainctl explain --list shows all of them"
                                    : "; did you mean " + near + "?"));
}

}  // namespace

int run_explain(const Arguments& arguments) {
  CommandLine line("Explains the code of a diagnostic: the rule, where it comes from, an example.",
                   program);
  std::string code;
  bool list = false;
  std::string format = "text";
  line.add_text("code", code, "The code, as in error[world-size]");
  line.add_flag("--list", list, "List all codes");
  line.add_format(format, {"text", "json"});
  if (!line.parse(arguments, explain_examples)) return 0;
  if (list != code.empty()) refuse(program, "give either a code or --list");
  if (list) {
    print(with_newline(list_of_codes(format == "json")));
    return 0;
  }
  const CodeNote* note = find_code(code);
  if (note == nullptr) refuse_code(code);
  print(with_newline(format == "json" ? json_of(*note).dump(2) : text_of(*note)));
  return 0;
}

}  // namespace trainctl
