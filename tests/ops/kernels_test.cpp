#include "ops/kernels.h"

#include "catch.h"
#include "op_values.h"

namespace kernels_test {

using namespace op_test;

TEST_CASE("the CPU tables are complete") {
  CHECK(missing_kernels(cpu_kernels()).empty());
  CHECK(missing_kernels(plain_kernels).empty());
  CHECK(cpu_kernels().name == "cpu");
  CHECK(plain_kernels.name == "plain");
  CHECK(&kernels_for(DeviceKind::cpu) == &cpu_kernels());
}

TEST_CASE("missing kernels are listed by name and refused by the front door") {
  Kernels partial = plain_kernels;
  partial.name = "partial";
  partial.cast = nullptr;
  partial.normal_fill = nullptr;
  CHECK(missing_kernels(partial) == std::vector<std::string_view>{"cast", "normal_fill"});
  const Host host(partial);
  Values x(Shape{4}, DType::f32);
  try {
    cast(host.context(), {.x = x.tensor(), .y = x.tensor()});
    FAIL("a missing kernel was called");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::unavailable);
    CHECK(std::string(error.what()) == "[cast] is not built for partial yet");
  }
}

}  // namespace kernels_test
