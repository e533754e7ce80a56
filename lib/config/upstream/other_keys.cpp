#include "config/upstream/other_keys.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "config/schema/known_paths.h"
#include "config/schema/values.h"
#include "config/upstream/other_lists.h"

namespace trainctl {
namespace {

// In the order in which a hint names them.
constexpr Project projects[] = {Project::hugging_face, Project::nanogpt, Project::megatron,
                                Project::torchtitan, Project::llmc};

/// Hyphens and capitals do not matter; leading ones do: llm.c's -b differs from a key b.
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

/// The second of the parts of 949,50,1, of their sum.
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

std::optional<std::string> special(std::string_view how, const std::string& value) {
  if (how == "#split") return validation_part(value);
  if (how == "#true") return "true";
  if (how == "#hf") return "hf:" + value;
  if (how == "#nanogpt") return "data/" + value + "/train.bin";
  if (how == "#paths") return value;
  const double factor = how == "#percent" ? 0.01 : how == "#minutes" ? 60 : 0;
  const auto number = number_in(value);
  if (factor == 0 || !number) return std::nullopt;
  return plain_number(factor * *number);
}

bool same_key(const OtherKey& row, const std::string& wanted) {
  const std::string key = folded(row.key);
  if (key == wanted) return true;
  const std::size_t dot = key.find('.');
  return dot != std::string::npos && key.substr(dot + 1) == wanted;
}

Hint hint_of(Project project, const OtherKey& row, const std::string& value) {
  const std::string owner = std::string(name_of(project)) + "'s " + std::string(row.key);
  if (row.paths.empty()) return {"remove it (" + owner + "): " + std::string(row.note), ""};
  std::string paths;
  const std::vector<std::string> all = paths_of(row);
  for (std::size_t i = 0; i < all.size(); ++i) {
    paths += (i == 0 ? "" : i + 1 == all.size() ? " and " : ", ") + all[i];
  }
  const std::string note = row.note.empty() ? "" : "; " + std::string(row.note);
  const auto converted = value.empty() ? std::nullopt : convert(row, value);
  if (converted && converted->empty())
    return {"remove it (" + owner + "): it asks for nothing", ""};
  return {
      "write " + paths + (converted ? ": " + shown(*converted) : "") + " (" + owner + ")" + note,
      converted && all.size() == 1 ? paths : ""};
}

}  // namespace

std::string_view name_of(Project project) {
  switch (project) {
    case Project::hugging_face: return "Hugging Face";
    case Project::nanogpt: return "nanoGPT";
    case Project::torchtitan: return "torchtitan";
    case Project::llmc: return "llm.c";
    case Project::megatron: break;
  }
  return "Megatron";
}

std::span<const OtherKey> other_keys(Project project) {
  switch (project) {
    case Project::hugging_face: return hugging_face_keys();
    case Project::nanogpt: return nanogpt_keys();
    case Project::torchtitan: return torchtitan_keys();
    case Project::llmc: return llmc_keys();
    case Project::megatron: break;
  }
  return megatron_arguments();
}

const OtherKey* find_other_key(Project project, std::string_view key) {
  const std::string wanted = folded(key);
  const auto rows = other_keys(project);
  for (const OtherKey& row : rows) {
    if (folded(row.key) == wanted) return &row;
  }
  const auto found = std::find_if(rows.begin(), rows.end(),
                                  [&](const OtherKey& row) { return same_key(row, wanted); });
  return found == rows.end() ? nullptr : &*found;
}

std::vector<std::string> paths_of(const OtherKey& row) { return split_at(row.paths, ' '); }

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

Hint hint_for(const std::string& section, const std::string& key, const std::string& value) {
  const std::string inside = section.empty() ? key : section + "." + key;
  for (const std::string& wanted : {inside, key}) {
    for (const Project project : projects) {
      const OtherKey* row = find_other_key(project, wanted);
      if (row == nullptr) continue;
      const bool is_here = row->paths == inside && find_known_path(inside) != nullptr;
      if (!is_here) return hint_of(project, *row, value);
    }
  }
  return {};
}

}  // namespace trainctl
