// Known models as YAML for the sections model and moe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trainctl {

struct Preset {
  std::string_view name;
  std::string_view model;     // YAML map with keys of the model section
  std::string_view moe = "";  // YAML map with keys of the section moe; "" without experts
};

/// The presets, sorted by name.
const std::vector<Preset>& presets();
std::vector<std::string> preset_names();

}  // namespace trainctl
