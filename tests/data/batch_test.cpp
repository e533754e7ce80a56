#include "data/batch.h"

#include <map>
#include <numeric>

#include "catch.h"
#include "count_allocations.h"
#include "scratch_folder.h"

using namespace trainctl;
using namespace trainctl::testing;

namespace {

constexpr std::int64_t length = 8;

Dataset dataset_of(const ScratchFolder& folder, const std::vector<std::int32_t>& tokens,
                   const std::vector<std::int32_t>& documents, bool shuffle,
                   Split split = Split::train, SplitRule rule = {}, std::int64_t seq = length) {
  folder.write("t.bin", packed(tokens));
  folder.write("t.idx", megatron_index(4, 4, documents));
  std::vector<SourceFile> sources;
  sources.push_back({TokenFile::open(folder / "t"), 1});
  return Dataset(std::move(sources), rule, split, seq, 3, shuffle);
}

Dataset counting_dataset(const ScratchFolder& folder, bool shuffle = true) {
  std::vector<std::int32_t> tokens(1000);
  std::iota(tokens.begin(), tokens.end(), 0);
  return dataset_of(folder, tokens, {1000}, shuffle);
}

using Ints = std::vector<std::int32_t>;
using Floats = std::vector<float>;

}  // namespace

TEST_CASE("a batch holds inputs, labels and places") {
  const ScratchFolder folder;
  const Dataset data = counting_dataset(folder, false);
  Batch batch;
  make_train_batch(data, {.sequences = 2}, 3, batch);
  Ints expected(16);
  std::iota(expected.begin(), expected.end(), 24);
  CHECK(batch.tokens == expected);
  for (auto& token : expected) ++token;
  CHECK(batch.labels == expected);
  CHECK(batch.loss_weight == Floats(16, 1.0F));
  CHECK(batch.position == Ints{0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(batch.document == Ints(16, 0));
  CHECK(batch.global_token.front() == 24);
  CHECK(batch.global_token.back() == 39);
  CHECK(batch.weight_sum == 16);
}

TEST_CASE("end tokens and document starts divide a sequence") {
  const ScratchFolder folder;
  // 9 is the end token: of the first document; inside the second, where only the token tells.
  const Dataset data = dataset_of(folder, {1, 2, 9, 3, 9, 4, 5, 6, 7, 8}, {3, 4, 3}, false);
  Batch batch;
  make_train_batch(data, {.sequences = 1, .eod_token = 9}, 0, batch);
  CHECK(batch.document == Ints{0, 0, 0, 1, 1, 2, 2, 3});
  CHECK(batch.position == Ints{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(batch.weight_sum == 8);
  make_train_batch(
      data, {.sequences = 1, .reset_position_ids = true, .eod_mask_loss = true, .eod_token = 9}, 0,
      batch);
  CHECK(batch.document == Ints{0, 0, 0, 1, 1, 2, 2, 3});
  CHECK(batch.position == Ints{0, 1, 2, 0, 1, 0, 1, 0});
  CHECK(batch.loss_weight == Floats{1, 1, 0, 1, 0, 1, 1, 1});
  CHECK(batch.labels == Ints{2, 9, 3, 9, 4, 5, 6, 7});
  CHECK(batch.weight_sum == 6);
  make_train_batch(data, {.sequences = 1, .reset_position_ids = true, .eod_mask_loss = true}, 0,
                   batch);
  CHECK(batch.document == Ints{0, 0, 0, 1, 1, 1, 1, 2});
  CHECK(batch.position == Ints{0, 1, 2, 0, 1, 2, 3, 0});
  CHECK(batch.weight_sum == 8);
}

TEST_CASE("windows past the end weigh nothing") {
  const ScratchFolder folder;
  std::vector<std::int32_t> tokens(20, 0);
  const Dataset data = dataset_of(folder, tokens, {20}, false);
  REQUIRE(data.windows() == 2);
  Batch batch;
  make_window_batch(
      data, {.sequences = 3, .reset_position_ids = true, .eod_mask_loss = false, .eod_token = 0}, 1,
      batch);
  CHECK(batch.weight_sum == 8);
  for (std::size_t i = 0; i < 24; ++i) CHECK(batch.loss_weight[i] == (i < 8 ? 1.0F : 0.0F));
  CHECK(batch.tokens[23] == 0);
  CHECK(batch.labels[23] == 0);
  CHECK(batch.position[23] == 7);
  CHECK(batch.document[23] == 0);
  CHECK(batch.global_token[23] == 31);
}

TEST_CASE("all validation windows together weigh every label of the blocks once") {
  const ScratchFolder folder;
  std::vector<std::int32_t> tokens(5000, 1);
  const Dataset data =
      dataset_of(folder, tokens, {5000}, false, Split::validation, {0.5, true}, 600);
  Batch batch;
  double weight = 0;
  for (std::int64_t first = 0; first < data.windows(); first += 3) {
    make_window_batch(data, {.sequences = 3}, first, batch);
    weight += batch.weight_sum;
    CHECK(std::accumulate(batch.loss_weight.begin(), batch.loss_weight.end(), 0.0) ==
          batch.weight_sum);
  }
  CHECK(weight == 2 * 1023);
}

TEST_CASE("a step's samples do not depend on ranks and micro-batches") {
  const ScratchFolder folder;
  const Dataset data = counting_dataset(folder);
  constexpr std::int64_t global = 24;
  constexpr std::int64_t steps = 12;
  const auto samples_of = [&](std::int64_t ranks, std::int64_t sequences) {
    std::vector<std::map<std::int64_t, std::int32_t>> by_step(steps);
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      BatchLoader loader(data, {.sequences = sequences},
                         {.global_batch = global,
                          .microbatches = global / ranks / sequences,
                          .data_parallel = ranks,
                          .data_rank = rank,
                          .first_sample = 2 * global,
                          .steps = steps,
                          .ahead = rank % 4});
      for (auto& found : by_step) {
        for (const Batch& batch : loader.next_step()) {
          for (std::size_t i = 0; i < batch.tokens.size(); ++i) {
            const bool is_new = found.emplace(batch.global_token[i], batch.tokens[i]).second;
            REQUIRE(is_new);
          }
        }
      }
    }
    return by_step;
  };
  const auto serial = samples_of(1, 24);
  Dataset::Sample sample;
  for (std::int64_t i = 0; i < steps * global; ++i) {
    data.train_sample(2 * global + i, sample);
    const auto& step = serial[static_cast<std::size_t>(i / global)];
    REQUIRE(step.at((2 * global + i) * length) == sample.tokens[0]);
  }
  CHECK(samples_of(1, 1) == serial);
  CHECK(samples_of(2, 3) == serial);
  CHECK(samples_of(4, 6) == serial);
  CHECK(samples_of(8, 1) == serial);
}

TEST_CASE("steps with fewer micro-batches may come first") {
  const ScratchFolder folder;
  const Dataset data = counting_dataset(folder);
  for (std::int64_t rank = 0; rank < 2; ++rank) {
    BatchLoader loader(
        data, {.sequences = 2},
        {.global_batch = 12,
         .microbatches = 3,
         .data_parallel = 2,
         .data_rank = rank,
         .first_sample = 5,
         .steps = 5,
         .ahead = 2,
         .smaller = {{.steps = 2, .microbatches = 1}, {.steps = 1, .microbatches = 2}}});
    std::int64_t sample = 5;
    for (const std::size_t count : {1U, 1U, 2U, 3U, 3U}) {
      const auto& batches = loader.next_step();
      REQUIRE(batches.size() == count);
      for (std::size_t m = 0; m < count; ++m) {
        const std::int64_t first = sample + (2 * static_cast<std::int64_t>(m) + rank) * 2;
        CHECK(batches[m].global_token.front() == first * length);
        CHECK(batches[m].global_token.back() == (first + 2) * length - 1);
      }
      sample += 4 * static_cast<std::int64_t>(count);
    }
  }
}

TEST_CASE("the loader may be abandoned at any time") {
  const ScratchFolder folder;
  const Dataset data = counting_dataset(folder);
  const BatchLoader::Order order{.global_batch = 4, .microbatches = 2, .steps = 1000};
  { BatchLoader loader(data, {.sequences = 2}, order); }
  BatchLoader loader(data, {.sequences = 2}, order);
  loader.next_step();
}

TEST_CASE("steps beyond those ordered are refused") {
  const ScratchFolder folder;
  const Dataset data = counting_dataset(folder);
  BatchLoader loader(data, {.sequences = 2}, {.global_batch = 2, .microbatches = 1, .steps = 1});
  CHECK(loader.next_step().size() == 1);
  CHECK(missing_in(error_of([&] { loader.next_step(); }), {"70 ", "more steps"}) == "");
}

TEST_CASE("what the loader's thread meets is thrown by next_step, after the good steps") {
  const ScratchFolder folder;
  const Dataset data = counting_dataset(folder, false);
  std::filesystem::resize_file(folder / "t.bin", 4 * 40);  // samples 0 to 3 are still there
  BatchLoader loader(data, {.sequences = 1}, {.global_batch = 1, .microbatches = 1, .steps = 9});
  for (int step = 0; step < 4; ++step) CHECK(loader.next_step().size() == 1);
  CHECK(missing_in(error_of([&] { loader.next_step(); }), {"65 ", "t.bin", "offset 128"}) == "");
  CHECK(missing_in(error_of([&] { loader.next_step(); }), {"65 ", "t.bin"}) == "");
}

TEST_CASE("a step allocates nothing once every buffer has been used") {
  const ScratchFolder folder;
  const Dataset data = counting_dataset(folder);
  BatchLoader loader(data, {.sequences = 2}, {.global_batch = 8, .microbatches = 4, .steps = 200});
  for (int step = 0; step < 8; ++step) loader.next_step();
  const std::int64_t before = allocation_count();
  for (int step = 0; step < 150; ++step) loader.next_step();
  CHECK(allocation_count() == before);
}

TEST_CASE("a batch is as long as its longest row needs") {
  const ScratchFolder folder;
  std::vector<std::int32_t> tokens(27);
  std::iota(tokens.begin(), tokens.end(), 0);
  // Rows of 2, 5, 10 and 7 labels.
  folder.write("documents.bin", packed(tokens));
  folder.write("documents.idx", megatron_index(4, 4, {3, 6, 18}));
  std::vector<SourceFile> sources;
  sources.push_back({TokenFile::open(folder / "documents"), 1});
  const Dataset data(std::move(sources), {.documents = true}, Split::train, 10, 1, false);
  Batch batch;
  const BatchRule rule{.sequences = 2, .length_step = 4};
  make_train_batch(data, rule, 0, batch);
  CHECK(batch.length == 8);  // 5, rounded up
  CHECK(batch.tokens == Ints{0, 1, 2, 0, 0, 0, 0, 0, 3, 4, 5, 6, 7, 8, 0, 0});
  CHECK(batch.labels == Ints{1, 2, 0, 0, 0, 0, 0, 0, 4, 5, 6, 7, 8, 0, 0, 0});
  CHECK(batch.weight_sum == 7);
  CHECK(batch.real == std::vector<std::int64_t>{2, 5});
  CHECK(real_positions(batch) == 7);
  CHECK(counted_labels(batch) == 7);
  CHECK(batch.position == Ints{0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(batch.global_token[7] == 7);  // places are those of the whole rows
  CHECK(batch.global_token[8] == 10);
  make_train_batch(data, rule, 2, batch);
  CHECK(batch.length == 10);  // never longer than a row
  make_window_batch(data, rule, 4, batch);
  CHECK(batch.length == 4);  // nothing is real: the least
  CHECK(batch.weight_sum == 0);
  CHECK(real_positions(batch) == 0);
}
