#include "base/dtype.h"

#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/integers.h"
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

TEST_CASE("half precision rounds to nearest even, below its normal numbers too") {
  CHECK(to_fp16(1.0F).bits == 0x3c00);
  CHECK(to_fp16(1.00048828125F).bits == 0x3c00);  // half way, to even (down)
  CHECK(to_fp16(1.00146484375F).bits == 0x3c02);  // half way, to even (up)
  CHECK(to_fp16(-65504.0F).bits == 0xfbff);
  CHECK(to_fp16(65519.0F).bits == 0x7bff);
  CHECK(to_fp16(65520.0F).bits == 0x7c00);  // half way to what would be 65536
  CHECK(to_fp16(0x1p-14F).bits == 0x0400);  // the least normal number
  CHECK(to_fp16(0x1p-24F).bits == 0x0001);  // the least of all
  CHECK(to_fp16(0x1p-25F).bits == 0x0000);  // a tie, to even
  CHECK(to_fp16(0x1.8p-24F).bits == 0x0002);
  CHECK(to_fp16(std::numeric_limits<float>::infinity()).bits == 0x7c00);
  CHECK(std::isnan(to_float(to_fp16(std::numeric_limits<float>::quiet_NaN()))));
  CHECK(to_float(fp16{0x0001}) == 0x1p-24F);
  CHECK(to_float(fp16{0x83ff}) == -1023 * 0x1p-24F);
  CHECK(to_float(fp16{0xfc00}) == -std::numeric_limits<float>::infinity());
  for (std::uint32_t bits = 0; bits <= 0x7c00U; ++bits) {
    const fp16 value{static_cast<std::uint16_t>(bits)};
    REQUIRE(to_fp16(to_float(value)).bits == value.bits);
    REQUIRE(to_fp16(-to_float(value)).bits == (value.bits | 0x8000U));
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
