#include "config/yaml/text_marks.h"

#include <algorithm>

namespace trainctl {
namespace {

int count_characters(std::string_view text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }));
}

}  // namespace

TextMarks::TextMarks(const std::string& text) : text_(text), starts_{0} {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\n' && i + 1 < text.size()) starts_.push_back(i + 1);
  }
}

std::size_t TextMarks::offset(int line, int byte_column) const {
  if (line < 0 || byte_column < 0) return 0;
  const auto index = static_cast<std::size_t>(line);
  if (index >= starts_.size()) return text_.size();
  return std::min(starts_[index] + static_cast<std::size_t>(byte_column), text_.size());
}

Span TextMarks::span(std::size_t offset, std::size_t bytes) {
  const auto after = std::upper_bound(starts_.begin(), starts_.end(), offset);
  const auto line = static_cast<std::size_t>(after - starts_.begin()) - 1;
  if (line != counted_line_ || offset < counted_offset_) {
    counted_line_ = line;
    counted_offset_ = starts_[line];
    counted_column_ = 1;
  }
  const std::string_view text(text_);
  counted_column_ += count_characters(text.substr(counted_offset_, offset - counted_offset_));
  counted_offset_ = offset;
  const std::size_t line_end = std::min(text.find('\n', offset), text.size());
  const std::string_view covered = text.substr(offset, std::min(bytes, line_end - offset));
  Span result;
  result.line = static_cast<int>(line) + 1;
  result.column = counted_column_;
  result.end_column = counted_column_ + std::max(1, count_characters(covered));
  return result;
}

std::size_t TextMarks::skip_properties(std::size_t offset) const {
  while (at(offset) == '&' || at(offset) == '!') {
    offset = std::min(text_.find_first_of(" \t\n,[]{}", offset), text_.size());
    offset = std::min(text_.find_first_not_of(" \t\n", offset), text_.size());
    while (at(offset) == '#') {
      offset = std::min(text_.find('\n', offset), text_.size());
      offset = std::min(text_.find_first_not_of(" \t\n", offset), text_.size());
    }
  }
  return offset;
}

bool TextMarks::is_null_word(std::size_t offset) const {
  const std::size_t end = std::min(text_.find_first_of(" \t\n,]}", offset), text_.size());
  const std::string_view word = std::string_view(text_).substr(offset, end - offset);
  return word == "~" || word == "null" || word == "Null" || word == "NULL";
}

Span TextMarks::plain(std::size_t offset, std::string_view value) {
  if (std::string_view(text_).substr(offset, value.size()) == value) {
    return span(offset, value.size());
  }
  return span(offset, text_.size());  // folded over several lines: up to the end of the first
}

std::pair<Span, std::size_t> TextMarks::quoted(std::size_t offset) {
  const char quote = at(offset);
  std::size_t i = offset + 1;
  for (; i < text_.size(); ++i) {
    if (quote == '"' && text_[i] == '\\') {
      ++i;
    } else if (text_[i] == quote) {
      if (quote == '"' || at(i + 1) != quote) break;
      ++i;
    }
  }
  const bool closed = i < text_.size();
  return {span(offset, closed ? i + 1 - offset : text_.size()), closed ? i + 1 : std::string::npos};
}

std::string_view TextMarks::line(int number) const {
  if (number < 1 || static_cast<std::size_t>(number) > starts_.size()) return {};
  const std::size_t start = starts_[static_cast<std::size_t>(number) - 1];
  const std::string_view rest = std::string_view(text_).substr(start);
  return rest.substr(0, rest.find('\n'));
}

}  // namespace trainctl
