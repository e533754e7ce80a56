#include "config/upstream/claims.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "config/schema/known_paths.h"
#include "config/schema/values.h"

namespace trainctl {
namespace {

// Bounds the work when aliases repeat one map many times.
constexpr std::size_t most_claims = 2000;
constexpr int deepest_section = 4;

std::string last_key(const std::string& path) { return path.substr(path.rfind('.') + 1); }

}  // namespace

int Claims::copy(int node) {
  YamlNode made = tree_.node(node);
  tree_.node(node).overrides = -1;
  return tree_.add_node(std::move(made));
}

void Claims::add(const Claim& claim) { add_parts(claim, 0); }

void Claims::add_parts(const Claim& claim, int depth) {
  if (list_.size() > most_claims) return;
  const bool map = tree_.node(claim.node).kind == YamlNode::Kind::map;
  if (list_.size() == most_claims) {
    diagnostics_.add({Severity::error, "too-large", claim.path,
                      "more than " + std::to_string(most_claims) + " values have upstream names",
                      "is this the right file?", tree_.place(claim.key_span)});
  }
  const KnownPath* known = find_known_path(claim.path);
  const bool is_section = known != nullptr && known->is_section;
  const bool is_empty = map && tree_.node(claim.node).entries.empty() && !is_section;
  if (!map || is_empty || depth >= deepest_section) {
    list_.push_back(claim);
    return;
  }
  for (const YamlEntry& entry : tree_.node(claim.node).entries) {
    add_parts({.path = claim.path + "." + entry.key,
               .spelling = claim.spelling + "." + entry.key,
               .key_span = entry.key_span,
               .node = entry.value},
              depth + 1);
  }
}

bool Claims::is_set_option(const Claim& claim) const {
  return tree_.place(claim.key_span).origin == Place::Origin::set_option;
}

std::vector<Claim> Claims::rivals(const std::vector<Claim>& given) const {
  std::vector<Claim> result = given;
  const std::string& path = given.front().path;
  int map = root_;
  const YamlEntry* entry = nullptr;
  for (std::size_t start = 0; start <= path.size();) {
    const std::size_t dot = std::min(path.find('.', start), path.size());
    if (tree_.node(map).kind != YamlNode::Kind::map) return result;
    entry = tree_.find(map, path.substr(start, dot - start));
    if (entry == nullptr) return result;
    map = entry->value;
    start = dot + 1;
  }
  result.push_back({path, path, entry->key_span, entry->value, false});
  std::stable_sort(result.begin(), result.end(), [](const Claim& a, const Claim& b) {
    return std::tie(a.key_span.text, a.key_span.line, a.key_span.column) <
           std::tie(b.key_span.text, b.key_span.line, b.key_span.column);
  });
  return result;
}

bool Claims::agree(const Claim& first, const Claim& second) const {
  if (first.weak != second.weak) {
    return tree_.node(first.weak ? second.node : first.node).scalar != "full_batch";
  }
  return same_value(tree_, first.path, first.node, second.node);
}

void Claims::compare(const Claim& first, const Claim& second) {
  if (agree(first, second)) return;
  const Place before = tree_.place(first.key_span);
  const Place place = tree_.place(second.key_span);
  const auto line = [&](const Place& where) {
    return where.file == place.file ? "line " + std::to_string(where.line) : where.to_string();
  };
  const auto written = [&](const Claim& claim) {
    return last_key(claim.spelling) + ": " + flow_text(tree_, claim.node);
  };
  diagnostics_.add({Severity::error, "two-spellings", second.path,
                    shown(written(second)) + " on " + line(place) + " contradicts " +
                        shown(written(first)) + " on " + line(before) + "; both mean " +
                        second.path,
                    "remove one of the two", place});
}

const Claim& Claims::winner(const std::vector<Claim>& rivals) {
  // The last --set wins, as it does with one spelling.
  for (auto claim = rivals.rbegin(); claim != rivals.rend(); ++claim) {
    if (is_set_option(*claim)) return *claim;
  }
  for (std::size_t i = 1; i < rivals.size(); ++i) compare(rivals.front(), rivals[i]);
  for (const Claim& claim : rivals) {
    if (!claim.weak) return claim;
  }
  return rivals.front();
}

Spellings Claims::settle() {
  std::map<std::string, std::vector<Claim>> by_path;
  for (const Claim& claim : list_) by_path[claim.path].push_back(claim);
  Spellings spellings;
  for (const auto& [path, given] : by_path) {
    const std::vector<Claim> all = rivals(given);
    const Claim& chosen = winner(all);
    if (chosen.spelling == path) continue;
    put(chosen);
    if (!chosen.derived) spellings[path] = chosen.spelling;
  }
  return spellings;
}

int Claims::enter(int map, const std::string& key, const Span& span) {
  YamlEntry* entry = tree_.find(map, key);
  const auto kind = entry == nullptr ? YamlNode::Kind::null : tree_.node(entry->value).kind;
  if (kind == YamlNode::Kind::map && owned_.contains(entry->value)) return entry->value;
  if (kind != YamlNode::Kind::map && kind != YamlNode::Kind::null) return -1;
  if (entry == nullptr) {
    YamlNode empty;
    empty.span = span;
    const int made = tree_.add_node(std::move(empty));
    tree_.node(map).entries.push_back({key, span, made});
  }
  const int own = copy(tree_.find(map, key)->value);
  tree_.node(own).kind = YamlNode::Kind::map;
  tree_.find(map, key)->value = own;
  owned_.insert(own);
  return own;
}

void Claims::put(const Claim& claim) {
  int map = root_;
  std::size_t start = 0;
  for (std::size_t dot = 0; (dot = claim.path.find('.', start)) != std::string::npos;) {
    map = enter(map, claim.path.substr(start, dot - start), claim.key_span);
    if (map < 0) return;  // the reader says what is wrong there
    start = dot + 1;
  }
  const std::string key = claim.path.substr(start);
  if (YamlEntry* entry = tree_.find(map, key)) {
    *entry = {key, claim.key_span, claim.node};
  } else {
    tree_.node(map).entries.push_back({key, claim.key_span, claim.node});
  }
}

}  // namespace trainctl
