#include "ops/cpu/cpu_features.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace trainctl {

namespace {

struct Feature {
  CpuLevel level;  // lowest level that needs it
  std::string_view name;
  std::uint32_t CpuIdentity::*word;
  std::uint32_t bits;  // all must be set
};

constexpr std::uint32_t bit(int place) { return std::uint32_t{1} << place; }

constexpr Feature features[] = {
    {CpuLevel::v3, "sse3", &CpuIdentity::leaf1_ecx, bit(0)},
    {CpuLevel::v3, "ssse3", &CpuIdentity::leaf1_ecx, bit(9)},
    {CpuLevel::v3, "fma", &CpuIdentity::leaf1_ecx, bit(12)},
    {CpuLevel::v3, "cx16", &CpuIdentity::leaf1_ecx, bit(13)},
    {CpuLevel::v3, "sse4.1", &CpuIdentity::leaf1_ecx, bit(19)},
    {CpuLevel::v3, "sse4.2", &CpuIdentity::leaf1_ecx, bit(20)},
    {CpuLevel::v3, "movbe", &CpuIdentity::leaf1_ecx, bit(22)},
    {CpuLevel::v3, "popcnt", &CpuIdentity::leaf1_ecx, bit(23)},
    {CpuLevel::v3, "avx", &CpuIdentity::leaf1_ecx, bit(28)},
    {CpuLevel::v3, "f16c", &CpuIdentity::leaf1_ecx, bit(29)},
    {CpuLevel::v3, "bmi1", &CpuIdentity::leaf7_ebx, bit(3)},
    {CpuLevel::v3, "avx2", &CpuIdentity::leaf7_ebx, bit(5)},
    {CpuLevel::v3, "bmi2", &CpuIdentity::leaf7_ebx, bit(8)},
    {CpuLevel::v3, "lahf", &CpuIdentity::extended1_ecx, bit(0)},
    {CpuLevel::v3, "lzcnt", &CpuIdentity::extended1_ecx, bit(5)},
    {CpuLevel::v3, "ymm registers (operating system)", &CpuIdentity::xcr0, bit(1) | bit(2)},
    {CpuLevel::avx512, "avx512f", &CpuIdentity::leaf7_ebx, bit(16)},
    {CpuLevel::avx512, "avx512dq", &CpuIdentity::leaf7_ebx, bit(17)},
    {CpuLevel::avx512, "avx512cd", &CpuIdentity::leaf7_ebx, bit(28)},
    {CpuLevel::avx512, "avx512bw", &CpuIdentity::leaf7_ebx, bit(30)},
    {CpuLevel::avx512, "avx512vl", &CpuIdentity::leaf7_ebx, bit(31)},
    {CpuLevel::avx512, "zmm registers (operating system)", &CpuIdentity::xcr0,
     bit(5) | bit(6) | bit(7)},
    {CpuLevel::avx512_bf16, "avx512bf16", &CpuIdentity::leaf7_1_eax, bit(5)},
    {CpuLevel::amx, "amx-bf16", &CpuIdentity::leaf7_edx, bit(22)},
    {CpuLevel::amx, "amx-tile", &CpuIdentity::leaf7_edx, bit(24)},
    {CpuLevel::amx, "tile registers (operating system)", &CpuIdentity::xcr0, bit(17) | bit(18)},
};

/// Executes XGETBV, which exists only if the operating system has set OSXSAVE.
std::uint32_t read_xcr0() {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

}  // namespace

CpuIdentity read_cpu_identity() {
  constexpr std::uint32_t os_saves_registers = bit(27);
  CpuIdentity identity;
  std::uint32_t eax = 0;
  std::uint32_t ebx = 0;
  std::uint32_t ecx = 0;
  std::uint32_t edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0) identity.leaf1_ecx = ecx;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0) {
    identity.leaf7_ebx = ebx;
    identity.leaf7_edx = edx;
    if (eax >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0) {
      identity.leaf7_1_eax = eax;
    }
  }
  if (__get_cpuid(0x80000001U, &eax, &ebx, &ecx, &edx) != 0) identity.extended1_ecx = ecx;
  if ((identity.leaf1_ecx & os_saves_registers) != 0) identity.xcr0 = read_xcr0();
  return identity;
}

std::vector<std::string_view> missing_features(const CpuIdentity& identity, CpuLevel level) {
  std::vector<std::string_view> missing;
  for (const Feature& feature : features) {
    const bool needed = feature.level <= level;
    const bool there = (identity.*feature.word & feature.bits) == feature.bits;
    if (needed && !there) missing.push_back(feature.name);
  }
  return missing;
}

bool request_amx() {
  constexpr long request_permission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long tile_data = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

}  // namespace trainctl
