// The tables of all levels, and which of them this machine can run. Compiled for every x86-64
// processor, since it runs before a level is chosen.
#include <array>
#include <string>

#include "ops/cpu/cpu_features.h"
#include "ops/cpu/level.h"
#include "ops/cpu/matmul.h"
#include "ops/cpu_tables.h"

namespace trainctl {

namespace {

#ifdef TRAINCTL_AVX512  // the levels are built (levels.cmake)
constexpr const LevelKernels* avx512 = &trainctl_level_avx512;
constexpr const LevelKernels* avx512_bf16 = &trainctl_level_avx512_bf16;
constexpr const LevelKernels* amx = &trainctl_level_amx;
#else
constexpr const LevelKernels* avx512 = nullptr;
constexpr const LevelKernels* avx512_bf16 = nullptr;
constexpr const LevelKernels* amx = nullptr;
#endif

const std::array<LevelParts, 4> levels{{
    {CpuLevel::v3, &trainctl_level_v3, &trainctl_level_v3},
    {CpuLevel::avx512, avx512, avx512},
    {CpuLevel::avx512_bf16, avx512, avx512_bf16},
    {CpuLevel::amx, avx512, amx},
}};

std::size_t index_of(CpuLevel level) {
  return static_cast<std::size_t>(level) - static_cast<std::size_t>(CpuLevel::v3);
}

Kernels make_table(const LevelParts& parts) {
  if (parts.base == nullptr) return {};
  Kernels table = parts.base->kernels;
  const Kernels& newest = parts.newest->kernels;
  if (newest.attention_forward != nullptr) table.attention_forward = newest.attention_forward;
  if (newest.attention_backward != nullptr) table.attention_backward = newest.attention_backward;
  table.matmul = matmul_kernel(parts.level);
  return table;
}

}  // namespace

std::vector<CpuLevel> available_cpu_levels() {
  const CpuIdentity identity = read_cpu_identity();
  std::vector<CpuLevel> available;
  for (const auto& [level, base, newest] : levels) {
    if (base == nullptr || !missing_features(identity, level).empty()) continue;
    if (level != CpuLevel::amx || request_amx()) available.push_back(level);
  }
  return available;
}

const LevelParts& parts_of(CpuLevel level) { return levels[index_of(level)]; }

const Kernels& kernels_of(CpuLevel level) {
  static const std::array<Kernels, 4> tables{make_table(levels[0]), make_table(levels[1]),
                                             make_table(levels[2]), make_table(levels[3])};
  return tables[index_of(level)];
}

std::string lacking_cpu_features() {
  std::string list;
  for (const std::string_view name : missing_features(read_cpu_identity(), CpuLevel::v3)) {
    list += (list.empty() ? "" : ", ") + std::string(name);
  }
  return list;
}

}  // namespace trainctl
