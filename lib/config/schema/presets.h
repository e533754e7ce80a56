// Known models as YAML for the model section.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trainctl {

struct Preset {
  std::string_view name;
  std::string_view yaml;  // a map with keys of the model section
};

/// Sorted by name.
std::span<const Preset> presets();
std::vector<std::string> preset_names();

}  // namespace trainctl
