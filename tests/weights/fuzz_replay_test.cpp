#include "base/philox.h"
#include "catch.h"
#include "fuzz_body.h"
#include "thorough.h"

using namespace trainctl;
using namespace trainctl::testing;

namespace {

const std::string reference_folder =
    std::string(TRAINCTL_SOURCE_DIR) + "/tests/reference/hugging_face/";

/// Changes a few bytes, mostly to what means something in these files, or cuts the blob. The first
/// byte, which chooses the reader, stays.
std::string mutated(std::string blob, const Philox& random, std::size_t within) {
  static const std::string telling{"\x00\x01\x7f\xff\"{}[],:0129-.e\\/tnu", 23};
  const std::uint32_t changes = 1 + random.bits(0) % 4;
  for (std::uint32_t i = 1; i <= changes && blob.size() > 2; ++i) {
    const std::size_t reach = std::min(within, blob.size() - 1);
    const std::size_t at = 1 + random.bits(4 * i) % reach;
    switch (random.bits(4 * i + 1) % 12) {
      case 0: blob.resize(at); break;
      case 1: blob.insert(at, 1, telling[random.bits(4 * i + 2) % telling.size()]); break;
      case 2: blob.erase(at, 1 + random.bits(4 * i + 2) % 6); break;
      case 3: blob.insert(at, blob.substr(at, random.bits(4 * i + 2) % 60)); break;
      case 4: blob[at] = static_cast<char>(random.bits(4 * i + 2)); break;
      default: blob[at] = telling[random.bits(4 * i + 2) % telling.size()]; break;
    }
  }
  return blob;
}

}  // namespace

TEST_CASE("mutated model files give an Error or a model, never worse") {
  const ScratchFolder folder;
  folder.write("sharded/model-00001-of-00003.safetensors",
               bytes_of(reference_folder + "llama/model-00001-of-00003.safetensors"));
  for (const char* shard :
       {"model-00002-of-00003.safetensors", "model-00003-of-00003.safetensors"}) {
    folder.write(std::string("sharded/") + shard, bytes_of(reference_folder + "llama/" + shard));
  }
  std::vector<std::int32_t> llmc(256, 0);
  const std::int32_t numbers[] = {20240326, 3, 1, 2, 1, 1, 2, 2};
  std::copy(std::begin(numbers), std::end(numbers), llmc.begin());
  const std::string values(4 * (3 * 2 + 12 * 4 + 13 * 2 + 2 * 2), '\0');
  struct Seed {
    std::string blob;
    std::size_t within;  // bytes that are changed
  };
  const auto file = [&](const std::string& name) { return bytes_of(reference_folder + name); };
  const std::vector<Seed> seeds{
      {std::string(1, '\0') + file("llama.logits.safetensors"), 250},
      {"\x01" + file("llama/model.safetensors.index.json"), 4000},
      {"\x02" + file("llama/config.json"), 2000},
      {"\x02" + file("qwen2/config.json"), 2000},
      {"\x02" + file("gpt2/config.json"), 2000},
      {"\x02" + file("mixtral/config.json"), 2000},
      {"\x02" + file("qwen3_moe/config.json"), 2000},
      {"\x02" + file("dots1/config.json"), 2000},
      {"\x03" + packed(llmc) + values, 34},
  };
  for (const Seed& seed : seeds) CHECK(use_blob(folder, seed.blob));
  int accepted = 0;
  const auto rounds = static_cast<std::uint64_t>(tries(1200, 20'000));
  for (std::uint64_t i = 0; i < rounds; ++i) {
    const Seed& seed = seeds[i % seeds.size()];
    accepted += use_blob(folder, mutated(seed.blob, Philox(1, i), seed.within)) ? 1 : 0;
  }
  CHECK(accepted > tries(20, 400));
  CHECK(accepted < tries(900, 15'000));
}
