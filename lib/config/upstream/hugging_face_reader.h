// Typed values of a config.json and their problems; used only by the files hugging_face*.cpp.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "config/schema/values.h"
#include "config/upstream/hugging_face.h"

namespace trainctl {

using HuggingFaceJson = nlohmann::json;

/// Reads typed values of a config.json and collects problems.
class HuggingFaceReader {
 public:
  HuggingFaceReader(const HuggingFaceJson& root, HuggingFaceConfig& result)
      : root_(root), result_(result) {}

  /// The value of a key; null if it is missing.
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

  /// An integer above 0. Null or a missing key gives `otherwise`; without that, it is a problem.
  std::int64_t size(const std::string& key, std::optional<std::int64_t> otherwise = {}) {
    const HuggingFaceJson& value = at(key);
    if (value.is_null() && otherwise) return *otherwise;
    const bool fits = value.is_number_unsigned() && value.get<std::uint64_t>() >= 1 &&
                      value.get<std::uint64_t>() <= (std::uint64_t{1} << 40);
    if (!fits) problem(key, "expected a whole number of at least 1");
    return fits ? value.get<std::int64_t>() : 1;
  }
  /// size(), but a missing key (not a null one) gives `missing` if that is set.
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
  /// Reports a problem with this rule unless the value is missing, null or one of `accepted`.
  void only(const std::string& key, const std::vector<HuggingFaceJson>& accepted,
            const std::string& rule) {
    const HuggingFaceJson& value = at(key);
    if (value.is_null()) return;
    for (const HuggingFaceJson& one : accepted) {
      if (value == one) return;
    }
    problem(key, rule);
  }

  /// A reader of the object `root`, which adds problems to the list of this reader.
  HuggingFaceReader with(const HuggingFaceJson& root) const { return {root, result_}; }
  const HuggingFaceJson& root() const { return root_; }

  /// Adds a key of our model section.
  template <class Value>
  void give(const std::string& key, const Value& value) {
    add(result_.model, key, write_value(value));
  }
  void give_text(const std::string& key, const std::string& text) { add(result_.model, key, text); }
  /// Adds a key of our section moe.
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

/// Reads which of the `layers` layers have experts and how these are chosen, for families with
/// experts. Returns the layers with experts if no key of section moe can say which they are, else
/// an empty set.
std::set<std::int64_t> read_hugging_face_experts(HuggingFaceReader& reader,
                                                 const HuggingFaceFamily& family,
                                                 std::int64_t layers);
/// Settings of RoPE that differ between layers.
struct HuggingFaceRopes {
  // Keys of layers with a window that differ from other layers, ", rotary_base: 10000.0"; "" if
  // none.
  std::string local{};
  std::vector<double> thetas{};  // base of each layer, 0 without RoPE; empty if the file has none
  double theta = 0;              // base of the model, if `thetas` is given
};
/// Reads which layers have a window and which have RoPE. `routed`: the layers with experts, if the
/// kinds of layers must express that.
void read_hugging_face_layers(HuggingFaceReader& reader, const HuggingFaceFamily& family,
                              std::int64_t layers, std::int64_t positions,
                              const HuggingFaceRopes& ropes, const std::set<std::int64_t>& routed);
/// Reads the settings of RoPE, in both spellings, and the growth of queries with their position,
/// which is among these settings.
HuggingFaceRopes read_hugging_face_rope(HuggingFaceReader& reader, const HuggingFaceFamily& family,
                                        std::int64_t layers, std::int64_t positions);

}  // namespace trainctl
