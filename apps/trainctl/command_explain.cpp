// trainctl explain: explains the code of a diagnostic, or a key without any file.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "commands.h"
#include "config/explain/reference.h"
#include "config/report/codes.h"
#include "config/report/diagnostics.h"
#include "output.h"

namespace trainctl {

namespace {

constexpr const char* program = "trainctl explain";
constexpr const char* explain_examples =
    "  trainctl explain world-size\n"
    "  trainctl explain model.hidden_size\n"
    "  trainctl explain parallel\n"
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
  std::string text = note.code + ": " + note.summary + "\n\n";
  text += wrapped(note.rule, 78);
  if (!note.fails.empty()) {
    text += "\nFails:  " + note.fails + "\nPasses: " + note.passes + "\n";
  }
  return text;
}

std::string list_of_codes(bool json) {
  const std::vector<CodeNote>& notes = diagnostic_codes();
  if (json) {
    auto list = nlohmann::ordered_json::array();
    for (const CodeNote& note : notes) list.push_back(json_of(note));
    return json_text(list, JsonText::Style::indent_2);
  }
  std::string text;
  for (const CodeNote& note : notes) {
    std::string code = note.code;
    code.resize(std::max<std::size_t>(code.size(), 26), ' ');
    text += code + "  " + note.summary + "\n";
  }
  return text;
}

[[noreturn]] void refuse_topic(const std::string& word) {
  std::vector<std::string> known;
  for (const CodeNote& note : diagnostic_codes()) known.emplace_back(note.code);
  std::string near = nearest(word, known);
  if (near.empty()) near = nearest_path(word);
  refuse(program, "unknown code or key '" + word + "'" +
                      (near.empty() ? "; trainctl explain --list shows all codes, trainctl schema "
                                      "all keys"
                                    : "; did you mean " + near + "?"));
}

/// The note on a key or section, in our spelling or an upstream one; unset if there is no such key.
std::optional<KeyNote> key_note(const std::string& word) {
  std::optional<KeyNote> note = note_of_key(word);
  const std::string ours = note ? "" : path_of_upstream(word);
  if (ours.empty()) return note;
  note = note_of_key(ours);
  if (note) note->text = word + " is an upstream name of " + ours + "\n" + note->text;
  return note;
}

nlohmann::ordered_json json_of(const KeyNote& note) {
  return {{"key", note.path},        {"meaning", note.meaning},  {"type", note.type},
          {"allowed", note.allowed}, {"default", note.fallback}, {"upstream", note.upstream},
          {"status", note.status}};
}

}  // namespace

int run_explain(const Arguments& arguments) {
  CommandLine line(
      "Explains the code of a diagnostic, or a key of the configuration: what it means, its values "
      "and its default.",
      program);
  std::string word;
  bool list = false;
  std::string format = "text";
  line.add_text("code", word, "A code, as in error[world-size], or a key", "CODE|KEY");
  line.add_flag("--list", list, "List all codes");
  line.add_format(format, {"text", "json"});
  if (!line.parse(arguments, explain_examples)) return 0;
  if (list != word.empty()) refuse(program, "give a code, a key or --list");
  const bool json = format == "json";
  if (list) {
    print(with_newline(list_of_codes(json)));
  } else if (const CodeNote* code = find_code(word)) {
    print(
        with_newline(json ? json_text(json_of(*code), JsonText::Style::indent_2) : text_of(*code)));
  } else if (const std::optional<KeyNote> key = key_note(word)) {
    print(with_newline(json ? json_text(json_of(*key), JsonText::Style::indent_2) : key->text));
  } else {
    refuse_topic(word);
  }
  return 0;
}

}  // namespace trainctl
