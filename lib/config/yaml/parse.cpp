// Builds our tree from the events of yaml-cpp's parser. yaml-cpp's own class Node hides duplicate
// keys, ignores merge keys and has no limits.

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <map>
#include <optional>
#include <sstream>

#include "base/text.h"
#include "config/yaml/tree.h"

namespace trainctl {
namespace {

bool is_continuation(unsigned char byte) { return (byte & 0xC0U) == 0x80U; }

/// The length of the UTF-8 sequence at `at` [bytes]; 0 if it is invalid.
std::size_t utf8_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || at + length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if (!is_continuation(byte(at + i))) return 0;
  }
  const unsigned char second = byte(at + 1);
  const bool overlong = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool surrogate = first == 0xED && second > 0x9F;
  const bool too_large = first == 0xF4 && second > 0x8F;
  return overlong || surrogate || too_large ? 0 : length;
}

std::string hex(unsigned char byte) {
  char text[8];
  std::snprintf(text, sizeof text, "0x%02X", byte);
  return text;
}

struct Finding {
  std::string code;
  std::string message;
  std::string help;
};

Finding bad_byte(unsigned char byte) {
  return {"encoding", "the byte " + hex(byte) + " is not valid UTF-8", "save the file as UTF-8"};
}

Finding bad_control(unsigned char code) {
  return {"control-character", "the control character " + hex(code) + " is not allowed",
          "remove it; a UTF-16 file must be saved as UTF-8"};
}

}  // namespace

std::string normalise_text(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  std::string result;
  result.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r') {
      result += text[i];
    } else if (i + 1 == text.size() || text[i + 1] != '\n') {
      result += '\n';
    }
  }
  return result;
}

bool check_text(const std::string& text, const Place& source, Diagnostics& diagnostics) {
  const auto refuse = [&](Finding finding, int line, int column) {
    Place place{source.origin, source.file, line, column, line > 0 ? column + 1 : 0};
    diagnostics.add({Severity::error, std::move(finding.code), "", std::move(finding.message),
                     std::move(finding.help), std::move(place)});
    return false;
  };
  if (text.size() > max_yaml_bytes) {
    return refuse({"too-large", "a configuration must be at most 1 MiB", "is this the right file?"},
                  0, 0);
  }
  int line = 1;
  int column = 1;
  bool indentation = true;
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const std::size_t length = utf8_length(text, i);
    const bool c1 = byte == 0xC2 && length == 2 && static_cast<unsigned char>(text[i + 1]) < 0xA0;
    const bool control = (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F || c1;
    if (length == 0) return refuse(bad_byte(byte), line, column);
    if (control) {
      return refuse(bad_control(c1 ? static_cast<unsigned char>(text[i + 1]) : byte), line, column);
    }
    if (byte == '\t' && indentation) {
      const std::size_t next = text.find_first_not_of(" \t", i);
      if (next != std::string::npos && text[next] != '\n' && text[next] != '#') {
        return refuse({"tab", "a tab must not be used for indentation", "use spaces"}, line,
                      column);
      }
    }
    indentation = byte == '\n' || (indentation && (byte == ' ' || byte == '\t'));
    column = byte == '\n' ? 1 : column + 1;
    line += byte == '\n' ? 1 : 0;
    i += length;
  }
  return true;
}

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
  return span(offset, text_.size());  // folded text: up to the end of its first line
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

namespace {

struct SyntaxError {
  std::string code;
  std::string message;
  std::string help;
  Span span;
};

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

/// Looks for a missing space after a colon in the reported line and in the line before.
void find_missing_space(TextMarks& marks, int noticed_line, SyntaxError& result) {
  for (int candidate : {noticed_line, noticed_line - 1}) {
    const std::string_view line = marks.line(candidate);
    const std::size_t behind = missing_space(line);
    if (behind == 0) continue;
    const std::size_t key = line.find_first_not_of(" -");
    result.span = marks.span(marks.offset(candidate - 1, static_cast<int>(key)), line.size() - key);
    result.message = "invalid YAML: missing space after the colon";
    const OddSpace odd = odd_space(line.substr(behind));
    if (odd.bytes > 0) result.message += formatted(", but {}", odd.name);
    result.help = formatted("write `{} {}`", line.substr(key, behind - key),
                            line.substr(behind + odd.bytes, 40));
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

/// Looks for a line without a colon between key and value: the parser reports the line after it.
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
      found = formatted(", but {}", name);
      rest = without_blanks(rest.substr(bytes.size()));
    }
    const bool is_bare = found.empty() && (line.size() == end || line[end] != ' ');
    if (is_bare || rest.empty() || rest.starts_with('#')) continue;
    const std::string key(line.substr(start, end - start));
    result.span =
        marks.span(marks.offset(candidate - 1, static_cast<int>(start)), line.size() - start);
    result.message =
        formatted("invalid YAML: line {} has no colon and space after {}{}", candidate, key, found);
    result.help = formatted("write `{}: {}`", key, rest.substr(0, 40));
    return;
  }
}

}  // namespace

