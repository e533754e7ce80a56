// The typed values of one config.json, with their problems, and the defaults of keys; internal to
// hugging_face.cpp and hugging_face_experts.cpp.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "config/schema/values.h"
#include "config/upstream/hugging_face.h"

namespace trainctl {

using HuggingFaceJson = nlohmann::json;

/// One config.json: gives typed values and collects problems.
class HuggingFaceReader {
 public:
  HuggingFaceReader(const HuggingFaceJson& root, HuggingFaceConfig& result)
      : root_(root), result_(result) {}

  /// The value of a key, null where it is missing.
  const HuggingFaceJson& at(const std::string& key) const {
    static const HuggingFaceJson null;
    const auto found = root_.find(key);
    return found == root_.end() ? null : *found;
  }
  bool has(const std::string& key) const { return root_.contains(key); }

  void problem(const std::string& key, const std::string& rule) { problem(key, at(key), rule); }
  void problem(const std::string& key, const HuggingFaceJson& value, const std::string& rule) {
    const auto replace = HuggingFaceJson::error_handler_t::replace;
    const std::string text = shown(value.dump(-1, ' ', false, replace));
    result_.problems.push_back(key + (value.is_null() ? " is missing; " : " is " + text + "; ") +
                               rule);
  }

  /// A whole number above 0; null and a missing key give `otherwise`, or are a problem.
  std::int64_t size(const std::string& key, std::optional<std::int64_t> otherwise = {}) {
    const HuggingFaceJson& value = at(key);
    if (value.is_null() && otherwise) return *otherwise;
    const bool fits = value.is_number_unsigned() && value.get<std::uint64_t>() >= 1 &&
                      value.get<std::uint64_t>() <= (std::uint64_t{1} << 40);
    if (!fits) problem(key, "expected a whole number of at least 1");
    return fits ? value.get<std::int64_t>() : 1;
  }
  /// The same; a key that is missing, but not null, gives `missing` where there is one.
  std::int64_t size_or(const std::string& key, std::optional<std::int64_t> missing) {
    return missing && !has(key) ? *missing : size(key);
  }
  double number(const std::string& key, const HuggingFaceJson& value, double otherwise) {
    if (value.is_null()) return otherwise;
    if (!value.is_number()) problem(key, value, "expected a number");
    return value.is_number() ? value.get<double>() : otherwise;
  }
  double number(const std::string& key, double otherwise) {
    return number(key, at(key), otherwise);
  }
  bool flag(const std::string& key, bool otherwise) {
    const HuggingFaceJson& value = at(key);
    if (value.is_null()) return otherwise;
    if (!value.is_boolean()) problem(key, "expected true or false");
    return value.is_boolean() ? value.get<bool>() : otherwise;
  }
  /// Missing, null or one of `accepted`; else a problem with this rule.
  void only(const std::string& key, const std::vector<HuggingFaceJson>& accepted,
            const std::string& rule) {
    const HuggingFaceJson& value = at(key);
    if (value.is_null()) return;
    for (const HuggingFaceJson& one : accepted) {
      if (value == one) return;
    }
    problem(key, rule);
  }

  /// Adds a key of our model section.
  template <class Value>
  void give(const std::string& key, const Value& value) {
    add(result_.model, key, write_value(value));
  }
  void give_text(const std::string& key, const std::string& text) { add(result_.model, key, text); }
  /// The same of the section moe.
  template <class Value>
  void give_moe(const std::string& key, const Value& value) {
    add(result_.moe, key, write_value(value));
  }

 private:
  static void add(std::string& map, const std::string& key, const std::string& text) {
    map += (map.empty() ? "" : ", ") + key + ": " + text;
  }

  const HuggingFaceJson& root_;
  HuggingFaceConfig& result_;
};

/// What keys mean that a config.json leaves out: sizes of a family with rotary positions, from its
/// class in transformers 5. Nothing: that has no value that works either.
struct HuggingFaceDefaults {
  const char* type;  // of model_type
  std::int64_t vocab_size, hidden_size, intermediate_size;
  std::int64_t num_hidden_layers, num_attention_heads;
  std::int64_t num_key_value_heads;  // 0: as many as query heads
  std::int64_t max_position_embeddings;
  std::optional<std::int64_t> experts{}, num_experts_per_tok{}, moe_intermediate_size{},
      shared_expert_intermediate_size{};
};

inline constexpr HuggingFaceDefaults hugging_face_defaults[] = {
    {"llama", 32'000, 4096, 11'008, 32, 32, 0, 2048},
    {"mistral", 32'000, 4096, 14'336, 32, 32, 8, 131'072},
    {"mixtral", 32'000, 4096, 14'336, 32, 32, 8, 131'072, 8, 2},
    {"qwen2", 151'936, 4096, 22'016, 32, 32, 32, 32'768},
    {"qwen2_moe", 151'936, 2048, 5632, 24, 16, 16, 32'768, 60, 4, 1408, 5632},
    {"qwen3", 151'936, 4096, 22'016, 32, 32, 32, 32'768},
    {"qwen3_moe", 151'936, 2048, 6144, 24, 32, 4, 32'768, 128, 8, 768},
    {"dots1", 152'064, 4608, 10'944, 62, 32, 32, 2048, {}, {}, 1408},
};

/// Null for another type.
inline const HuggingFaceDefaults* hugging_face_defaults_of(const std::string& type) {
  for (const HuggingFaceDefaults& row : hugging_face_defaults) {
    if (type == row.type) return &row;
  }
  return nullptr;
}

/// The part of a config.json that says where the experts are and how they are chosen, for the
/// model types with experts; `layers` of the model.
void read_hugging_face_experts(HuggingFaceReader& reader, const HuggingFaceDefaults& defaults,
                               std::int64_t layers);
/// Whether models of that type have experts.
bool has_hugging_face_experts(const std::string& type);

}  // namespace trainctl
