#include "ops/cpu_level.h"

#include <algorithm>
#include <array>

#include "catch.h"
#include "op_values.h"

namespace cpu_level_test {

using namespace op_test;

namespace {

std::string refusal_of(const char* wish, const std::vector<CpuLevel>& available,
                       std::string_view lacking = "") {
  try {
    choose_cpu_level(wish, available, lacking);
  } catch (const Error& error) {
    return error.code() == ExitCode::unavailable ? error.what() : "another exit code";
  }
  return "";
}

}  // namespace

TEST_CASE("the highest level is chosen, or the one that is asked for") {
  const std::array levels{CpuLevel::v3, CpuLevel::avx512, CpuLevel::avx512_bf16};
  CHECK(choose_cpu_level(nullptr, levels, "") == CpuLevel::avx512_bf16);
  for (const CpuLevel level : levels) {
    CHECK(choose_cpu_level(std::string(name_of(level)).c_str(), levels, "") == level);
  }
}

TEST_CASE("a level that is unknown or not available is refused by name") {
  const std::vector<CpuLevel> levels{CpuLevel::v3, CpuLevel::avx512};
  CHECK(refusal_of("amx", levels) ==
        "TRAINCTL_CPU_LEVEL: this machine cannot use level amx; it has: v3, avx512");
  CHECK(refusal_of("sse9", levels) ==
        "TRAINCTL_CPU_LEVEL: unknown level \"sse9\"; this machine has: v3, avx512");
  CHECK(refusal_of("", levels) ==
        "TRAINCTL_CPU_LEVEL: unknown level \"\"; this machine has: v3, avx512");
}

TEST_CASE("a processor below every level is refused with what it lacks") {
  const char* expected =
      "this processor is too old: trainctl needs x86-64-v3, and this one lacks avx2, fma";
  CHECK(refusal_of(nullptr, {}, "avx2, fma") == expected);
  CHECK(refusal_of("v3", {}, "avx2, fma") == expected);
}

TEST_CASE("every available level has a complete table of its own") {
  const std::vector<CpuLevel> levels = available_cpu_levels();
  REQUIRE_FALSE(levels.empty());
  CHECK(std::is_sorted(levels.begin(), levels.end()));
  for (const CpuLevel level : levels) {
    INFO(name_of(level));
    CHECK(missing_kernels(kernels_of(level)).empty());
    CHECK(std::count_if(levels.begin(), levels.end(), [&](CpuLevel other) {
            return kernels_of(other).matmul == kernels_of(level).matmul;
          }) == 1);
  }
}

TEST_CASE("the level in use can be lowered and decides which kernels run") {
  const CpuLevel before = cpu_level();
  for (const CpuLevel level : available_cpu_levels()) {
    set_cpu_level(level);
    CHECK(cpu_level() == level);
    CHECK(&cpu_kernels() == &kernels_of(level));
  }
  set_cpu_level(before);
}

}  // namespace cpu_level_test
