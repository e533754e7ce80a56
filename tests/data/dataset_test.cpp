#include "data/dataset.h"

#include <set>

#include "catch.h"
#include "scratch_folder.h"

using namespace trainctl;
using namespace trainctl::testing;

namespace {

/// A file whose token at place i is `base` + i, in documents of these lengths.
TokenFile counting_file(const ScratchFolder& folder, const std::string& name, std::int32_t base,
                        const std::vector<std::int32_t>& documents) {
  std::vector<std::int32_t> tokens;
  for (std::int32_t length : documents) {
    for (std::int32_t i = 0; i < length; ++i) {
      tokens.push_back(base + static_cast<std::int32_t>(tokens.size()));
    }
  }
  folder.write(name + ".bin", packed(tokens));
  folder.write(name + ".idx", megatron_index(4, 4, documents));
  return TokenFile::open(folder / name);
}

Dataset one_source(TokenFile file, SplitRule rule, Split split, std::int64_t seq_length,
                   bool shuffle = true, std::uint64_t seed = 1) {
  std::vector<SourceFile> sources;
  sources.push_back({std::move(file), 1});
  return Dataset(std::move(sources), rule, split, seq_length, seed, shuffle);
}

/// Positions in the file of a split's stream, through locate().
std::vector<std::int64_t> positions(const SplitStream& stream) {
  std::vector<std::int64_t> found;
  while (std::ssize(found) < stream.tokens()) {
    const auto place = stream.locate(std::ssize(found));
    for (std::int64_t i = 0; i < place.follow; ++i) found.push_back(place.token + i);
  }
  return found;
}

}  // namespace

TEST_CASE("splits share no token and leave none out") {
  for (std::int64_t tokens : {1, 10, 1023, 1024, 1025, 10239, 10240, 10241, 20480, 33333}) {
    for (bool blocks : {false, true}) {
      for (double fraction : {0.0, 0.01, 0.1, 0.3, 0.5}) {
        const SplitRule rule{fraction, blocks};
        const auto train = positions(SplitStream(tokens, rule, Split::train));
        const auto validation = positions(SplitStream(tokens, rule, Split::validation));
        std::set<std::int64_t> all(train.begin(), train.end());
        all.insert(validation.begin(), validation.end());
        REQUIRE(std::ssize(all) == tokens);
        REQUIRE(std::ssize(train) + std::ssize(validation) == tokens);
        REQUIRE(*all.rbegin() == tokens - 1);
        REQUIRE(std::is_sorted(train.begin(), train.end()));
        for (std::int64_t place : validation) {
          REQUIRE((!blocks ||
                   place / 1024 % std::llround(1 / fraction) == std::llround(1 / fraction) - 1));
        }
      }
    }
  }
  CHECK(SplitStream(1115394, {0.1, false}, Split::train).tokens() == 1003854);
}

TEST_CASE("validation windows by blocks score each token but a block's first once") {
  for (std::int64_t tokens : {20480, 20481, 20482, 20000, 9 * 1024 + 700}) {
    for (std::int64_t seq_length : {1, 7, 64, 511, 512, 1000, 1023}) {
      const SplitStream stream(tokens, {0.1, true}, Split::validation);
      const auto place = positions(stream);
      std::vector<int> scored(place.size(), 0);
      for (std::int64_t i = 0; i < stream.windows(seq_length); ++i) {
        const auto window = stream.window(i, seq_length);
        REQUIRE(window.scored >= 1);
        REQUIRE(window.scored <= seq_length);
        for (std::int64_t label = 1; label <= window.scored; ++label) {
          ++scored[static_cast<std::size_t>(window.first + label)];
        }
        const auto first = place[static_cast<std::size_t>(window.first)];
        const auto last = place[static_cast<std::size_t>(window.first + window.scored)];
        REQUIRE(first / 1024 == last / 1024);
      }
      for (std::size_t i = 0; i < place.size(); ++i) {
        REQUIRE(scored[i] == (place[i] % 1024 == 0 ? 0 : 1));
      }
    }
  }
}

