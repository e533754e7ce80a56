// Explains an error of the YAML parser to the author of the file: the place of the cause rather
// than the place where it was noticed, and a remedy.
#pragma once

#include <string>
#include <string_view>

#include "config/yaml/text_marks.h"

namespace trainctl {

struct SyntaxError {
  std::string code;
  std::string message;
  std::string help;
  Span span;
};

/// `message` and the byte offset `noticed` are the parser's; it had understood the text up to
/// `read_until`.
SyntaxError explain_syntax_error(const std::string& message, std::size_t noticed,
                                 std::size_t read_until, const std::string& text, TextMarks& marks);

/// For a line that starts like "b:2": the length of "b:" with the blanks before it; 0 if the line
/// is fine.
std::size_t missing_space(std::string_view line);

/// A character that looks like a space and is none, at the start of a text.
struct OddSpace {
  std::size_t bytes = 0;  // 0: there is none
  std::string_view name;  // "a no-break space (U+00A0)"
};
OddSpace odd_space(std::string_view text);

}  // namespace trainctl
