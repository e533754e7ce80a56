// Finds counterparts of other projects' keys and values, and writes hints about them.

#include "config/upstream/other_keys.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "base/text.h"
#include "config/schema/values.h"

namespace trainctl {

std::string_view embedded_other_keys_txt();  // other_keys.txt, embedded by lib/embed.cmake

namespace {

struct NamedProject {
  Project project;
  std::string_view name;  // in messages
};
/// In the order in which a hint names them.
constexpr NamedProject named_projects[] = {
    {"hugging_face", "Hugging Face"}, {"nanogpt", "nanoGPT"}, {"megatron", "Megatron"},
    {"torchtitan", "torchtitan"},     {"llmc", "llm.c"},      {"mindformers", "MindFormers"},
    {"deepspeed", "DeepSpeed"},       {"trainers", ""},       {"usual", ""},
};

/// The values for which other_keys.txt writes #types.
constexpr const char* type_names =
    "bf16=bf16|fp16=fp16|fp32=fp32|no=|bf16-mixed=bf16|16-mixed=fp16|bf16-true=bf16|16=fp16|"
    "32=fp32|32-true=fp32|bfloat16=bf16|float16=fp16|float32=fp32|half=fp16|float=fp32|amp=|true=|"
    "false=";

/// The keys of the row "THEIRS -> OURS {WORDS} ; NOTE".
void add_keys(const std::string& prefix, std::string_view note, std::vector<OtherKey>& list) {
  std::string_view words = take_until(note, " ; ");
  std::string_view paths = take_until(words, " {");
  words = take_until(words, "}");
  if (words == "#types") words = type_names;
  std::string_view keys = take_until(paths, " -> ");
  while (!keys.empty()) {
    list.push_back({prefix + std::string(take_until(keys, " ")), std::string(paths),
                    std::string(words), std::string(note)});
  }
}

/// The lists of other_keys.txt by name.
const std::map<std::string, std::vector<OtherKey>>& all_lists() {
  static const auto lists = [] {
    std::map<std::string, std::vector<OtherKey>> all;
    std::string name, prefix;
    for (const std::string& row : table_rows(embedded_other_keys_txt())) {
      if (!row.starts_with('[')) {
        add_keys(prefix, row, all[name]);
        continue;
      }
      std::string_view head = std::string_view(row).substr(1, row.size() - 2);
      name = take_until(head, " ");
      prefix = head;
    }
    return all;
  }();
  return lists;
}

/// A key without differences of hyphens and capitals. Keeps a leading hyphen: llm.c's -b is not b.
std::string folded(std::string_view key) {
  std::string text(key.starts_with("--") ? key.substr(2) : key);
  const bool is_flag = text.starts_with('-');
  for (char& c : text) {
    if (c == '-') c = '_';
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  }
  if (is_flag) text[0] = '-';
  return text;
}

std::optional<double> number_in(const std::string& text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data(), end, value);
  return status == std::errc() && stop == end ? std::optional(value) : std::nullopt;
}

/// The second part of "949,50,1" as a share of the sum.
std::optional<std::string> validation_part(const std::string& text) {
  std::vector<double> parts;
  for (std::string part : split_at(text, ',')) {
    std::erase(part, ' ');
    const auto value = number_in(part);
    if (!value || !std::isfinite(*value) || *value < 0) return std::nullopt;
    parts.push_back(*value);
  }
  double sum = 0;
  for (const double part : parts) sum += part;
  if (!(sum > 0) || parts.size() < 2) return std::nullopt;
  return plain_number(std::round(1e6 * parts[1] / sum) / 1e6);
}

/// The file or folder of a tokenizer as data.tokenizer names it; none for other files.
std::optional<std::string> tokenizer_of(const std::string& value) {
  constexpr std::string_view file = "tokenizer.json";
  if (value.ends_with(".model")) return "sentencepiece:" + value;
  if (!value.ends_with(file)) return std::nullopt;
  const std::string folder = value.substr(0, value.size() - file.size());
  return "hf:" + (folder.empty() ? "." : folder);
}

/// A percentage such as "5%" as a fraction; none for other texts.
std::optional<std::string> share_of(const std::string& value) {
  const auto number =
      value.ends_with('%') ? number_in(value.substr(0, value.size() - 1)) : std::nullopt;
  return number ? std::optional(plain_number(0.01 * *number)) : std::nullopt;
}

std::optional<std::string> special(std::string_view how, const std::string& value) {
  if (how == "#share") return share_of(value);
  if (how == "#tokenizer") return tokenizer_of(value);
  if (how == "#split") return validation_part(value);
  if (how == "#true") return "true";
  if (how == "#hf") return "hf:" + value;
  if (how == "#nanogpt") return "data/" + value + "/train.bin";
  if (how == "#paths") return value;
  if (how == "#lower") return lower_case(value);
  const double factor = how == "#percent" ? 0.01 : how == "#minutes" ? 60 : 0;
  const auto number = number_in(value);
  if (factor == 0 || !number) return std::nullopt;
  return plain_number(factor * *number);
}

/// Words that are ambiguous without their section.
constexpr std::string_view vague[] = {"enabled", "enable", "stage", "type",     "name",  "mode",
                                      "freq",    "folder", "steps", "interval", "params"};

/// Whether the row's key without its section is `wanted`.
bool same_key(const OtherKey& row, const std::string& wanted) {
  const std::string key = folded(row.key);
  const std::size_t dot = key.find('.');
  return dot != std::string::npos && key.substr(dot + 1) == wanted &&
         std::ranges::find(vague, wanted) == std::end(vague);
}

/// The items of a list such as "[0.9, 0.95]"; empty for other texts.
std::vector<std::string> items_of(const std::string& text) {
  std::vector<std::string> items;
  if (!text.starts_with('[') || !text.ends_with(']')) return items;
  for (std::string item : split_at(text.substr(1, text.size() - 2), ',')) {
    std::erase(item, ' ');
    items.push_back(std::move(item));
  }
  return items;
}

/// Fills in the values, "" for unknown ones. Returns false if the given value asks for nothing.
bool fill_values(std::vector<HintValue>& values, const OtherKey& row, const std::string& given) {
  const std::vector<std::string> items = items_of(given);
  if (row.words == "#each" && items.size() == values.size()) {
    for (std::size_t i = 0; i < items.size(); ++i) values[i].text = items[i];
    return true;
  }
  const auto converted = given.empty() ? std::nullopt : convert(row, given);
  if (converted && converted->empty()) return false;
  for (HintValue& value : values) {
    if (value.text.empty() && converted) value.text = *converted;
  }
  return true;
}

/// Text such as "a and b: 1" for a shared value, "a: 1 and b: 2" for separate ones.
std::string written(const std::vector<HintValue>& values) {
  std::vector<std::string> paths;
  std::vector<std::string> lines;
  for (const HintValue& value : values) {
    paths.push_back(value.path);
    lines.push_back(value.path + (value.text.empty() ? "" : ": " + shown(value.text)));
  }
  const bool same = std::ranges::all_of(
      values, [&](const HintValue& value) { return value.text == values.front().text; });
  if (!same) return listed(lines, " and ");
  const std::string& text = values.front().text;
  return listed(paths, " and ") + (text.empty() ? "" : ": " + shown(text));
}

Hint hint_of(Project project, const OtherKey& row, const std::string& value) {
  const std::string project_name(name_of(project));
  const std::string owner =
      project_name.empty() ? ""
                           : " (" + project_name + (project_name.ends_with('s') ? "' " : "'s ") +
                                 std::string(row.key) + ")";
  if (row.paths.empty()) {
    const std::string note(row.note);
    const std::string help = note.starts_with("write ") || note.starts_with("use ")
                                 ? note + owner
                                 : "remove it" + owner + ": " + note;
    return {help, help, {}};
  }
  std::vector<HintValue> values = assignments_of(row);
  std::vector<HintValue> bare = values;
  if (!fill_values(values, row, value)) {
    const std::string help = "remove it" + owner + ": it asks for nothing";
    return {help, help, {}};
  }
  for (HintValue& one : bare) one.text.clear();
  const std::string note = row.note.empty() ? "" : "; " + std::string(row.note);
  return {"write " + written(values) + owner + note, "write " + written(bare) + owner + note,
          std::move(values)};
}

}  // namespace

