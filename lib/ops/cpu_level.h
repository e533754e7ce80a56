// The instruction sets that the CPU kernels are compiled for, and the one that this process uses.
// Every set contains the ones before it. Results at two levels agree up to rounding only.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trainctl {

struct Kernels;

/// x86-64-v3 has AVX2 and FMA; avx512 adds AVX-512 F, BW, CD, DQ and VL; avx512_bf16 adds products
/// of bf16 pairs; amx adds tiles of bf16. A build without these kernels has only `plain`.
enum class CpuLevel : std::uint8_t { plain, v3, avx512, avx512_bf16, amx };

/// "v3", as TRAINCTL_CPU_LEVEL names it.
std::string_view name_of(CpuLevel level);

/// The levels of this build that the processor and the operating system have, lowest first. Empty
/// on a processor below x86-64-v3.
std::vector<CpuLevel> available_cpu_levels();

/// The level that this process uses: the highest available, or the one that the environment
/// variable TRAINCTL_CPU_LEVEL names. Throws Error{unavailable} where the processor has no level,
/// and where the variable names an unknown or unavailable one.
CpuLevel cpu_level();

/// Changes the level of this process. Call it before the first operation, since oneDNN cannot
/// change its level later. Throws Error{unavailable} where the level is not available.
void set_cpu_level(CpuLevel level);

/// The level for `wish`, a level's name or null for the highest. Throws as cpu_level() does;
/// `lacking` says what a processor without any level lacks.
CpuLevel choose_cpu_level(const char* wish, std::span<const CpuLevel> available,
                          std::string_view lacking);

// The implementation of the CPU levels of this build: cpu/levels.cpp, or plain/kernels_as_cpu.cpp
// in a build without fast kernels. Internal to lib/ops and its tests.

/// The complete table of a level of this build.
const Kernels& kernels_of(CpuLevel level);

/// Names of the features that the processor lacks for the lowest level, "avx2, fma"; "" if none.
std::string lacking_cpu_features();

}  // namespace trainctl
