#include "config/upstream/layer_keys.h"

#include <algorithm>

#include "config/schema/values.h"

namespace trainctl {
namespace {

bool differ(const std::vector<LayerKeys>& layers, const auto LayerKeys::*part) {
  return std::ranges::any_of(
      layers, [&](const LayerKeys& one) { return one.*part != layers.front().*part; });
}

/// Which of the bases that are not the model's a layer has, from 1; 0: the model's.
std::size_t number_of_base(const LayerKeys& one, const std::vector<LayerKeys>& layers) {
  std::vector<double> bases;
  for (const LayerKeys& layer : layers) {
    if (layer.base > 0 && std::ranges::find(bases, layer.base) == bases.end()) {
      bases.push_back(layer.base);
    }
    if (layer == one) break;
  }
  const auto found = std::ranges::find(bases, one.base);
  return found == bases.end() ? 0 : static_cast<std::size_t>(found - bases.begin()) + 1;
}

/// A name for a kind of these layers, of the parts in which they differ: "sliding", "no_rope".
std::string name_of(const LayerKeys& one, const std::vector<LayerKeys>& layers) {
  std::string name;
  if (differ(layers, &LayerKeys::window) || differ(layers, &LayerKeys::local)) {
    name = one.window > 0 || one.local ? "sliding" : "full";
  }
  const auto add = [&](const std::string& part) { name += (name.empty() ? "" : "_") + part; };
  if (differ(layers, &LayerKeys::turns)) add(one.turns ? "rope" : "no_rope");
  if (const auto base = number_of_base(one, layers)) add("base" + std::to_string(base));
  if (differ(layers, &LayerKeys::routed)) add(one.routed ? "experts" : "dense");
  return name.empty() ? "all" : name;
}

}  // namespace

bool have_kinds(const std::vector<LayerKeys>& layers) {
  return std::ranges::any_of(layers, [&](const LayerKeys& one) { return one != layers.front(); });
}

std::string write_kinds(const std::vector<LayerKeys>& layers, const std::string& local_rope) {
  std::vector<LayerKeys> kinds;
  std::string text;
  for (const LayerKeys& one : layers) {
    if (std::ranges::find(kinds, one) != kinds.end()) continue;
    kinds.push_back(one);
    text += (text.empty() ? "{name: " : ", {name: ") + name_of(one, layers);
    if (!one.turns) text += ", use_rope: false";
    if (one.window > 0) text += ", sliding_window: " + std::to_string(one.window);
    if (one.local) text += local_rope;
    if (one.base > 0) text += ", rotary_base: " + write_value(one.base);
    if (differ(layers, &LayerKeys::routed)) {
      text += std::string(", experts: ") + (one.routed ? "true" : "false");
    }
    text += "}";
  }
  return "[" + text + "]";
}

std::string write_pattern(const std::vector<LayerKeys>& layers) {
  std::string text;
  for (auto first = layers.begin(); first != layers.end();) {
    const auto end =
        std::find_if(first, layers.end(), [&](const LayerKeys& one) { return one != *first; });
    text += (text.empty() ? "" : ", ") + name_of(*first, layers);
    if (end - first > 1) text += "*" + std::to_string(end - first);
    first = end;
  }
  return text;
}

}  // namespace trainctl