std::string_view without_blanks(std::string_view text) {
  const std::size_t first = std::min(text.find_first_not_of(' '), text.size());
  const std::size_t last = text.find_last_not_of(' ');
  return last == std::string_view::npos ? "" : text.substr(first, last + 1 - first);
}

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

namespace {

/// Explains an error of the parser: its `message`, the byte offset `noticed` that it reports, and
/// the offset `read_until` up to which it understood the text.
SyntaxError explain_syntax_error(const std::string& message, std::size_t noticed,
                                 std::size_t read_until, const std::string& text,
                                 TextMarks& marks) {
  if (message.find("EOF in scalar") != std::string::npos) {
    const std::size_t quote = std::min(text.find_first_of("\"'", read_until), text.size());
    return {"unterminated-quote", "the quote opened here is never closed",
            formatted("add the closing {}", marks.at(quote)), marks.span(quote, text.size())};
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

/// Thrown to leave the parser when no text after this point can be trusted.
struct Refusal {
  Diagnostic diagnostic;
};

struct Complaint {
  std::string code;
  std::string message;
  std::string help;
};

class TreeBuilder final : public YAML::EventHandler {
 public:
  TreeBuilder(YamlTree& tree, TextMarks& marks, int text_index, Diagnostics& diagnostics)
      : tree_(tree), marks_(marks), text_index_(text_index), diagnostics_(diagnostics) {}

  int root() const { return root_; }
  /// The offset at which the last scalar ended.
  std::size_t read_until() const { return read_until_; }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (root_ < 0) return;
    refuse({"more-documents", "expected one YAML document, found the start of a second one",
            "remove it, or the line with --- or ... before it"},
           span(start_of(mark), 1));
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const std::size_t start = marks_.skip_properties(start_of(mark));
    const bool written = marks_.is_null_word(start);
    YamlNode node;
    node.span = span(start, marks_.at(start) == '~' ? 1 : 4);
    if (!written && !open_.empty() && open_.back().key) node.span = open_.back().key->span;
    if (expects_key()) refuse_key("an empty key", node.span);
    place(add(std::move(node), anchor));
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const Span where = span(start_of(mark), 1);
    if (expects_key()) refuse_key("an alias", where);
    count(1, where);
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end() || found->second < 0) {
      refuse({"recursive-alias", "the alias refers to a value that contains it",
              "write the value out"},
             where);
    }
    place(found->second);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& masked) override {
    std::string value = masked;
    unmask_variables(value);
    YamlNode node;
    node.kind = YamlNode::Kind::scalar;
    const char first = marks_.at(start_of_value(mark));
    const bool overrides = check_tag(tag, mark);
    node.quoted = tag == "!" || (overrides && quotes(first));
    node.expands = !expects_key() && (!node.quoted || first == '"');
    node.scalar = value;
    node.span = scalar_span(start_of(mark), value);
    const bool nothing = value.empty() || marks_.is_null_word(start_of_value(mark));
    if (overrides && !node.quoted && nothing) node.kind = YamlNode::Kind::null;
    if (overrides) mark_override(node);
    if (!expects_key()) {
      place(add(std::move(node), anchor));
      return;
    }
    if (value.empty()) refuse_key("an empty key", node.span);
    open_.back().key = Key{value, node.span, node.quoted};
    add(std::move(node), anchor);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(YamlNode::Kind::sequence, mark, tag, anchor);
  }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(YamlNode::Kind::map, mark, tag, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapEnd() override {
    apply_merge(open_.back());
    close();
  }

  [[noreturn]] void refuse(Complaint complaint, const Span& where) {
    throw Refusal{diagnostic(std::move(complaint), where)};
  }

 private:
  struct Key {
    std::string text;
    Span span;
    bool quoted = false;
  };
  struct Open {
    int node = 0;
    YAML::anchor_t anchor = 0;
    std::optional<Key> key{};  // key that waits for its value
    int merged = -1;           // value of the merge key <<
    Span merge_span{};
    std::map<std::string, int, std::less<>> keys{};  // keys of a map, with their lines
  };

  YamlNode& node(int index) { return tree_.node(index); }

  std::size_t start_of(const YAML::Mark& mark) const {
    return marks_.offset(mark.line, mark.column);
  }
  std::size_t start_of_value(const YAML::Mark& mark) const {
    return marks_.skip_properties(start_of(mark));
  }
  Span span(std::size_t offset, std::size_t bytes) {
    Span result = marks_.span(offset, bytes);
    result.text = text_index_;
    return result;
  }

  Span scalar_span(std::size_t mark, const std::string& value) {
    std::size_t start = marks_.skip_properties(mark);
    const char first = marks_.at(start);
    if (first != '"' && first != '\'') {
      if (value.empty()) start = mark;  // only an anchor or a tag, before another value
      read_until_ = start + value.size();
      Span result = marks_.plain(start, value);
      result.text = text_index_;
      return result;
    }
    auto [where, end] = marks_.quoted(start);
    where.text = text_index_;
    if (end == std::string::npos) {
      refuse({"unterminated-quote", "the quote opened here is never closed",
              formatted("add the closing {}", first)},
             where);
    }
    read_until_ = end;
    return where;
  }

  bool expects_key() const {
    return !open_.empty() && !open_.back().key &&
           tree_.node(open_.back().node).kind == YamlNode::Kind::map;
  }

  [[noreturn]] void refuse_key(const std::string& what, const Span& where) {
    refuse({"bad-key", "expected a key, found " + what,
            "a key is a plain word before a colon; check for a missing closing bracket"},
           where);
  }

  static bool quotes(char first) { return std::string_view("\"'|>").find(first) < 4; }

  /// Whether the value is marked to override an included one; reports other tags.
  bool check_tag(const std::string& tag, const YAML::Mark& mark) {
    if (tag == "!override") return true;
    if (tag.empty() || tag == "?" || tag == "!") return false;
    report({"tag", "the YAML tag " + tag + " is not supported", "remove it"},
           span(start_of(mark), 1));
    return false;
  }

  void mark_override(YamlNode& made) {
    made.overrides = static_cast<int>(tree_.override_tags.size());
    tree_.override_tags.push_back({path(), made.span});
  }

  std::string path() const {
    std::string text;
    for (const Open& frame : open_) {
      if (frame.key) text += (text.empty() ? "" : ".") + frame.key->text;
    }
    return text;
  }

  Diagnostic diagnostic(Complaint complaint, const Span& where) const {
    return {
        Severity::error,           std::move(complaint.code), path(), std::move(complaint.message),
        std::move(complaint.help), tree_.place(where)};
  }
  void report(Complaint complaint, const Span& where) {
    diagnostics_.add(diagnostic(std::move(complaint), where));
  }

  void count(std::size_t nodes, const Span& where) {
    count_ += nodes;
    if (count_ <= max_yaml_nodes) return;
    refuse({"too-large",
            formatted("a configuration must have at most {} keys and values", max_yaml_nodes),
            "is this the right file?"},
           where);
  }

  int add(YamlNode made, YAML::anchor_t anchor) {
    count(1, made.span);
    const int index = tree_.add_node(std::move(made));
    if (anchor != 0) anchors_[anchor] = index;
    return index;
  }

  void open(YamlNode::Kind kind, const YAML::Mark& mark, const std::string& tag,
            YAML::anchor_t anchor) {
    YamlNode made;
    made.kind = kind;
    const bool overrides = check_tag(tag, mark);
    made.span = span(marks_.skip_properties(start_of(mark)), 1);
    if (overrides) mark_override(made);
    if (expects_key()) refuse_key(kind == YamlNode::Kind::map ? "a map" : "a list", made.span);
    if (open_.size() >= max_yaml_depth) {
      refuse({"too-deep", formatted("values are nested more than {} levels deep", max_yaml_depth),
              "a configuration needs no more than four"},
             made.span);
    }
    const int index = add(std::move(made), 0);
    if (anchor != 0) anchors_[anchor] = -1;
    open_.push_back({index, anchor});
  }

  void close() {
    const int index = open_.back().node;
    const YAML::anchor_t anchor = open_.back().anchor;
    open_.pop_back();
    if (anchor != 0) anchors_[anchor] = index;
    place(index);
  }

  /// Adds a finished value to its parent: as the root, as an item of a list, or at its key.
  void place(int index) {
    if (open_.empty()) {
      root_ = index;
      return;
    }
    Open& frame = open_.back();
    if (node(frame.node).kind == YamlNode::Kind::sequence) {
      node(frame.node).items.push_back(index);
      return;
    }
    place_entry(frame, index);
    frame.key.reset();
  }

  void place_entry(Open& frame, int index) {
    const Key& key = *frame.key;
    const auto [first, is_new] = frame.keys.emplace(key.text, key.span.line);
    if (!is_new) {
      report({"duplicate-key",
              formatted("given twice: first on line {}, again on line {}", first->second,
                        key.span.line),
              "remove one of the two"},
             key.span);
    } else if (key.text == "<<" && !key.quoted) {
      frame.merged = index;
      frame.merge_span = key.span;
    } else {
      node(frame.node).entries.push_back({key.text, key.span, index});
    }
  }

  /// Applies a merge key: the map's own entries win, then those of earlier sources.
  void apply_merge(Open& frame) {
    if (frame.merged < 0) return;
    if (node(frame.merged).kind != YamlNode::Kind::sequence) {
      merge_one(frame, frame.merged);
      return;
    }
    for (int source : node(frame.merged).items) merge_one(frame, source);
  }

  void merge_one(Open& frame, int source) {
    if (node(source).kind != YamlNode::Kind::map) {
      report({"merge-key", "the merge key << must refer to a map or a list of maps",
              "write <<: *name"},
             frame.merge_span);
      return;
    }
    count(node(source).entries.size(), frame.merge_span);
    std::string where = path().empty() ? "" : path() + ".";
    for (std::size_t at; (at = where.find(".<<")) != std::string::npos;) where.erase(at, 3);
    for (const YamlEntry& entry : node(source).entries) {
      const bool is_new = frame.keys.emplace(entry.key, entry.key_span.line).second;
      if (is_new) {
        node(frame.node).entries.push_back(entry);
      } else {
        tree_.note_replaced(where + entry.key, entry.value);
      }
    }
  }

  YamlTree& tree_;
  TextMarks& marks_;
  int text_index_;
  Diagnostics& diagnostics_;
  int root_ = -1;
  std::size_t count_ = 0;
  std::size_t read_until_ = 0;
  std::vector<Open> open_;
  std::map<YAML::anchor_t, int> anchors_;  // -1 while the anchored value is incomplete
};

}  // namespace

int parse_yaml(YamlTree& tree, const std::string& text, int text_index, Diagnostics& diagnostics) {
  TextMarks marks(text);
  Diagnostics found;
  TreeBuilder builder(tree, marks, text_index, found);
  const std::string& name = at(tree.texts, text_index).file;
  try {
    std::istringstream stream(mask_variables(text));
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const Refusal& refusal) {
    diagnostics.add(refusal.diagnostic);
    return -1;
  } catch (const YAML::Exception& error) {
    const std::size_t noticed = marks.offset(error.mark.line, error.mark.column);
    const SyntaxError cause =
        explain_syntax_error(error.msg, noticed, builder.read_until(), text, marks);
    Span where = cause.span;
    where.text = text_index;
    diagnostics.add(
        {Severity::error, cause.code, "", cause.message, cause.help, tree.place(where)});
    return -1;
  }
  const int root = builder.root();
  if (root < 0 || tree.node(root).kind == YamlNode::Kind::null) {
    diagnostics.add({Severity::error, "empty-file", "", "the file contains no configuration",
                     "a configuration has the sections model, data, train and lr_schedule",
                     whole_file(name)});
    return -1;
  }
  for (const Diagnostic& diagnostic : found.list()) diagnostics.add(diagnostic);
  return root;
}

}  // namespace trainctl
