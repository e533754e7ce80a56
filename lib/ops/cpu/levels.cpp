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

constexpr std::array<CpuLevel, 4> levels{CpuLevel::v3, CpuLevel::avx512, CpuLevel::avx512_bf16,
                                         CpuLevel::amx};

Kernels make_table(CpuLevel level) {
  Kernels table = level == CpuLevel::v3 ? trainctl_level_v3.kernels : trainctl_level_avx512.kernels;
  if (level >= CpuLevel::avx512_bf16) {
    table.attention_forward = trainctl_level_avx512_bf16.kernels.attention_forward;
    table.attention_backward = trainctl_level_avx512_bf16.kernels.attention_backward;
  }
  table.matmul = matmul_kernel(level);
  return table;
}

}  // namespace

std::vector<CpuLevel> available_cpu_levels() {
  const CpuIdentity identity = read_cpu_identity();
  std::vector<CpuLevel> available;
  for (const CpuLevel level : levels) {
    const bool usable =
        missing_features(identity, level).empty() && (level != CpuLevel::amx || request_amx());
    if (usable) available.push_back(level);
  }
  return available;
}

const Kernels& kernels_of(CpuLevel level) {
  static const std::array<Kernels, 4> tables{make_table(CpuLevel::v3), make_table(CpuLevel::avx512),
                                             make_table(CpuLevel::avx512_bf16),
                                             make_table(CpuLevel::amx)};
  return tables[static_cast<std::size_t>(level) - static_cast<std::size_t>(CpuLevel::v3)];
}

std::string lacking_cpu_features() {
  std::string list;
  for (const std::string_view name : missing_features(read_cpu_identity(), CpuLevel::v3)) {
    list += (list.empty() ? "" : ", ") + std::string(name);
  }
  return list;
}

}  // namespace trainctl