std::string_view name_of(Project project) {
  return std::ranges::find(named_projects, project, &NamedProject::project)->name;
}

std::span<const OtherKey> other_keys(Project project) {
  return all_lists().at(std::string(word_of(project)));
}
std::span<const OtherKey> carried_keys() { return all_lists().at("carried"); }
std::span<const OtherKey> local_value_rows() { return all_lists().at("ours"); }

const OtherKey* find_other_key(Project project, std::string_view key) {
  const std::string wanted = folded(key);
  const auto rows = other_keys(project);
  for (const OtherKey& row : rows) {
    if (folded(row.key) == wanted) return &row;
  }
  if (project != "torchtitan" && project != "deepspeed") return nullptr;
  const auto found = std::find_if(rows.begin(), rows.end(),
                                  [&](const OtherKey& row) { return same_key(row, wanted); });
  return found == rows.end() ? nullptr : &*found;
}

std::vector<HintValue> assignments_of(const OtherKey& row) {
  std::vector<HintValue> values;
  for (const std::string& part : split_at(row.paths, ' ')) {
    const std::size_t equals = std::min(part.find('='), part.size());
    values.push_back({part.substr(0, equals), part.substr(std::min(equals + 1, part.size()))});
  }
  return values;
}

std::vector<std::string> paths_of(const OtherKey& row) {
  std::vector<std::string> paths;
  for (const HintValue& value : assignments_of(row)) paths.push_back(value.path);
  return paths;
}

std::optional<std::string> convert(const OtherKey& row, const std::string& value) {
  if (row.words.starts_with('#')) return special(row.words, value);
  if (row.words.empty()) return value;
  const std::string wanted = value == "True" ? "true" : value == "False" ? "false" : value;
  for (const std::string& pair : split_words(row.words)) {
    const std::size_t equals = pair.find('=');
    if (pair == "*") return value;
    if (pair.substr(0, equals) == wanted) return pair.substr(equals + 1);
  }
  return std::nullopt;
}

std::optional<Hint> hint_for_row(const OtherKey& row, const std::string& value) {
  const bool is_list = row.words == "#each" && items_of(value).size() == paths_of(row).size();
  if (!is_list && !convert(row, value)) return std::nullopt;
  return hint_of("usual", row, value);
}

Hint hint_for(const std::string& key, const std::string& value) {
  for (const NamedProject& one : named_projects) {
    const OtherKey* row = find_other_key(one.project, key);
    if (row != nullptr) return hint_of(one.project, *row, value);
  }
  return {};
}

namespace {

/// Whether the row names specific values.
bool is_exact(const OtherKey& row) {
  return !row.words.empty() && !row.words.starts_with('#') && row.words != "*";
}

}  // namespace

std::vector<Hint> hints_for_value(const std::string& path, const std::string& value, bool exact) {
  std::vector<Hint> hints;
  for (const OtherKey& row : local_value_rows()) {
    if (row.key != path || (exact && !is_exact(row))) continue;
    if (auto hint = hint_for_row(row, value)) hints.push_back(std::move(*hint));
  }
  return hints;
}

}  // namespace trainctl
