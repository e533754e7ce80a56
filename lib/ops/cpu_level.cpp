#include "ops/cpu_level.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>

#include "base/error.h"

namespace trainctl {

namespace {

constexpr std::array<std::string_view, 5> names{"plain", "v3", "avx512", "avx512_bf16", "amx"};

std::string listed(std::span<const CpuLevel> levels) {
  std::string list;
  for (const CpuLevel level : levels) {
    list += (list.empty() ? "" : ", ") + std::string(name_of(level));
  }
  return list;
}

std::atomic<CpuLevel>& level_in_use() {
  static std::atomic<CpuLevel> level{choose_cpu_level(
      std::getenv("TRAINCTL_CPU_LEVEL"), available_cpu_levels(), lacking_cpu_features())};
  return level;
}

}  // namespace

std::string_view name_of(CpuLevel level) { return names[static_cast<std::size_t>(level)]; }

CpuLevel cpu_level() { return level_in_use(); }

void set_cpu_level(CpuLevel level) {
  level_in_use() = choose_cpu_level(std::string(name_of(level)).c_str(), available_cpu_levels(),
                                    lacking_cpu_features());
}

CpuLevel choose_cpu_level(const char* wish, std::span<const CpuLevel> available,
                          std::string_view lacking) {
  require(!available.empty(), ExitCode::unavailable,
          "this processor is too old: trainctl needs x86-64-v3, and this one lacks " +
              std::string(lacking));
  if (wish == nullptr) return available.back();
  const auto name = std::ranges::find(names, wish);
  require(name != names.end(), ExitCode::unavailable,
          "TRAINCTL_CPU_LEVEL: unknown level \"" + std::string(wish) +
              "\"; this machine has: " + listed(available));
  const auto level = static_cast<CpuLevel>(name - names.begin());
  require(std::ranges::find(available, level) != available.end(), ExitCode::unavailable,
          "TRAINCTL_CPU_LEVEL: this machine cannot use level " + std::string(wish) +
              "; it has: " + listed(available));
  return level;
}

}  // namespace trainctl