TEST_CASE("long validation windows cross blocks, and a tail is cut into whole windows") {
  const SplitStream blocks(40960, {0.1, true}, Split::validation);
  CHECK(blocks.tokens() == 4096);
  CHECK(blocks.windows(1024) == 3);
  CHECK(blocks.window(2, 1024).first == 2048);
  const SplitStream tail(1115394, {0.1, false}, Split::validation);
  CHECK(tail.windows(64) == (111540 - 1) / 64);
  CHECK(tail.window(5, 64).first == 320);
  CHECK(tail.window(5, 64).scored == 64);
}

TEST_CASE("an epoch has each window once and epochs differ") {
  const ScratchFolder folder;
  const std::int64_t length = 10;
  const auto data = one_source(counting_file(folder, "t", 0, {1000}), {}, Split::train, length);
  const std::int64_t windows = data.windows();
  CHECK(windows == 99);
  Dataset::Sample sample;
  std::vector<std::vector<std::int32_t>> orders;
  std::set<std::int32_t> phases;
  for (std::int64_t epoch = 0; epoch < 8; ++epoch) {
    std::vector<std::int32_t> starts;
    for (std::int64_t i = 0; i < windows; ++i) {
      data.train_sample(epoch * windows + i, sample);
      REQUIRE(sample.tokens.size() == 11);
      REQUIRE(sample.document == std::vector<std::int32_t>(10, 0));
      REQUIRE(sample.scored == length);
      for (std::size_t k = 1; k < 11; ++k) {
        REQUIRE(sample.tokens[k] == sample.tokens[k - 1] + 1);
      }
      REQUIRE(sample.tokens[0] >= 0);
      REQUIRE(sample.tokens[10] <= 999);
      starts.push_back(sample.tokens[0]);
    }
    orders.push_back(starts);
    std::sort(starts.begin(), starts.end());
    REQUIRE(std::adjacent_find(starts.begin(), starts.end()) == starts.end());
    const std::int32_t phase = starts[0];
    REQUIRE(phase < length);
    phases.insert(phase);
    for (std::int32_t k = 0; k < windows - 1; ++k) {
      REQUIRE(starts[static_cast<std::size_t>(k)] == phase + k * length);
    }
    REQUIRE(starts.back() == std::min(phase + (windows - 1) * length, 1000 - 1 - length));
  }
  CHECK(phases.size() > 3);
  CHECK(orders[0] != orders[1]);
}

TEST_CASE("the order depends on the seed only, and unshuffled is file order") {
  const ScratchFolder folder;
  const auto make = [&](std::uint64_t seed, bool shuffle) {
    return one_source(counting_file(folder, "t", 0, {1000}), {}, Split::train, 10, shuffle, seed);
  };
  const Dataset a = make(5, true);
  const Dataset b = make(5, true);
  const Dataset c = make(6, true);
  const Dataset plain = make(5, false);
  int equal = 0;
  for (std::int64_t i = 299; i >= 0; --i) {
    Dataset::Sample x, y, z, p;
    a.train_sample(i, x);
    b.train_sample(299 - i, y);
    b.train_sample(i, y);
    c.train_sample(i, z);
    plain.train_sample(i, p);
    REQUIRE(x.tokens == y.tokens);
    REQUIRE(p.tokens[0] == i % 99 * 10);
    equal += x.tokens == z.tokens ? 1 : 0;
  }
  CHECK(equal < 20);
}

TEST_CASE("a single window and a stream of exactly seq_length + 1 tokens work") {
  const ScratchFolder folder;
  const auto data = one_source(counting_file(folder, "t", 0, {11}), {}, Split::train, 10);
  CHECK(data.windows() == 1);
  Dataset::Sample sample;
  for (std::int64_t i = 0; i < 5; ++i) {
    data.train_sample(i, sample);
    REQUIRE(sample.tokens[0] == 0);
  }
}

