// Features of an x86-64 processor, as reported by CPUID and the operating system, and the features
// that are missing for a level. Internal to lib/ops.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "ops/cpu_level.h"

namespace trainctl {

/// The CPUID registers with the supported instructions, by leaf, and XCR0 with the register sets
/// that the operating system saves.
struct CpuIdentity {
  std::uint32_t leaf1_ecx = 0;
  std::uint32_t leaf7_ebx = 0;
  std::uint32_t leaf7_edx = 0;
  std::uint32_t leaf7_1_eax = 0;
  std::uint32_t extended1_ecx = 0;
  std::uint32_t xcr0 = 0;
};

/// Reads the registers of the processor on which this thread runs.
CpuIdentity read_cpu_identity();

/// Names of the features missing for `level` and the levels below it; empty if none.
std::vector<std::string_view> missing_features(const CpuIdentity& identity, CpuLevel level);

/// Asks Linux to let this process use AMX's tile registers; returns false if it refuses. May be
/// called repeatedly.
bool request_amx();

}  // namespace trainctl
