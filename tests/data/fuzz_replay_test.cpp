#include "base/philox.h"
#include "catch.h"
#include "fuzz_body.h"
#include "thorough.h"

using namespace trainctl;
using namespace trainctl::testing;

namespace {

/// Changes a few bytes, mostly to values that matter to sizes and signs, or cuts the blob.
std::string mutated(std::string blob, const Philox& random) {
  static const std::string telling{"\x00\x01\x02\x7f\x80\xfe\xff\x03\x08", 9};
  const std::uint32_t changes = 1 + random.bits(0) % 4;
  for (std::uint32_t i = 1; i <= changes && !blob.empty(); ++i) {
    const std::size_t at = random.bits(4 * i) % blob.size();
    switch (random.bits(4 * i + 1) % 8) {
      case 0: blob.resize(at); break;
      case 1: blob.insert(at, 1 + random.bits(4 * i + 2) % 9, telling[at % telling.size()]); break;
      case 2: blob[at] = static_cast<char>(random.bits(4 * i + 2)); break;
      default: blob[at] = telling[random.bits(4 * i + 2) % telling.size()]; break;
    }
  }
  return blob;
}

}  // namespace

TEST_CASE("mutated token files give an Error or tokens, never worse") {
  const ScratchFolder folder;
  const std::string tokens = packed<std::uint16_t>({7, 8, 9, 10, 11, 12, 13, 14});
  const std::vector<std::string> seeds{
      "\x10" + tokens + megatron_index(8, 2, {3, 0, 5}),
      "\x10" + tokens + megatron_index(4, 4, {2, 2}),
      "\x10" + tokens + megatron_index(5, 8, {1, 1}),
      "\x10" + tokens + megatron_index(1, 1, {16}),
      "\x01" + llmc_header(20240520, 1, 8) + tokens,
      "\x01" + llmc_header(20240801, 7, 4) + tokens,
      "\x01" + tokens,
  };
  int opened = 0;
  for (const std::string& seed : seeds) CHECK(use_blob(folder, seed) >= 1);
  const auto rounds = static_cast<std::uint64_t>(tries(500, 2000));
  for (std::uint64_t i = 0; i < rounds; ++i) {
    opened += use_blob(folder, mutated(seeds[i % seeds.size()], Philox(1, i)));
  }
  CHECK(opened > tries(25, 100));
  CHECK(opened < tries(750, 3000));
}