TEST_CASE("documents are numbered from 0 within a sample, empty ones not counted") {
  const ScratchFolder folder;
  const auto data =
      one_source(counting_file(folder, "t", 0, {3, 2, 0, 1, 14}), {}, Split::train, 8, false);
  Dataset::Sample sample;
  data.train_sample(0, sample);
  CHECK(sample.tokens == std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8});
  CHECK(sample.document == std::vector<std::int32_t>{0, 0, 0, 1, 1, 2, 3, 3});
  data.train_sample(1, sample);
  CHECK(sample.tokens[0] == 8);
  CHECK(sample.document == std::vector<std::int32_t>(8, 0));
}

TEST_CASE("a sample across the join of two blocks continues with the documents") {
  const ScratchFolder folder;
  // Blocks 0, 2, 4 train; 1, 3 validate. The document changes inside block 1.
  const auto data = one_source(counting_file(folder, "t", 0, {1500, 3620}), {0.5, true},
                               Split::train, 1023, false);
  Dataset::Sample sample;
  data.train_sample(1, sample);  // stream 1023 .. 2046
  CHECK(sample.tokens[0] == 1023);
  CHECK(sample.tokens[1] == 2048);
  CHECK(sample.document[0] == 0);
  CHECK(sample.document[1] == 1);
  CHECK(sample.document[1022] == 1);
}

TEST_CASE("sources are blended by weight and walked in order for validation") {
  const ScratchFolder folder;
  std::vector<SourceFile> sources;
  sources.push_back({counting_file(folder, "a", 0, {1000}), 3});
  sources.push_back({counting_file(folder, "b", 100000, {500}), 1});
  sources.push_back({counting_file(folder, "c", 200000, {5}), 0});
  const Dataset data(std::move(sources), {}, Split::train, 10, 1, true);
  CHECK(data.tokens() == 1505);
  CHECK(data.windows() == 99 + 49);
  Dataset::Sample sample;
  int from_b = 0;
  for (std::int64_t i = 0; i < 400; ++i) {
    data.train_sample(i, sample);
    from_b += sample.tokens[0] >= 100000 ? 1 : 0;
  }
  CHECK(from_b == 100);
  data.window(98, sample);
  CHECK(sample.tokens[0] == 980);
  data.window(99, sample);
  CHECK(sample.tokens[0] == 100000);
}

TEST_CASE("a partly scored window is padded with zeros") {
  const ScratchFolder folder;
  const auto data =
      one_source(counting_file(folder, "t", 5, {2048}), {0.5, true}, Split::validation, 600);
  CHECK(data.tokens() == 1024);
  REQUIRE(data.windows() == 2);
  Dataset::Sample sample;
  data.window(1, sample);
  CHECK(sample.scored == 423);
  CHECK(sample.tokens[0] == 5 + 1024 + 600);
  CHECK(sample.tokens[423] == 5 + 2047);
  CHECK(sample.tokens[424] == 0);
  CHECK(sample.tokens.size() == 601);
}

TEST_CASE("a split that is too short is an error with the numbers") {
  const ScratchFolder folder;
  const auto error = [&](SplitRule rule, Split split, std::int64_t length) {
    return error_of(
        [&] { one_source(counting_file(folder, "t", 0, {1000}), rule, split, length); });
  };
  CHECK(missing_in(error({}, Split::train, 1000),
                   {"65 ", "t.bin", "train split has 1000 of", "needs at least 1001"}) == "");
  CHECK(error({}, Split::train, 999) == "");
  CHECK(missing_in(error({}, Split::validation, 10), {"validation split has 0 of"}) == "");
  CHECK(missing_in(error({0.1, false}, Split::validation, 100),
                   {"has 100 of the file's 1000", "seq_length 100"}) == "");
  CHECK(missing_in(error({0.1, true}, Split::validation, 10), {"has 0 of"}) == "");
  CHECK(missing_in(error({1.0, true}, Split::train, 10), {"train split has 0 of"}) == "");
}

