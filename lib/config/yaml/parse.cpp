// yaml-cpp's events, turned into our tree. Its own Node hides duplicate keys, ignores merge keys
// and cannot be bounded, so only its parser is used.
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <map>
#include <optional>
#include <sstream>

#include "config/yaml/syntax_error.h"
#include "config/yaml/text_marks.h"
#include "config/yaml/tree.h"
#include "config/yaml/variables.h"

namespace trainctl {
namespace {

/// Thrown out of the parser when nothing after this point can be trusted.
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
  /// Where the last scalar ended.
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
    std::optional<Key> key{};  // read, and waiting for its value
    int merged = -1;           // the value of the merge key <<
    Span merge_span{};
    std::map<std::string, int, std::less<>> keys{};  // of a map, with their lines
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
      if (value.empty()) start = mark;  // only an anchor or a tag: what follows is another value
      read_until_ = start + value.size();
      Span result = marks_.plain(start, value);
      result.text = text_index_;
      return result;
    }
    auto [where, end] = marks_.quoted(start);
    where.text = text_index_;
    if (end == std::string::npos) {
      refuse({"unterminated-quote", "the quote opened here is never closed",
              std::string("add the closing ") + first},
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

  /// Whether the value is marked as one that overrides.
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
    refuse(
        {"too-large",
         "a configuration must have at most " + std::to_string(max_yaml_nodes) + " keys and values",
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
      refuse({"too-deep",
              "values are nested more than " + std::to_string(max_yaml_depth) + " levels deep",
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

  /// Puts a finished value where it belongs: the root, a list, or behind its key.
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
              "given twice: first on line " + std::to_string(first->second) + ", again on line " +
                  std::to_string(key.span.line),
              "remove one of the two"},
             key.span);
    } else if (key.text == "<<" && !key.quoted) {
      frame.merged = index;
      frame.merge_span = key.span;
    } else {
      node(frame.node).entries.push_back({key.text, key.span, index});
    }
  }

  /// A merge key: what the map gives itself wins, then the earlier source.
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
  std::map<YAML::anchor_t, int> anchors_;  // -1 while the anchored value is still open
};

}  // namespace

int parse_yaml(YamlTree& tree, const std::string& text, int text_index, Diagnostics& diagnostics) {
  TextMarks marks(text);
  Diagnostics found;
  TreeBuilder builder(tree, marks, text_index, found);
  const std::string& name = tree.texts[static_cast<std::size_t>(text_index)].name;
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
    diagnostics.add({Severity::error,
                     "empty-file",
                     "",
                     "the file contains no configuration",
                     "a configuration has the sections model, data, train and lr_schedule",
                     {Place::Origin::file, name, 0, 0, 0}});
    return -1;
  }
  for (const Diagnostic& diagnostic : found.list()) diagnostics.add(diagnostic);
  return root;
}

}  // namespace trainctl
