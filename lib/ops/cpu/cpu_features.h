// Features of an x86-64 processor, as CPUID and the operating system report them, and those that it
// lacks for a level. Internal to lib/ops.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "ops/cpu_level.h"

namespace trainctl {

/// The registers that say which instructions there are, by CPUID leaf, and the register sets that
/// the operating system saves (XCR0).
struct CpuIdentity {
  std::uint32_t leaf1_ecx = 0;
  std::uint32_t leaf7_ebx = 0;
  std::uint32_t leaf7_edx = 0;
  std::uint32_t leaf7_1_eax = 0;
  std::uint32_t extended1_ecx = 0;
  std::uint32_t xcr0 = 0;
};

/// Reads the registers of the processor that this thread runs on.
CpuIdentity read_cpu_identity();

/// Names of what a processor lacks for `level`, the levels below included; empty if nothing.
std::vector<std::string_view> missing_features(const CpuIdentity& identity, CpuLevel level);

/// Asks Linux to let this process use AMX's tile registers; false where it refuses. May be called
/// again.
bool request_amx();

}  // namespace trainctl
