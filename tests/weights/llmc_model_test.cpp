// llm.c's model file: our own files read back, and one whose bytes are laid out here by its
// description.
#include "weights/llmc_model.h"

#include <numeric>

#include "../data/scratch_folder.h"
#include "stored_model.h"
#include "weights/export.h"
#include "weights/hugging_face.h"

using namespace trainctl;
using namespace trainctl::testing;

namespace {

constexpr std::int64_t layers = 2, channels = 4, positions = 3, tokens = 5, padded = 128;

/// Header numbers of that model.
std::vector<std::int32_t> header(std::int32_t version) {
  std::vector<std::int32_t> numbers(256, 0);
  const std::int32_t first[] = {20240326, version, positions, tokens, layers, 2, channels, padded};
  std::copy(std::begin(first), std::end(first), numbers.begin());
  return numbers;
}

/// Values of the whole file: element i is i.
std::vector<float> counted() {
  const std::int64_t c = channels;
  const std::int64_t layer = 12 * c * c + 13 * c;
  std::vector<float> values(
      static_cast<std::size_t>((padded + positions) * c + layers * layer + 2 * c));
  std::iota(values.begin(), values.end(), 0.0F);
  return values;
}

std::vector<float> read(const LlmcWeights& file, const std::string& name, const MatrixBox& box) {
  std::vector<float> values(static_cast<std::size_t>(box.elements()));
  file.read(name, box, values.data());
  return values;
}

std::string file_of(std::int32_t version, const std::string& values) {
  return packed(header(version)) + values;
}

}  // namespace

TEST_CASE("tensors lie where llm.c puts them") {
  const ScratchFolder folder;
  const LlmcWeights file(folder.write("m.bin", file_of(3, packed(counted()))));
  CHECK(file.dtype() == DType::f32);
  CHECK(file.model().num_layers == 2);
  CHECK(file.model().vocab_size == 5);
  CHECK(file.model().num_attention_heads == 2);
  const float behind_tables = (padded + positions) * channels;
  CHECK(read(file, "embedding.token.weight", {.row = 4, .rows = 1, .column = 1, .columns = 2}) ==
        std::vector<float>{17, 18});
  CHECK(read(file, "embedding.position.weight", {.rows = 1, .columns = 1}).front() ==
        padded * channels);
  CHECK(read(file, "layers.1.norm1.weight", {.rows = 1}).front() == behind_tables + channels);
  // ln1w and ln1b of both layers, then qkvw of both: layer 1's k is the second third of its own.
  CHECK(read(file, "layers.1.attention.k.weight", {.row = 1, .rows = 1, .columns = 4}).front() ==
        behind_tables + 2 * 2 * channels + 3 * 16 + 16 + 4);
  const float last = static_cast<float>(counted().size());
  CHECK(read(file, "final_norm.bias", {.row = 3, .rows = 1}).front() == last - 1);
  CHECK(read(file, "layers.1.mlp.down.bias", {.row = 3, .rows = 1}).front() == last - 9);
}

TEST_CASE("files of llm.c that are broken are refused") {
  const ScratchFolder folder;
  const std::string good = file_of(3, packed(counted()));
  const auto error = [&](const std::string& bytes) {
    return error_of([&] { LlmcWeights(folder.write("m.bin", bytes)); });
  };
  CHECK(error(good) == "");
  CHECK(missing_in(error(good.substr(0, good.size() - 1)), {"65 ", "its header describes"}) == "");
  CHECK(missing_in(error(good + "x"), {"its header describes"}) == "");
  CHECK(missing_in(error("abc"), {"too few for the header"}) == "");
  CHECK(missing_in(error(file_of(4, "")), {"version 4"}) == "");
  for (std::size_t place = 2; place <= 7; ++place) {
    auto numbers = header(3);
    for (const std::int32_t bad : {0, -1, 1 << 30}) {
      numbers[place] = bad;
      CHECK(missing_in(error(packed(numbers)), {"65 ", "header number " + std::to_string(place)}) ==
            "");
    }
  }
}

TEST_CASE("a GPT-2 goes through llm.c's file unchanged") {
  ReadResult start = read_start(reference_model("gpt2"));
  const Plan plan = plan_of(start);
  const HuggingFaceWeights original(reference_model("gpt2"), plan.model);
  REQUIRE(unknown_to_llmc(plan.model) == "");
  for (const DType stored : {DType::f32, DType::bf16}) {
    const ScratchFolder folder;
    write_llmc_model(folder / "m.bin", plan.model, original, stored);
    const LlmcWeights file(folder / "m.bin");
    CHECK(file.dtype() == stored);
    CHECK(model_shape(file.model()).vocab == 75);
    const LoadedRank first(original, plan, 0);
    const LoadedRank second(file, plan, 0);
    for (int i = 0; i < static_cast<int>(plan.stages.front().parameters.size()); ++i) {
      const auto a = first.values(i);
      const auto b = second.values(i);
      INFO(plan.stages.front().parameters[static_cast<std::size_t>(i)].name);
      for (std::size_t k = 0; k < a.size(); ++k) {
        REQUIRE(b[k] == (stored == DType::f32 ? a[k] : to_float(to_bf16(a[k]))));
      }
    }
  }
}

TEST_CASE("models that llm.c does not have are named") {
  ReadResult start = read_start(reference_model("llama"));
  CHECK(unknown_to_llmc(plan_of(start).model) == "llm.c's file holds GPT-2 only");
  ReadResult gpt2 = read_start(reference_model("gpt2"));
  ModelShape model = plan_of(gpt2).model;
  model.tied = false;
  CHECK(unknown_to_llmc(model) != "");
}
