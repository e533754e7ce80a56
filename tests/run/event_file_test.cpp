// Event files against bytes that follow from event.proto, summary.proto and TFRecord's framing, and
// a whole file against what TensorBoard read of it (tests/reference/check_tensorboard.py).
#include "run/views/event_file.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "catch.h"
#include "run/views/run_files.h"

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

TEST_CASE("an event file is the one that TensorBoard read, with the values that it read") {
  const std::string run = std::string(TRAINCTL_SOURCE_DIR) + "/tests/reference/events";
  const RunFiles files = read_run_files(run);
  std::ostringstream bytes;
  bytes << std::ifstream(run + "/tensorboard/" + event_file_name(files.times.front())).rdbuf();
  CHECK(event_file_of(files) == bytes.str());
  const auto read = nlohmann::json::parse(std::ifstream(run + "/tensorboard.json"));
  CHECK(read.size() == files.series.size());
  for (const auto& [key, values] : files.series) {
    std::string tag = key;
    std::replace(tag.begin(), tag.end(), '.', '/');
    INFO(tag);
    nlohmann::json wanted = nlohmann::json::array();
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (std::isnan(values[i])) continue;
      const double stored = static_cast<float>(values[i]);
      wanted.push_back({files.at_step[i], stored});
    }
    CHECK(read.at(tag) == wanted);
  }
}
