// The instruction sets for which the CPU kernels are compiled, and the set that this process uses.
// Every set contains the ones before it. Results of different levels agree only up to rounding.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trainctl {

struct Kernels;

/// x86-64-v3 has AVX2 and FMA; avx512 adds AVX-512 F, BW, CD, DQ and VL; avx512_bf16 adds products
/// of bf16 pairs; amx adds bf16 tiles. A build without these kernels has only `plain`.
enum class CpuLevel : std::uint8_t { plain, v3, avx512, avx512_bf16, amx };

/// The name of a level as in TRAINCTL_CPU_LEVEL, such as "v3".
std::string_view name_of(CpuLevel level);

/// The levels of this build that the processor and the operating system support, lowest first.
/// Empty if the processor is below x86-64-v3.
std::vector<CpuLevel> available_cpu_levels();

/// The level that this process uses: the highest available level, or the level named by the
/// environment variable TRAINCTL_CPU_LEVEL. Throws Error{unavailable} if the processor supports no
/// level, or if the variable names an unknown or unavailable one.
CpuLevel cpu_level();

/// Changes the level of this process. Must be called before the first operation, since oneDNN
/// cannot change its level later. Throws Error{unavailable} if the level is not available.
void set_cpu_level(CpuLevel level);

/// The level named `wish`, or the highest if null. Throws like cpu_level(); `lacking` lists the
/// missing features of a processor without any level, for the message.
CpuLevel choose_cpu_level(const char* wish, std::span<const CpuLevel> available,
                          std::string_view lacking);

// The CPU levels of this build, implemented in cpu/levels.cpp, or in plain/kernels_as_cpu.cpp for a
// build without fast kernels. Internal to lib/ops and its tests.

/// The complete kernel table for a level of this build.
const Kernels& kernels_of(CpuLevel level);

/// Features required by the lowest level that the processor lacks, such as "avx2, fma", or "".
std::string lacking_cpu_features();

}  // namespace trainctl
