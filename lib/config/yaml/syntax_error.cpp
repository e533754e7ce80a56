#include "config/yaml/syntax_error.h"

#include <algorithm>
#include <cctype>

namespace trainctl {
namespace {

std::string help_for(const std::string& message) {
  const auto has = [&](const char* word) { return message.find(word) != std::string::npos; };
  if (has("sequence flow")) return "close the list with ]";
  if (has("map flow")) return "close the map with }";
  if (has("illegal map value") || has("end of map") || has("end of sequence")) {
    return "check the indentation; put a value that contains \": \" in quotes";
  }
  if (has("unknown token")) return "put a value that starts with @, ` or % in quotes";
  if (has("escape")) return "write \\\\ for a backslash, or use single quotes";
  return "";
}

/// Looks for a missing space after a colon in the reported line and the one before it.
void find_missing_space(TextMarks& marks, int noticed_line, SyntaxError& result) {
  for (int candidate : {noticed_line, noticed_line - 1}) {
    const std::string_view line = marks.line(candidate);
    const std::size_t behind = missing_space(line);
    if (behind == 0) continue;
    const std::size_t key = line.find_first_not_of(" -");
    result.span = marks.span(marks.offset(candidate - 1, static_cast<int>(key)), line.size() - key);
    result.message = "invalid YAML: missing space after the colon";
    const OddSpace odd = odd_space(line.substr(behind));
    if (odd.bytes > 0) result.message += ", but " + std::string(odd.name);
    result.help = "write `" + std::string(line.substr(key, behind - key)) + " " +
                  std::string(line.substr(behind + odd.bytes, 40)) + "`";
    return;
  }
}

struct OddCharacter {
  std::string_view bytes;
  std::string_view name;
};
constexpr OddCharacter odd_spaces[] = {{"\xC2\xA0", "a no-break space (U+00A0)"},
                                       {"\xE2\x80\xAF", "a narrow no-break space (U+202F)"},
                                       {"\xE3\x80\x80", "an ideographic space (U+3000)"},
                                       {"\xE2\x80\x8B", "a zero-width space (U+200B)"}};
constexpr OddCharacter odd_colons[] = {{"\xEF\xBC\x9A", "a full-width colon (U+FF1A)"},
                                       {"=", "an equals sign"}};

std::string_view without_blanks(std::string_view text) {
  const std::size_t first = std::min(text.find_first_not_of(' '), text.size());
  const std::size_t last = text.find_last_not_of(' ');
  return last == std::string_view::npos ? "" : text.substr(first, last + 1 - first);
}

/// The line that has no colon between key and value: the parser notices the next one.
void find_missing_colon(TextMarks& marks, int noticed_line, SyntaxError& result) {
  for (int candidate : {noticed_line - 1, noticed_line}) {
    const std::string_view line = marks.line(candidate);
    const std::size_t start = std::min(line.find_first_not_of(' '), line.size());
    std::size_t end = start;
    while (end < line.size() &&
           (std::isalnum(static_cast<unsigned char>(line[end])) || line[end] == '_')) {
      ++end;
    }
    if (end == start || line.find(": ") != std::string_view::npos || line.ends_with(':')) continue;
    std::string_view rest = without_blanks(line.substr(end));
    std::string found;
    for (const auto& [bytes, name] : odd_colons) {
      if (!rest.starts_with(bytes)) continue;
      found = ", but " + std::string(name);
      rest = without_blanks(rest.substr(bytes.size()));
    }
    const bool is_bare = found.empty() && (line.size() == end || line[end] != ' ');
    if (is_bare || rest.empty() || rest.starts_with('#')) continue;
    const std::string key(line.substr(start, end - start));
    result.span =
        marks.span(marks.offset(candidate - 1, static_cast<int>(start)), line.size() - start);
    result.message = "invalid YAML: line " + std::to_string(candidate) +
                     " has no colon and space after " + key + found;
    result.help = "write `" + key + ": " + std::string(rest.substr(0, 40)) + "`";
    return;
  }
}

}  // namespace

std::size_t missing_space(std::string_view line) {
  const std::size_t start = std::min(line.find_first_not_of(" -"), line.size());
  std::size_t i = start;
  while (i < line.size() && (std::isalnum(static_cast<unsigned char>(line[i])) || line[i] == '_')) {
    ++i;
  }
  const bool is_key = i > start && i + 1 < line.size() && line[i] == ':';
  const bool is_url = is_key && line[i + 1] == '/';
  return is_key && !is_url && line[i + 1] != ' ' && line[i + 1] != '\t' ? i + 1 : 0;
}

OddSpace odd_space(std::string_view text) {
  for (const auto& [bytes, name] : odd_spaces) {
    if (text.starts_with(bytes)) return {bytes.size(), name};
  }
  return {};
}

SyntaxError explain_syntax_error(const std::string& message, std::size_t noticed,
                                 std::size_t read_until, const std::string& text,
                                 TextMarks& marks) {
  if (message.find("EOF in scalar") != std::string::npos) {
    const std::size_t quote = std::min(text.find_first_of("\"'", read_until), text.size());
    return {"unterminated-quote", "the quote opened here is never closed",
            std::string("add the closing ") + marks.at(quote), marks.span(quote, text.size())};
  }
  if (noticed == text.size() && noticed > 0) {
    noticed = std::min(text.find_last_not_of(" \n"), text.size() - 1);
  }
  SyntaxError result{"syntax", "invalid YAML: " + message, help_for(message),
                     marks.span(noticed, 1)};
  const int line = result.span.line;
  find_missing_colon(marks, line, result);
  find_missing_space(marks, line, result);
  return result;
}

}  // namespace trainctl
