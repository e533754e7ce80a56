#include "config/devices/known_files.h"

#include <algorithm>

namespace trainctl {

std::vector<std::string> names_of(std::span<const KnownFile> files) {
  std::vector<std::string> names;
  for (const KnownFile& file : files) names.emplace_back(file.name);
  return names;
}

const KnownFile* find_known(std::span<const KnownFile> files, std::string_view name) {
  const auto found = std::ranges::find(files, name, &KnownFile::name);
  return found == files.end() ? nullptr : &*found;
}

}  // namespace trainctl
