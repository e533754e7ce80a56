#include "config/migrate/migration.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "config/schema/known_paths.h"
#include "config/schema/values.h"
#include "config/upstream/upstream.h"

namespace trainctl {
namespace {

std::string underscored(std::string key) {
  if (key.starts_with("--")) key.erase(0, 2);
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

/// The row of ModelParallelConfig for an argument of Megatron.
const UpstreamKey* parallel_row(Project project, const std::string& key) {
  if (project != Project::megatron) return nullptr;
  const std::string wanted = underscored(key);
  for (const UpstreamKey& row : all_upstream_keys()) {
    const bool plain = row.conversion == Conversion::same && !row.deprecated();
    if (plain && row.key == wanted && find_known_path(std::string(row.path)) != nullptr)
      return &row;
  }
  return nullptr;
}

/// "6e5" as 600000: whole numbers have no exponent here.
std::string our_number(const std::string& text) {
  double value = 0;
  const bool has_form = text.find_first_of("eE.") != std::string::npos;
  if (!has_form || parse_number(text, value)) return text;
  const bool whole = std::abs(value) < 1e15 && value == std::floor(value);
  return whole                                           ? plain_number(value)
         : text.find_first_of("eE") == std::string::npos ? text
                                                         : write_value(value);
}

}  // namespace

Migration::Migration(Project project, const std::string& file, std::vector<ForeignValue> values,
                     YamlTree& tree, Diagnostics& diagnostics)
    : project_(project),
      file_(file),
      values_(std::move(values)),
      tree_(tree),
      diagnostics_(diagnostics) {
  YamlNode map;
  map.kind = YamlNode::Kind::map;
  root_ = tree_.add_node(std::move(map));
}

std::string Migration::written(const ForeignValue& value) {
  std::string text = value.key;
  for (const std::string& word : value.words) text += " " + word;
  return shown(text);
}

const ForeignValue* Migration::given(std::string_view key) const {
  const ForeignValue* found = nullptr;
  for (const ForeignValue& value : values_) {
    const OtherKey* row = find_other_key(project_, value.key);
    if (row != nullptr && row->key == key) found = &value;
  }
  return found;
}

const ForeignValue* Migration::written_as(std::string_view key) const {
  const ForeignValue* found = nullptr;
  for (const ForeignValue& value : values_) {
    if (value.key == key) found = &value;
  }
  return found;
}

bool Migration::is_last(const ForeignValue& value) const {
  const OtherKey* row = find_other_key(project_, value.key);
  return row == nullptr || given(row->key) == &value;
}

std::string Migration::text(std::string_view key, const std::string& otherwise) const {
  const ForeignValue* value = given(key);
  return value == nullptr || value->words.empty() ? otherwise : value->words.front();
}

double Migration::number(std::string_view key, double otherwise) const {
  double value = 0;
  return parse_number(text(key), value) ? otherwise : value;
}

bool Migration::flag(std::string_view key) const {
  const ForeignValue* value = given(key);
  if (value == nullptr) return false;
  const std::string word = value->words.empty() ? "true" : value->words.front();
  return word != "false" && word != "False" && word != "0";
}

int Migration::map_of(const std::string& path) {
  int map = root_;
  std::size_t start = 0;
  for (std::size_t dot = 0; (dot = path.find('.', start)) != std::string::npos; start = dot + 1) {
    const std::string key = path.substr(start, dot - start);
    if (tree_.find(map, key) == nullptr) {
      YamlNode section;
      section.kind = YamlNode::Kind::map;
      const int made = tree_.add_node(std::move(section));
      tree_.node(map).entries.push_back({key, {0, 0, 0, 0}, made});
    }
    map = tree_.find(map, key)->value;
  }
  return map;
}

int Migration::scalar(const std::string& text) {
  YamlNode node;
  node.kind = YamlNode::Kind::scalar;
  node.scalar = our_number(text);
  double number = 0;
  const bool plain = !parse_number(node.scalar, number) || text == "true" || text == "false";
  node.quoted = !plain;
  node.expands = text.find("${") != std::string::npos;
  return tree_.add_node(std::move(node));
}

std::optional<std::string> Migration::at(const std::string& path) const {
  int map = root_;
  for (const std::string& key : split_at(path, '.')) {
    const YamlEntry* entry =
        tree_.node(map).kind == YamlNode::Kind::map ? tree_.find(map, key) : nullptr;
    if (entry == nullptr) return std::nullopt;
    map = entry->value;
  }
  return tree_.node(map).scalar;
}

double Migration::number_at(const std::string& path, double otherwise) const {
  double value = 0;
  return parse_number(at(path).value_or(""), value) ? otherwise : value;
}

void Migration::put_list(const std::string& path, int node, const std::string& why) {
  const int map = map_of(path);
  const std::string key = path.substr(path.rfind('.') + 1);
  const Span span{0, ++line_, 1, 2};
  if (!why.empty()) comments_.behind[line_] = "# " + why;
  if (YamlEntry* entry = tree_.find(map, key)) {
    *entry = {key, span, node};
  } else {
    tree_.node(map).entries.push_back({key, span, node});
  }
}

void Migration::put(const std::string& path, const std::string& value, const std::string& why) {
  put_list(path, scalar(value), why);
}

void Migration::put(const std::string& path, double value, const std::string& why) {
  put(path, plain_number(value), why);
}

void Migration::put_default(const std::string& path, const std::string& value) {
  if (!at(path)) put(path, value, "default of " + std::string(name_of(project_)));
}

void Migration::remove(const std::string& path) {
  const int map = map_of(path);
  const std::string key = path.substr(path.rfind('.') + 1);
  std::erase_if(tree_.node(map).entries, [&](const YamlEntry& entry) { return entry.key == key; });
}

void Migration::not_carried(std::string_view key, const std::string& why) {
  const ForeignValue* value = given(key);
  const Place nowhere{Place::Origin::file, file_, 0, 0, 0};
  diagnostics_.add({Severity::warning, "not-carried", std::string(key),
                    (value == nullptr ? "" : written(*value) + ": ") + why, "",
                    value == nullptr ? nowhere : tree_.place(value->span)});
}

void Migration::refuse(const ForeignValue& value, const std::string& message,
                       const std::string& help) {
  diagnostics_.add({Severity::error, "no-counterpart", value.key, written(value) + ": " + message,
                    help, tree_.place(value.span)});
}

void Migration::refuse(const std::string& path, const std::string& message, const std::string& help,
                       const char* code) {
  diagnostics_.add(
      {Severity::error, code, path, message, help, {Place::Origin::file, file_, 0, 0, 0}});
}

void Migration::contradict(const std::string& path, const ForeignValue& value) {
  const ForeignValue& other = *from_.at(path);
  const bool family = path == "model.family";
  diagnostics_.add(
      {Severity::error, "two-spellings", path,
       written(value) + " on line " + std::to_string(value.span.line) + " contradicts " +
           written(other) + " on line " + std::to_string(other.span.line) + "; both mean " + path,
       family ? "gpt2 has learned positions, LayerNorm and GELU; llama has RoPE, RMSNorm and SwiGLU"
              : "remove one of the two",
       tree_.place(value.span)});
}

void Migration::carry_to(const std::string& path, const std::string& text,
                         const ForeignValue& value) {
  if (from_.contains(path) && at(path) != tree_.node(scalar(text)).scalar) {
    return contradict(path, value);
  }
  from_[path] = &value;
  put(path, text, written(value) + ", line " + std::to_string(value.span.line));
}

void Migration::carry_list(const std::string& path, const ForeignValue& value) {
  YamlNode list;
  list.kind = YamlNode::Kind::sequence;
  for (const std::string& word : value.words) list.items.push_back(scalar(word));
  from_[path] = &value;
  put_list(path, tree_.add_node(std::move(list)),
           written(value) + ", line " + std::to_string(value.span.line));
}

void Migration::carry(const ForeignValue& value) {
  const auto warn = [&](const std::string& why) {
    diagnostics_.add({Severity::warning, "not-carried", value.key, written(value) + ": " + why, "",
                      tree_.place(value.span)});
  };
  const std::string given = value.words.empty() ? "true" : value.words.front();
  const OtherKey* row = find_other_key(project_, value.key);
  const UpstreamKey* parallel = row == nullptr ? parallel_row(project_, value.key) : nullptr;
  if (parallel != nullptr && value.words.size() > 1) {
    return carry_list(std::string(parallel->path), value);
  }
  if (parallel != nullptr) return carry_to(std::string(parallel->path), given, value);
  if (row == nullptr) return warn("it has no counterpart");
  if (row->paths.empty()) return warn("not carried: " + std::string(row->note));
  if (row->words.starts_with("#other") || row->words == "#paths") return;  // project_rules.cpp
  if (value.is_code) return warn("not carried: only plain values are read");
  const auto converted = convert(*row, given);
  if (!converted) return warn("the value has no counterpart in " + std::string(row->paths));
  if (converted->empty()) return;
  for (const HintValue& one : assignments_of(*row)) {
    carry_to(one.path, one.text.empty() ? *converted : one.text, value);
  }
}

void Migration::carry_rows() {
  for (const ForeignValue& value : values_) {
    if (is_last(value)) carry(value);
  }
}

}  // namespace trainctl
