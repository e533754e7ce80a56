// Layers as files of other projects say them one by one, as text of model.layers and layer_pattern.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainctl {

/// What of a layer the file says by itself.
struct LayerKeys {
  bool turns = true;
  std::int64_t window = 0;  // 0: none
  bool local = false;       // RoPE of layers with a window
  double base = 0;          // of RoPE, where it is not the model's; 0: the model's
  bool routed = false;      // experts, where the file says it of each layer
  bool operator==(const LayerKeys&) const = default;
};

/// Whether they are of more than one kind.
bool have_kinds(const std::vector<LayerKeys>& layers);
/// "[{name: rope}, {name: no_rope, use_rope: false}]": each kind where it first occurs. Bases of
/// RoPE are numbered in their names: "rope", "rope_base1".
/// `local_rope`: further keys of the layers with RoPE of their own.
std::string write_kinds(const std::vector<LayerKeys>& layers, const std::string& local_rope);
/// "rope*3, no_rope", by the names of write_kinds.
std::string write_pattern(const std::vector<LayerKeys>& layers);

}  // namespace trainctl
