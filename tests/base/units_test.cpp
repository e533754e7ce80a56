#include "base/units.h"

#include "catch.h"

using namespace trainctl;

TEST_CASE("bytes") {
  CHECK(format_bytes(0) == "0 B");
  CHECK(format_bytes(1023) == "1023 B");
  CHECK(format_bytes(1536) == "1.50 KiB");
  CHECK(format_bytes(std::int64_t{3} << 40) == "3.00 TiB");
}

TEST_CASE("counts") {
  CHECK(format_count(950) == "950");
  CHECK(format_count(12'345) == "12.3k");
  CHECK(format_count(124'439'808) == "124M");
}

TEST_CASE("seconds") {
  CHECK(format_seconds(0.0000052) == "5.2 us");
  CHECK(format_seconds(0.0312) == "31.2 ms");
  CHECK(format_seconds(12.34) == "12.3 s");
  CHECK(format_seconds(125) == "2 m 05 s");
  CHECK(format_seconds(3725) == "1 h 02 m");
}

TEST_CASE("digits in groups") {
  CHECK(format_grouped(7) == "7");
  CHECK(format_grouped(1234567) == "1,234,567");
  CHECK(format_grouped(-1000) == "-1,000");
}
