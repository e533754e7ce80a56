#include "config/yaml/comments.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

namespace trainctl {
namespace {

constexpr std::string_view blanks = " \t";

/// Finds where the comment of each line starts, over quotes and block scalars of several lines.
class CommentScanner {
 public:
  /// The offset of the line's comment, npos where there is none.
  std::size_t comment_of(std::string_view line) {
    const std::size_t indent = line.find_first_not_of(' ');
    if (in_block_) {
      if (indent == std::string_view::npos || indent > block_indent_) return npos;
      in_block_ = false;
    }
    const std::size_t at = scan(line);
    const std::string_view content = line.substr(0, at);
    if (quote_ == '\0' && opens_block(content)) {
      in_block_ = true;
      block_indent_ = indent;
    }
    return at;
  }

 private:
  static constexpr std::size_t npos = std::string_view::npos;

  static bool opens_block(std::string_view content) {
    const std::size_t end = content.find_last_not_of(blanks);
    if (end == npos) return false;
    const std::size_t blank = content.find_last_of(blanks, end);
    if (blank == npos) return false;
    const std::string_view word = content.substr(blank + 1, end - blank);
    return word.find_first_not_of("|>+-0123456789") == npos && (word[0] == '|' || word[0] == '>');
  }

  std::size_t scan(std::string_view line) {
    bool plain = false;  // inside a value without quotes, where quotes mean nothing
    for (std::size_t i = 0; i < line.size(); ++i) {
      const char c = line[i];
      const char next = i + 1 < line.size() ? line[i + 1] : ' ';
      const bool next_is_blank = blanks.find(next) != npos;
      if (quote_ != '\0') {
        const bool escape = (quote_ == '"' && c == '\\') || (c == '\'' && next == '\'');
        if (escape && (quote_ == '"') == (c == '\\')) {
          ++i;
        } else if (c == quote_) {
          quote_ = '\0';
          plain = true;
        }
      } else if (c == '#' && (i == 0 || blanks.find(line[i - 1]) != npos)) {
        return i;
      } else if ((c == '"' || c == '\'') && !plain) {
        quote_ = c;
      } else if (std::string_view("[]{},").find(c) != npos || (c == ':' && next_is_blank)) {
        plain = false;
      } else if (!plain && (c == '&' || c == '!')) {
        i = std::min(line.find_first_of(blanks, i), line.size());
      } else if (blanks.find(c) == npos && !(c == '-' && next_is_blank)) {
        plain = true;
      }
    }
    return npos;
  }

  char quote_ = '\0';
  bool in_block_ = false;
  std::size_t block_indent_ = 0;
};

}  // namespace

Comments collect_comments(const std::string& text, const std::set<int>& key_lines) {
  Comments result;
  CommentScanner scanner;
  std::vector<std::string> waiting;
  bool in_header = true;
  int number = 0;
  for (std::size_t start = 0; start < text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    const std::string_view line = std::string_view(text).substr(start, end - start);
    start = end + 1;
    const std::size_t at = scanner.comment_of(line);
    const std::string comment(at == std::string_view::npos ? "" : line.substr(at));
    const bool alone = line.find_first_not_of(blanks) == at;  // a comment or nothing
    if (alone && !comment.empty()) {
      (in_header ? result.header : waiting).push_back(comment);
      continue;
    }
    if (in_header && alone && result.header.empty()) continue;
    in_header = false;
    if (alone) continue;
    const auto after = key_lines.upper_bound(number + 1);
    if (key_lines.contains(number + 1)) {
      if (!waiting.empty()) result.above[number + 1] = std::exchange(waiting, {});
      if (!comment.empty()) result.behind[number + 1] = comment;
    } else if (!comment.empty() && after != key_lines.begin()) {
      result.above[*std::prev(after)].push_back(comment);
    }
  }
  result.footer = std::move(waiting);
  return result;
}

}  // namespace trainctl
