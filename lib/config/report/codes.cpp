#include "config/report/codes.h"

#include <algorithm>

#include "base/text.h"

namespace trainctl {

std::string_view embedded_codes_txt();  // codes.txt, embedded by lib/embed.cmake

namespace {

/// Parses a paragraph of codes.txt: "[code] summary", lines of `rule`, "fails: ..." and "passes:
/// ...".
CodeNote note_of(std::string_view paragraph) {
  CodeNote note;
  note.code = take_until(paragraph, "] ").substr(1);
  note.summary = take_until(paragraph, "\n");
  while (!paragraph.empty()) {
    const std::string_view line = take_until(paragraph, "\n");
    if (line.starts_with("fails: ")) {
      note.fails = line.substr(7);
    } else if (line.starts_with("passes: ")) {
      note.passes = line.substr(8);
    } else {
      note.rule += (note.rule.empty() ? "" : " ") + std::string(line);
    }
  }
  return note;
}

}  // namespace

const std::vector<CodeNote>& diagnostic_codes() {
  static const std::vector<CodeNote> all = [] {
    std::vector<CodeNote> notes;
    std::string_view text = embedded_codes_txt();
    take_until(text, "\n\n");  // skips the comment at the beginning
    while (!text.empty()) notes.push_back(note_of(take_until(text, "\n\n")));
    return notes;
  }();
  return all;
}

const CodeNote* find_code(std::string_view code) {
  const auto& notes = diagnostic_codes();
  const auto found = std::ranges::find(notes, code, &CodeNote::code);
  return found == notes.end() ? nullptr : &*found;
}

}  // namespace trainctl
