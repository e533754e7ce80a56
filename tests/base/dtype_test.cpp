#include "base/dtype.h"

#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/hash.h"
#include "base/shape.h"
#include "catch.h"

using namespace trainctl;

TEST_CASE("bfloat16 rounds to nearest even and keeps special values") {
  CHECK(to_bf16(1.0F).bits == 0x3f80);
  CHECK(to_bf16(1.00390625F).bits == 0x3f80);  // half way, to even (down)
  CHECK(to_bf16(1.01171875F).bits == 0x3f82);  // half way, to even (up)
  CHECK(to_bf16(1.005F).bits == 0x3f81);
  CHECK(to_bf16(3.4e38F).bits == 0x7f80);  // overflows to infinity
  CHECK(std::isinf(to_float(to_bf16(std::numeric_limits<float>::infinity()))));
  CHECK(std::isnan(to_float(to_bf16(std::numeric_limits<float>::quiet_NaN()))));
  for (int bits = 0; bits < 0x7f80; bits += 7) {
    const bf16 value{static_cast<std::uint16_t>(bits)};
    REQUIRE(to_bf16(to_float(value)).bits == value.bits);
  }
}

TEST_CASE("element sizes and names") {
  CHECK(size_of(DType::f32) == 4);
  CHECK(size_of(DType::bf16) == 2);
  CHECK(size_of(DType::f64) == 8);
  CHECK(name_of(DType::bf16) == "bf16");
}

TEST_CASE("shapes") {
  const Shape shape{2, 3, 4};
  CHECK(shape.numel() == 24);
  CHECK(shape.back() == 4);
  CHECK(shape.to_string() == "[2, 3, 4]");
  CHECK(Shape{}.numel() == 1);
  CHECK((Shape{1'000'000, 1'000'000}.numel()) == 1'000'000'000'000);
}

TEST_CASE("require throws with its exit code") {
  CHECK_NOTHROW(require(true, ExitCode::io, "fine"));
  try {
    require(false, ExitCode::bad_data, "broken");
    FAIL("require did not throw");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::bad_data);
    CHECK(std::string(error.what()) == "broken");
  }
}

TEST_CASE("FNV-1a agrees with its published vectors") {
  CHECK(fnv1a("") == 0xcbf29ce484222325ULL);
  CHECK(fnv1a("a") == 0xaf63dc4c8601ec8cULL);
  CHECK(fnv1a("foobar") == 0x85944171f73967e8ULL);
}
