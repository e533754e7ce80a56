// Which layers of a config.json have a window and which have RoPE, as kinds of model.layers.
#include <algorithm>
#include <set>
#include <vector>

#include "config/upstream/hugging_face_reader.h"
#include "config/upstream/layer_keys.h"

namespace trainctl {
namespace {

constexpr std::int64_t longest_model = 10'000;  // that num_layers may be

/// Whether layer_types says that a layer slides; empty without a list, or where it is wrong.
std::vector<bool> listed_windows(HuggingFaceReader& reader, std::int64_t layers) {
  std::vector<bool> slides;
  const HuggingFaceJson& words = reader.at("layer_types");
  if (words.is_null()) return slides;
  if (!words.is_array() || std::ssize(words) != layers) {
    reader.problem("layer_types",
                   "expected a list of " + std::to_string(layers) + " words, one a layer");
    return slides;
  }
  for (const HuggingFaceJson& word : words) {
    if (word != "full_attention" && word != "sliding_attention") {
      reader.problem("layer_types", word,
                     "attention is built as full_attention and sliding_attention");
      return {};
    }
    slides.push_back(word == "sliding_attention");
  }
  return slides;
}

/// Keys that a query of a layer with the window sees; 0: the file asks for no window, or for one
/// that hides nothing.
std::int64_t window_of(HuggingFaceReader& reader, const HuggingFaceFamily& family,
                       std::int64_t positions) {
  const HuggingFaceWindow rule = family.window;
  if (rule == HuggingFaceWindow::none) {
    reader.only("use_sliding_window", {false},
                "model_type " + std::string(family.type) + " has no window");
    return 0;
  }
  if (asks_for_window(rule) && !reader.flag("use_sliding_window", false)) return 0;
  const bool missing_is_none =
      rule == HuggingFaceWindow::all_if_given || rule == HuggingFaceWindow::without_rope;
  if (!reader.has("sliding_window") && missing_is_none) return 0;
  if (reader.has("sliding_window") && reader.at("sliding_window").is_null()) return 0;
  const std::int64_t window = reader.size("sliding_window", family.sliding_window);
  return window < positions ? window : 0;
}

/// Each so many-th layer has no window. A text has a letter for each layer of the pattern, which
/// ends with the one without: "LLLG".
std::int64_t window_pattern(HuggingFaceReader& reader, const HuggingFaceFamily& family) {
  const char* key =
      reader.has("_sliding_window_pattern") ? "_sliding_window_pattern" : "sliding_window_pattern";
  const HuggingFaceJson& given = reader.at(key);
  if (!given.is_string()) return reader.size(key, family.window_pattern);
  const auto text = given.get<std::string>();
  const bool plain = !text.empty() && text.find('G') == text.size() - 1 &&
                     text.find_first_not_of('L') == text.size() - 1;
  if (!plain) reader.problem(key, "expected L for each layer with a window and one G at the end");
  return plain ? std::ssize(text) : family.window_pattern;
}

/// Whether each layer has the window.
std::vector<bool> sliding_layers(HuggingFaceReader& reader, const HuggingFaceFamily& family,
                                 const std::vector<bool>& turns, std::int64_t positions) {
  const auto layers = std::ssize(turns);
  const std::vector<bool> listed = listed_windows(reader, layers);
  const HuggingFaceJson& window = reader.at("sliding_window");
  const bool hides = window.is_number() && window < positions;
  if (family.window == HuggingFaceWindow::none && hides &&
      std::ranges::find(listed, true) != listed.end()) {
    reader.problem("layer_types", "sliding_attention",
                   "model_type " + std::string(family.type) + " has no window");
  }
  if (slides_everywhere(family.window)) return std::vector<bool>(turns.size(), true);
  if (family.window == HuggingFaceWindow::none) return std::vector<bool>(turns.size(), false);
  if (!listed.empty()) return listed;
  std::vector<bool> slides;
  if (slides_by_pattern(family.window)) {
    const std::int64_t every = window_pattern(reader, family);
    const std::int64_t first = family.window == HuggingFaceWindow::but_each_nth ? 1 : 0;
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      slides.push_back((layer + first) % every != 0);
    }
    return slides;
  }
  const std::int64_t first = family.window == HuggingFaceWindow::without_rope
                                 ? 0
                                 : reader.size("max_window_layers", family.max_window_layers);
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const bool turned = turns[static_cast<std::size_t>(layer)];
    slides.push_back(family.window == HuggingFaceWindow::without_rope ? !turned
                     : family.window == HuggingFaceWindow::if_asked_even
                         ? layer % 2 == 0 && layer < first
                         : layer >= first);
  }
  return slides;
}

/// Whether each layer has RoPE: 1 in the list no_rope_layers, or all but every n-th layer, or those
/// that the list of bases gives one.
std::vector<bool> turning_layers(HuggingFaceReader& reader, const HuggingFaceFamily& family,
                                 std::int64_t layers, const std::vector<double>& thetas) {
  std::vector<bool> turns(static_cast<std::size_t>(layers), true);
  for (std::size_t layer = 0; layer < thetas.size(); ++layer) turns[layer] = thetas[layer] > 0;
  if (family.no_rope_layer_interval == 0) return turns;
  const HuggingFaceJson& list = reader.at("no_rope_layers");
  if (list.is_null()) {
    const std::int64_t every = reader.size("no_rope_layer_interval", family.no_rope_layer_interval);
    for (std::int64_t layer = every; layer <= layers; layer += every) {
      turns[static_cast<std::size_t>(layer) - 1] = false;
    }
    return turns;
  }
  const auto is_mark = [](const HuggingFaceJson& one) { return one == 0 || one == 1; };
  if (!list.is_array() || std::ssize(list) != layers || !std::ranges::all_of(list, is_mark)) {
    reader.problem("no_rope_layers", "expected a list of " + std::to_string(layers) +
                                         " numbers, 1 for a layer with RoPE and 0 for one without");
    return turns;
  }
  for (std::size_t layer = 0; layer < turns.size(); ++layer) turns[layer] = list[layer] == 1;
  return turns;
}

}  // namespace

void read_hugging_face_layers(HuggingFaceReader& reader, const HuggingFaceFamily& family,
                              std::int64_t layers, std::int64_t positions,
                              const HuggingFaceRopes& ropes, const std::set<std::int64_t>& routed) {
  if (layers > longest_model) return;  // num_layers says so
  const std::vector<bool> turns = turning_layers(reader, family, layers, ropes.thetas);
  const std::vector<bool> slides = sliding_layers(reader, family, turns, positions);
  const std::int64_t window = window_of(reader, family, positions);
  std::vector<LayerKeys> keys;
  const bool has_window = !reader.has("sliding_window") || !reader.at("sliding_window").is_null();
  for (std::size_t layer = 0; layer < turns.size(); ++layer) {
    const bool turned = turns[layer] && (!family.turns_with_window || !has_window || slides[layer]);
    const double theta = ropes.thetas.empty() ? 0 : ropes.thetas[layer];
    keys.push_back({.turns = turned,
                    .window = slides[layer] ? window : 0,
                    .local = !ropes.local.empty() && has_window && slides[layer],
                    .base = theta == ropes.theta ? 0 : theta,
                    .routed = routed.contains(static_cast<std::int64_t>(layer))});
  }
  if (have_kinds(keys) || keys.front().local) {
    reader.give_text("layers", write_kinds(keys, ropes.local));
    return reader.give("layer_pattern", write_pattern(keys));
  }
  if (!keys.front().turns) reader.give("use_rope", false);
  if (keys.front().window > 0) reader.give("sliding_window", keys.front().window);
}

}  // namespace trainctl
