#include "config/yaml/tree.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "base/text.h"

namespace trainctl {

Place YamlTree::place(const Span& span) const {
  const Place& text = at(texts, span.text);
  const bool has_lines =
      text.origin == Place::Origin::file || text.origin == Place::Origin::set_option;
  if (!has_lines) return text;
  Place place{text.origin, text.file, span.line, span.column, span.end_column};
  if (span.note >= 0) place.note = at(notes, span.note);
  return place;
}

int YamlTree::add_text(Place::Origin origin, const std::string& name) {
  texts.push_back({origin, name, 0, 0, 0});
  return static_cast<int>(texts.size()) - 1;
}

int YamlTree::add_node(YamlNode node) {
  nodes.push_back(std::move(node));
  return static_cast<int>(nodes.size()) - 1;
}

int YamlTree::add_scalar(const std::string& text, const Span& span) {
  return add_node({.kind = YamlNode::Kind::scalar, .scalar = text, .span = span});
}

int YamlTree::add_list(std::vector<int> items, const Span& span) {
  return add_node({.kind = YamlNode::Kind::sequence, .span = span, .items = std::move(items)});
}

int YamlTree::add_map(std::vector<YamlEntry> entries, const Span& span) {
  return add_node({.kind = YamlNode::Kind::map, .span = span, .entries = std::move(entries)});
}

const YamlEntry* YamlTree::find(int map, std::string_view key) const {
  for (const YamlEntry& entry : node(map).entries) {
    if (entry.key == key) return &entry;
  }
  return nullptr;
}

YamlEntry* YamlTree::find(int map, std::string_view key) {
  return const_cast<YamlEntry*>(std::as_const(*this).find(map, key));
}

const YamlEntry* YamlTree::find_path(int map, std::string_view path) const {
  const YamlEntry* entry = nullptr;
  for (bool goes_on = true; goes_on;) {
    if (node(map).kind != YamlNode::Kind::map) return nullptr;
    goes_on = path.find('.') != std::string_view::npos;
    entry = find(map, take_until(path, "."));
    if (entry == nullptr) return nullptr;
    map = entry->value;
  }
  return entry;
}

std::string YamlTree::text_at(int map, std::string_view path) const {
  const YamlEntry* entry = find_path(map, path);
  return entry == nullptr ? "" : node(entry->value).scalar;
}

void YamlTree::remove(int map, std::string_view key) {
  std::erase_if(node(map).entries, [&](const YamlEntry& entry) { return entry.key == key; });
}

void YamlTree::fill_in(int map, int defaults, const std::string& path) {
  for (const YamlEntry& wanted : std::vector<YamlEntry>(node(defaults).entries)) {
    const std::string at = (path.empty() ? "" : path + ".") + wanted.key;
    YamlEntry* given = find(map, wanted.key);
    if (given == nullptr) {
      node(map).entries.push_back(wanted);
      continue;
    }
    if (node(wanted.value).kind != YamlNode::Kind::map) {
      note_replaced(at, wanted.value);
      continue;
    }
    if (node(given->value).kind == YamlNode::Kind::null) given->value = wanted.value;
    if (node(given->value).kind != YamlNode::Kind::map) continue;
    // A copy, since an alias may share the map.
    const int copy = add_node(YamlNode(node(given->value)));
    given->value = copy;
    fill_in(copy, wanted.value, at);
  }
}

void YamlTree::note_replaced(const std::string& path, int value) {
  constexpr std::size_t most = 10'000;  // limit, since aliases can make a small tree endless
  if (replaced.size() >= most) return;
  replaced.push_back({path, {}, value});
  for (const YamlEntry& entry : std::vector<YamlEntry>(node(value).entries)) {
    note_replaced(path + "." + entry.key, entry.value);
  }
}

namespace {

// 0x04 is not used: the YAML parser takes it for the end of the text.
constexpr std::string_view hidden = "{},:#[]";
constexpr std::string_view behind = "\x01\x02\x03\x05\x06\x07\x0E";

bool starts_name(char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_'; }

bool is_variable_name(std::string_view text) {
  if (text.empty() || !starts_name(text[0])) return false;
  for (char c : text) {
    if (!starts_name(c) && (c < '0' || c > '9')) return false;
  }
  return true;
}

struct Variable {
  std::string name;
  std::optional<std::string> fallback;
  std::size_t length = 0;  // length of the whole ${...}; 0 if there is none
};

/// The variable whose ${...} starts at `at`.
Variable variable_at(std::string_view text, std::size_t at) {
  const std::size_t end = text.find_first_of("}\n", at);
  if (end == std::string_view::npos || text[end] == '\n') return {};
  const std::string_view inside = text.substr(at + 2, end - at - 2);
  const std::size_t dash = inside.find(":-");
  Variable found;
  found.name = inside.substr(0, dash);
  if (dash != std::string_view::npos) found.fallback = inside.substr(dash + 2);
  if (is_variable_name(found.name)) found.length = end + 1 - at;
  return found;
}

/// Visits each value below a root once, despite aliases.
class Interpolator {
 public:
  Interpolator(YamlTree& tree, const Surroundings& around, Diagnostics& diagnostics)
      : tree_(tree), around_(around), diagnostics_(diagnostics) {}

  void visit(int index, const std::string& path) {
    if (!seen_.insert(index).second) return;
    const YamlNode::Kind kind = tree_.node(index).kind;
    if (kind == YamlNode::Kind::scalar && tree_.node(index).expands) expand(index, path);
    const std::vector<YamlEntry> entries = tree_.node(index).entries;
    for (const YamlEntry& entry : entries) {
      visit(entry.value, (path.empty() ? "" : path + ".") + entry.key);
    }
    const std::vector<int> items = tree_.node(index).items;
    for (std::size_t i = 0; i < items.size(); ++i) {
      visit(items[i], formatted("{}.{}", path, i));
    }
  }

 private:
  struct Wrong {
    std::string code;
    std::string message;
    std::string help;
  };

  void expand(int index, const std::string& path) {
    const std::string text = tree_.node(index).scalar;
    if (text.find('$') == std::string::npos) return;
    std::string result;
    std::string note;
    for (std::size_t at = 0; at < text.size();) {
      const std::string_view rest = std::string_view(text).substr(at);
      if (rest.starts_with("$$")) {
        result += '$';
        at += 2;
      } else if (!rest.starts_with("${")) {
        result += text[at++];
      } else {
        const Variable variable = variable_at(text, at);
        const auto wrong = append(variable, result, note);
        if (wrong) return report(*wrong, index, path);
        at += variable.length;
      }
    }
    store(index, std::move(result), note);
  }

  void store(int index, std::string value, const std::string& note) {
    YamlNode& node = tree_.node(index);
    node.scalar = std::move(value);
    if (!note.empty()) {
      node.span.note = static_cast<int>(tree_.notes.size());
      tree_.notes.push_back(note);
    }
    const std::string& word = node.scalar;
    const bool nothing = word.empty() || word == "~" || word == "null";
    if (!node.quoted && nothing) node.kind = YamlNode::Kind::null;
  }

  std::optional<std::string> look_up(const std::string& name) const {
    if (around_.variable) return around_.variable(name);
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  }

  /// Adds the variable's value to `result` and its origin to `note`.
  std::optional<Wrong> append(const Variable& variable, std::string& result, std::string& note) {
    if (variable.length == 0) {
      return Wrong{"bad-variable", "expected a variable name after ${",
                   "write ${NAME} or ${NAME:-default}; write $$ for a dollar sign"};
    }
    const std::string written = "${" + variable.name + "}";
    const std::optional<std::string> value = look_up(variable.name);
    const bool given = value && (!value->empty() || !variable.fallback);
    if (!given && !variable.fallback) {
      return Wrong{"unset-variable", "the environment variable " + variable.name + " is not set",
                   "set it, or give a default: ${" + variable.name + ":-value}"};
    }
    Diagnostics ignored;
    if (given && !check_text(*value, {}, ignored)) {
      return Wrong{"bad-variable", "the value of " + written + " is not valid UTF-8", ""};
    }
    note += (note.empty() ? "" : ", ") + std::string(given ? "from " : "default of ") + written;
    result += given ? *value : *variable.fallback;
    return std::nullopt;
  }

  void report(const Wrong& wrong, int index, const std::string& path) {
    diagnostics_.add({Severity::error, wrong.code, path, wrong.message, wrong.help,
                      tree_.place(tree_.node(index).span)});
  }

  YamlTree& tree_;
  const Surroundings& around_;
  Diagnostics& diagnostics_;
  std::set<int> seen_;
};

}  // namespace

std::string mask_variables(std::string text) {
  for (std::size_t at = 0; (at = text.find('$', at)) != std::string::npos;) {
    if (text.compare(at, 2, "$$") == 0) {
      at += 2;
      continue;
    }
    const bool opens = text.compare(at, 2, "${") == 0;
    const std::size_t length = opens ? variable_at(text, at).length : 0;
    // With a quote inside, the text may be two quoted values.
    if (text.substr(at, length).find_first_of("\"'") == std::string::npos) {
      for (std::size_t i = at; i < at + length; ++i) {
        const std::size_t which = hidden.find(text[i]);
        if (which != std::string_view::npos) text[i] = behind[which];
      }
    }
    at += std::max<std::size_t>(1, length);
  }
  return text;
}

void unmask_variables(std::string& value) {
  const std::string open{'$', behind[0]};
  for (std::size_t at = 0; (at = value.find(open, at)) != std::string::npos;) {
    const std::size_t end = std::min(value.find(behind[1], at), value.size() - 1);
    for (; at <= end; ++at) {
      const std::size_t which = behind.find(value[at]);
      if (which != std::string_view::npos) value[at] = hidden[which];
    }
  }
}

void interpolate(YamlTree& tree, int root, const Surroundings& around, Diagnostics& diagnostics) {
  Interpolator(tree, around, diagnostics).visit(root, "");
}

}  // namespace trainctl
