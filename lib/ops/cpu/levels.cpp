// The tables of all levels, and the detection of levels that this machine supports. Compiled for
// every x86-64 processor, because it runs before a level is chosen.
#include <array>
#include <string>

#include "ops/cpu/cpu_features.h"
#include "ops/cpu/level.h"
#include "ops/cpu_level.h"

namespace trainctl {

namespace {

#ifdef TRAINCTL_AVX512  // these levels are built (levels.cmake)
constexpr const LevelKernels* avx512 = &trainctl_level_avx512;
constexpr const LevelKernels* avx512_bf16 = &trainctl_level_avx512_bf16;
constexpr const LevelKernels* amx = &trainctl_level_amx;
#else
constexpr const LevelKernels* avx512 = nullptr;
constexpr const LevelKernels* avx512_bf16 = nullptr;
constexpr const LevelKernels* amx = nullptr;
#endif

struct LevelParts {
  CpuLevel level;
  const LevelKernels* base;    // null if it is not in this build
  const LevelKernels* newest;  // replaces entries of `base` for bf16 operands
};

const std::array<LevelParts, 4> levels{{
    {CpuLevel::v3, &trainctl_level_v3, &trainctl_level_v3},
    {CpuLevel::avx512, avx512, avx512},
    {CpuLevel::avx512_bf16, avx512, avx512_bf16},
    {CpuLevel::amx, avx512, amx},
}};

std::size_t index_of(CpuLevel level) {
  return static_cast<std::size_t>(level) - static_cast<std::size_t>(CpuLevel::v3);
}

/// Calls entry `kernel` of the table that the level uses for q's type.
template <CpuLevel level, auto kernel, class Args>
void attention(const OpContext& context, const Args& args) {
  (part_of(level, args.q.dtype).kernels.*kernel)(context, args);
}

template <CpuLevel level>
Kernels make_table() {
  const LevelParts& parts = levels[index_of(level)];
  if (parts.base == nullptr) return {};
  Kernels table = parts.base->kernels;
  table.attention_forward = attention<level, &Kernels::attention_forward>;
  table.attention_backward = attention<level, &Kernels::attention_backward>;
  table.matmul = matmul_kernel(level);
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

const LevelKernels& part_of(CpuLevel level, DType operand) {
  const LevelParts& parts = levels[index_of(level)];
  return operand == DType::bf16 ? *parts.newest : *parts.base;
}

const Kernels& kernels_of(CpuLevel level) {
  static const std::array<Kernels, 4> tables{
      make_table<CpuLevel::v3>(), make_table<CpuLevel::avx512>(),
      make_table<CpuLevel::avx512_bf16>(), make_table<CpuLevel::amx>()};
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
