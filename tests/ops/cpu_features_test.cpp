#include "ops/cpu/cpu_features.h"

#include "catch.h"

namespace cpu_features_test {

using namespace trainctl;

namespace {

using Names = std::vector<std::string_view>;

// Registers as these processors report them; the operating system saves all register sets.
constexpr CpuIdentity nehalem{.leaf1_ecx = 0x009ce3bd, .extended1_ecx = 0x00000001};
constexpr CpuIdentity haswell{
    .leaf1_ecx = 0x7ffafbff, .leaf7_ebx = 0x000027ab, .extended1_ecx = 0x00000021, .xcr0 = 0x7};
constexpr CpuIdentity skylake_server{.leaf1_ecx = 0x7ffefbff,
                                     .leaf7_ebx = 0xd39ffffb,
                                     .leaf7_edx = 0xbc000c00,
                                     .extended1_ecx = 0x00000121,
                                     .xcr0 = 0xe7};
constexpr CpuIdentity sapphire_rapids{.leaf1_ecx = 0x7ffefbff,
                                      .leaf7_ebx = 0xf3bfbffb,
                                      .leaf7_edx = 0xffdd4432,
                                      .leaf7_1_eax = 0x00001c30,
                                      .extended1_ecx = 0x00000121,
                                      .xcr0 = 0x600e7};

/// Whether `identity` has v3, avx512, avx512_bf16 and amx.
std::vector<bool> levels_of(const CpuIdentity& identity) {
  std::vector<bool> has;
  for (const CpuLevel level :
       {CpuLevel::v3, CpuLevel::avx512, CpuLevel::avx512_bf16, CpuLevel::amx}) {
    has.push_back(missing_features(identity, level).empty());
  }
  return has;
}

}  // namespace

TEST_CASE("processors have the levels of their instructions") {
  CHECK(levels_of(nehalem) == std::vector<bool>{false, false, false, false});
  CHECK(levels_of(haswell) == std::vector<bool>{true, false, false, false});
  CHECK(levels_of(skylake_server) == std::vector<bool>{true, true, false, false});
  CHECK(levels_of(sapphire_rapids) == std::vector<bool>{true, true, true, true});
}

TEST_CASE("what is missing is named, lower levels first") {
  CHECK(missing_features(nehalem, CpuLevel::v3) == Names{"fma", "movbe", "avx", "f16c", "bmi1",
                                                         "avx2", "bmi2", "lzcnt",
                                                         "ymm registers (operating system)"});
  CHECK(missing_features(skylake_server, CpuLevel::avx512_bf16) == Names{"avx512bf16"});
}

TEST_CASE("instructions whose registers the operating system does not save do not count") {
  CpuIdentity identity = sapphire_rapids;
  identity.xcr0 = 0xe7;
  CHECK(missing_features(identity, CpuLevel::amx) == Names{"tile registers (operating system)"});
  identity.xcr0 = 0x7;
  CHECK(levels_of(identity) == std::vector<bool>{true, false, false, false});
  identity.xcr0 = 0x3;
  CHECK(levels_of(identity) == std::vector<bool>{false, false, false, false});
}

}  // namespace cpu_features_test
