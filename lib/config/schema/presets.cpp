#include "config/schema/presets.h"

#include <string>
#include <vector>

#include "base/text.h"

namespace trainctl {

std::string_view embedded_presets_txt();  // presets.txt, embedded by lib/embed.cmake

const std::vector<Preset>& presets() {
  static const std::vector<std::string> rows = table_rows(embedded_presets_txt());
  static const std::vector<Preset> all = [] {
    std::vector<Preset> made;
    for (std::string_view row : rows) {
      const std::string_view name = take_until(row, " ");
      const std::string_view model = take_until(row, " moe ");
      made.push_back({name, model, row});
    }
    return made;
  }();
  return all;
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : presets()) names.emplace_back(preset.name);
  return names;
}

}  // namespace trainctl
