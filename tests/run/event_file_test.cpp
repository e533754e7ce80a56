// Event files against bytes that follow from event.proto, summary.proto and TFRecord's framing;
// tests/reference/check_tensorboard.py reads whole files with TensorBoard itself.
#include "run/records/event_file.h"

#include <array>
#include <cstdio>

#include "catch.h"

using namespace trainctl;

namespace {

std::string hex(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) {
    std::array<char, 3> digits{};
    std::snprintf(digits.data(), digits.size(), "%02x", static_cast<unsigned char>(byte));
    text += digits.data();
  }
  return text;
}

}  // namespace

TEST_CASE("records of an event file, to the byte") {
  CHECK(crc32c("123456789") == 0xe3069283U);
  std::string bytes;
  append_file_version(1.0, bytes);
  CHECK(hex(bytes) ==
        "1800000000000000a37f4b2209000000000000f03f1a0d627261696e2e4576656e743a3286bf577a");
  bytes.clear();
  const std::array<Scalar, 1> loss{{{"loss", 2.5}}};
  append_scalars(2.0, 7, loss, bytes);
  CHECK(hex(bytes) ==
        "1a00000000000000129bd82d09000000000000004010072a0d0a0b0a046c6f73731500002040c2dfec60");
}
