// Layers of a config.json that differ from each other, as kinds of model.layers.
#include <algorithm>
#include <vector>

#include "config/upstream/hugging_face_reader.h"

namespace trainctl {
namespace {

constexpr std::int64_t most_layers = 10'000;  // that num_layers may be

/// "rope*3, no_rope": a word for each layer, of `words`.
std::string pattern_of(const std::vector<bool>& layers, const char* yes, const char* no) {
  std::string text;
  for (std::size_t first = 0; first < layers.size();) {
    std::size_t end = first;
    while (end < layers.size() && layers[end] == layers[first]) ++end;
    text += (text.empty() ? "" : ", ") + std::string(layers[first] ? yes : no);
    if (end - first > 1) text += "*" + std::to_string(end - first);
    first = end;
  }
  return text;
}

/// Whether each layer has RoPE: 1 in the list no_rope_layers, or all but every n-th layer.
std::vector<bool> layers_with_rope(HuggingFaceReader& reader, const HuggingFaceFamily& family,
                                   std::int64_t layers) {
  std::vector<bool> turns;
  const HuggingFaceJson& list = reader.at("no_rope_layers");
  if (list.is_null()) {
    const std::int64_t every = reader.size("no_rope_layer_interval", family.no_rope_layer_interval);
    for (std::int64_t layer = 1; layer <= layers; ++layer) turns.push_back(layer % every != 0);
    return turns;
  }
  const auto is_mark = [](const HuggingFaceJson& one) { return one == 0 || one == 1; };
  if (!list.is_array() || std::ssize(list) != layers || !std::ranges::all_of(list, is_mark)) {
    reader.problem("no_rope_layers", "expected a list of " + std::to_string(layers) +
                                         " numbers, 1 for a layer with RoPE and 0 for one without");
    return std::vector<bool>(static_cast<std::size_t>(layers), true);
  }
  for (const HuggingFaceJson& one : list) turns.push_back(one == 1);
  return turns;
}

}  // namespace

void read_hugging_face_layers(HuggingFaceReader& reader, const HuggingFaceFamily& family,
                              std::int64_t layers) {
  if (family.no_rope_layer_interval == 0 || layers > most_layers) return;  // num_layers says so
  const std::vector<bool> turns = layers_with_rope(reader, family, layers);
  const auto first_without = std::ranges::find(turns, false);
  if (first_without == turns.end()) return;
  if (std::ranges::find(turns, true) == turns.end()) return reader.give("use_rope", false);
  reader.give_text("layers", "[{name: rope, use_rope: true}, {name: no_rope, use_rope: false}]");
  reader.give("layer_pattern", pattern_of(turns, "rope", "no_rope"));
}

}  // namespace trainctl
