// Positions in a text: from (line, byte column), which the YAML parser counts from 0, to spans that
// count characters from 1; and the ends of written values.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/yaml/tree.h"

namespace trainctl {

class TextMarks {
 public:
  /// Keeps a reference to `text`.
  explicit TextMarks(const std::string& text);

  /// Byte offset of a mark; a mark outside the text is moved to the nearest end.
  std::size_t offset(int line, int byte_column) const;
  /// The byte there, '\0' at the end of the text.
  char at(std::size_t offset) const { return offset < text_.size() ? text_[offset] : '\0'; }
  /// `bytes` bytes from `offset`, limited to the line.
  Span span(std::size_t offset, std::size_t bytes);
  /// The offset after any anchor and tag in front of a value.
  std::size_t skip_properties(std::size_t offset) const;
  /// Whether a null is written out there.
  bool is_null_word(std::size_t offset) const;
  /// The first line of a plain or block scalar with this value.
  Span plain(std::size_t offset, std::string_view value);
  /// The first line of a quoted scalar, and the offset after its closing quote (npos: none).
  std::pair<Span, std::size_t> quoted(std::size_t offset);
  /// The text of a line, counted from 1.
  std::string_view line(int number) const;

 private:
  const std::string& text_;
  std::vector<std::size_t> starts_;  // of each line
  // The position up to which columns were counted last: marks come nearly in order, so continuing
  // from there keeps long lines cheap.
  std::size_t counted_line_ = 0;
  std::size_t counted_offset_ = 0;
  int counted_column_ = 1;
};

}  // namespace trainctl
