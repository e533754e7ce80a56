#include "config/migrate/write_yaml.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "config/schema/known_paths.h"
#include "config/schema/values.h"

namespace trainctl {
namespace {

constexpr std::string_view blanks = " \t";

/// Finds the start of each line's comment, also after quotes and block scalars of several lines.
class CommentScanner {
 public:
  /// The offset of the line's comment; npos if it has none.
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
    bool plain = false;  // inside an unquoted value, where quotes have no meaning
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
    const bool alone = line.find_first_not_of(blanks) == at;  // only a comment, or a blank line
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

namespace {

constexpr std::size_t widest = 96;
constexpr std::size_t max_bytes = 4 * max_yaml_bytes;  // limit: aliases can make trees endless

/// Whether a text needs no quotes inside brackets; the braces of a variable need none.
bool plain_in_brackets(const std::string& text) {
  return text.starts_with("${") || text.find_first_of(",[]{}#:&*!|>'\"%@`") == std::string::npos;
}

std::string in_quotes(const std::string& value) {
  std::string text = "\"";
  for (char c : value) {
    if (c == '"' || c == '\\') text += '\\';
    text += c == '\n' ? std::string("\\n") : c == '\t' ? std::string("\\t") : std::string(1, c);
  }
  return text + "\"";
}

class TreeWriter {
 public:
  TreeWriter(const YamlTree& tree, Comments comments)
      : tree_(tree), comments_(std::move(comments)) {}

  std::string document(int root) {
    for (const std::string& line : comments_.header) out_ += line + "\n";
    if (!comments_.header.empty()) out_ += "\n";
    bool first = true;
    for (const YamlEntry& entry : in_order(root, "")) {
      const bool is_map = tree_.node(entry.value).kind == YamlNode::Kind::map;
      if (!std::exchange(first, false) && is_map) out_ += "\n";
      write_entry(entry, "", "");
    }
    if (!comments_.footer.empty()) out_ += "\n";
    for (const std::string& line : comments_.footer) out_ += line + "\n";
    return std::move(out_);
  }

 private:
  std::vector<YamlEntry> in_order(int map, const std::string& path) const {
    std::vector<YamlEntry> entries = tree_.node(map).entries;
    const auto order = [&](const YamlEntry& entry) {
      if (path.empty() && entry.key == "include") return 0;
      const KnownPath* known = find_known_path(path + entry.key);
      return known == nullptr ? 1 << 20 : known->order;
    };
    std::stable_sort(entries.begin(), entries.end(),
                     [&](const YamlEntry& a, const YamlEntry& b) { return order(a) < order(b); });
    return entries;
  }

  void write_entry(const YamlEntry& entry, const std::string& indent, const std::string& path) {
    if (out_.size() > max_bytes) return;
    const std::string at = path + entry.key;
    const int line = entry.key_span.text == 0 ? entry.key_span.line : 0;
    for (const std::string& comment : taken(comments_.above, line)) {
      out_ += indent + comment + "\n";
    }
    const YamlNode& node = tree_.node(entry.value);
    std::string behind = taken(comments_.behind, line);
    if (!behind.empty()) behind.insert(0, "  ");
    const std::string key = plain_in_brackets(entry.key) ? entry.key : write_value(entry.key);
    out_ += indent + key + ":" + (node.overrides >= 0 ? " !override" : "");
    if (node.kind == YamlNode::Kind::map && !node.entries.empty()) {
      out_ += behind + "\n";
      for (const YamlEntry& inner : in_order(entry.value, at + ".")) {
        write_entry(inner, indent + "  ", at + ".");
      }
    } else {
      const std::string value = value_of(entry.value, at, false);
      const bool list = node.kind == YamlNode::Kind::sequence && !node.items.empty();
      const std::size_t width = indent.size() + key.size() + value.size() + 2;
      if (list && width > widest) {
        out_ += behind + "\n";
        for (int item : node.items) out_ += indent + "  - " + value_of(item, "", true) + "\n";
      } else {
        out_ += " " + value + behind + "\n";
      }
    }
  }

  /// A value as one line.
  std::string value_of(int index, const std::string& path, bool in_brackets) const {
    const YamlNode& node = tree_.node(index);
    switch (node.kind) {
      case YamlNode::Kind::null: return "null";
      case YamlNode::Kind::scalar: return scalar(node, path, in_brackets);
      case YamlNode::Kind::sequence: return list_of(node);
      case YamlNode::Kind::map: break;
    }
    std::string text;
    for (const YamlEntry& entry : node.entries) {
      if (text.size() > max_bytes) break;
      text += (text.empty() ? "{" : ", ") + write_value(entry.key) + ": " +
              value_of(entry.value, "", true);
    }
    return text.empty() ? "{}" : text + "}";
  }

  std::string list_of(const YamlNode& node) const {
    std::string text;
    for (int item : node.items) {
      if (text.size() > max_bytes) break;
      text += (text.empty() ? "[" : ", ") + value_of(item, "", true);
    }
    return text.empty() ? "[]" : text + "]";
  }

  std::string scalar(const YamlNode& node, const std::string& path, bool in_brackets) const {
    if (node.expands && node.quoted) return in_quotes(node.scalar);  // its variables are kept
    const bool lines = node.scalar.find('\n') != std::string::npos;
    if (node.quoted || lines) return lines ? in_quotes(node.scalar) : write_value(node.scalar);
    const KnownPath* known = find_known_path(path);
    if (known != nullptr && known->is_bool) {  // also True and FALSE of YAML 1.1
      std::string word = node.scalar;
      for (char& c : word) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
      if (word == "true" || word == "false") return word;
    }
    return in_brackets && !plain_in_brackets(node.scalar) ? write_value(node.scalar) : node.scalar;
  }

  /// Removes and returns the comment of a source line, so that it is written only once.
  template <class Text>
  static Text taken(std::map<int, Text>& comments, int line) {
    const auto found = comments.find(line);
    return found == comments.end() ? Text{} : std::exchange(found->second, Text{});
  }

  const YamlTree& tree_;
  Comments comments_;
  std::string out_;
};

}  // namespace

std::string write_tree(const YamlTree& tree, int root, Comments comments) {
  return TreeWriter(tree, std::move(comments)).document(root);
}

}  // namespace trainctl