namespace {

SplitRule by_document(double fraction = 0, bool blocks = false) {
  return {.fraction = fraction, .blocks = blocks, .documents = true};
}

/// Inputs that count, of each row of a walk through the windows.
std::vector<std::vector<std::int32_t>> rows_of(const Dataset& data) {
  std::vector<std::vector<std::int32_t>> rows;
  Dataset::Sample sample;
  for (std::int64_t i = 0; i < data.windows(); ++i) {
    data.window(i, sample);
    rows.emplace_back(sample.tokens.begin(), sample.tokens.begin() + sample.scored + 1);
  }
  return rows;
}

}  // namespace

TEST_CASE("a row has tokens of one document, and each token but the first is a label once") {
  const ScratchFolder folder;
  // A document longer than a row, one that just fits, one that is one token too long, one without a
  // label, an empty one.
  const std::vector<std::int32_t> documents{10, 5, 6, 1, 0, 2};
  const Dataset data = one_source(counting_file(folder, "docs", 100, documents), by_document(),
                                  Split::train, 4, false);
  using Row = std::vector<std::int32_t>;
  const std::vector<Row> expected{{100, 101, 102, 103, 104},
                                  {104, 105, 106, 107, 108},
                                  {108, 109},
                                  {110, 111, 112, 113, 114},
                                  {115, 116, 117, 118, 119},
                                  {119, 120},
                                  {122, 123}};
  CHECK(rows_of(data) == expected);
  CHECK(data.tokens() == 24);
  Dataset::Sample sample;
  data.window(2, sample);
  CHECK(sample.tokens == Row{108, 109, 0, 0, 0});  // the rest is padding
  CHECK(sample.scored == 1);
  for (std::int64_t i = 0; i < 14; ++i) {  // two epochs in order
    data.train_sample(i, sample);
    CHECK(sample.tokens.front() == expected[static_cast<std::size_t>(i % 7)].front());
  }
}

TEST_CASE("an epoch of documents has each row once, in an order of its own") {
  const ScratchFolder folder;
  const std::vector<std::int32_t> documents(40, 7);
  const Dataset data =
      one_source(counting_file(folder, "docs", 0, documents), by_document(), Split::train, 4);
  std::vector<std::vector<std::int32_t>> epochs(2);
  Dataset::Sample sample;
  for (std::int64_t i = 0; i < 160; ++i) {
    data.train_sample(i, sample);
    epochs[static_cast<std::size_t>(i / 80)].push_back(sample.tokens.front());
  }
  CHECK(epochs[0] != epochs[1]);
  for (auto& epoch : epochs) CHECK(std::set(epoch.begin(), epoch.end()).size() == 80);
}

TEST_CASE("a split has whole documents") {
  const ScratchFolder folder;
  const std::vector<std::int32_t> documents{3, 4, 5, 6, 7, 3, 4, 5, 6, 7};
  const auto firsts = [&](SplitRule rule, Split split) {
    const Dataset data =
        one_source(counting_file(folder, "docs", 0, documents), rule, split, 8, false);
    std::vector<std::int32_t> first;
    for (const auto& row : rows_of(data)) first.push_back(row.front());
    return first;
  };
  using Firsts = std::vector<std::int32_t>;
  CHECK(firsts(by_document(0.2), Split::validation) == Firsts{37, 43});
  CHECK(firsts(by_document(0.2), Split::train) == Firsts{0, 3, 7, 12, 18, 25, 28, 32});
  CHECK(firsts(by_document(0.2, true), Split::validation) == Firsts{18, 43});
  CHECK(firsts(by_document(0.2, true), Split::train) == Firsts{0, 3, 7, 12, 25, 28, 32, 37});
}

TEST_CASE("a file that does not say where documents begin has no rows") {
  const ScratchFolder folder;
  folder.write("plain.bin", std::string("\x01\x00\x02\x00\x03\x00", 6));
  CHECK_THROWS_WITH(
      one_source(TokenFile::open(folder / "plain.bin"), by_document(), Split::train, 2),
      Catch::Contains("does not say where its documents begin"));
  CHECK_THROWS_WITH(
      one_source(counting_file(folder, "short", 0, {1, 1}), by_document(), Split::train, 2),
      Catch::Contains("its train split has no document of 2 tokens or more; the "
                      "file has 2 documents"));
}
