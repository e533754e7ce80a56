// The order of samples, and mistakes in it that every layout would make alike.
#include "catch.h"
#include "verify/data.h"

using namespace trainctl;

namespace {

constexpr std::int64_t length = 3;

/// Twelve windows of three labels, in one stream.
FileTokens stream() {
  FileTokens file;
  for (std::int32_t i = 0; i < 37; ++i) file.tokens.push_back(i * i % 41);
  return file;
}

/// The sample that begins there.
Batch sample_at(const FileTokens& file, std::int64_t place, std::int64_t labels = length) {
  Batch batch;
  resize(batch, 1, length);
  batch.real[0] = labels;
  for (std::int64_t i = 0; i < labels; ++i) {
    batch.tokens[static_cast<std::size_t>(i)] = file.tokens[static_cast<std::size_t>(place + i)];
    batch.labels[static_cast<std::size_t>(i)] =
        file.tokens[static_cast<std::size_t>(place + i + 1)];
  }
  return batch;
}

/// One window a step; `places` of their first tokens.
std::vector<OrderCount> broken(const std::vector<std::int64_t>& places, bool shuffle) {
  const FileTokens file = stream();
  DataOrder order(file, length, shuffle);
  std::int64_t step = 0;
  for (const std::int64_t place : places) order.add(++step, sample_at(file, place));
  return order.broken();
}

std::vector<std::int64_t> joined(std::vector<std::int64_t> one,
                                 const std::vector<std::int64_t>& other) {
  one.insert(one.end(), other.begin(), other.end());
  return one;
}

const std::vector<std::int64_t> straight{0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 33};
const std::vector<std::int64_t> drawn{10, 1, 28, 4, 33, 13, 22, 7, 31, 16, 25, 19};
const std::vector<std::int64_t> drawn_anew{2, 26, 8, 17, 33, 5, 29, 11, 20, 32, 23, 14};

}  // namespace

TEST_CASE("orders of samples that a run may have are not reported") {
  CHECK(broken(joined(drawn, drawn_anew), true).empty());
  CHECK(broken(joined(straight, straight), false).empty());
}

TEST_CASE("an epoch in the order of the one before is reported") {
  const auto found = broken(joined(drawn, drawn), true);
  REQUIRE(found.size() == 1);
  CHECK(found.front().what == "samples in the order of the epoch before");
  CHECK(found.front().samples == 12);
  CHECK(found.front().step == 13);
}

TEST_CASE("a sample that comes twice and one of another order are reported") {
  std::vector<std::int64_t> twice = drawn;
  twice[7] = twice[2];
  const auto again = broken(twice, true);
  REQUIRE(again.size() == 1);
  CHECK(again.front().what == "samples that an epoch has twice");
  CHECK(again.front().step == 8);
  std::vector<std::int64_t> swapped = straight;
  std::swap(swapped[4], swapped[5]);
  const auto other = broken(swapped, false);
  REQUIRE(other.size() == 1);
  CHECK(other.front().what == "samples in another order than that of the file");
  CHECK(other.front().step == 6);
}

TEST_CASE("tokens that the file does not have there are reported") {
  const FileTokens file = stream();
  DataOrder order(file, length, true);
  Batch batch = sample_at(file, 9);
  batch.tokens[2] += 1;
  order.add(4, batch);
  const auto found = order.broken();
  REQUIRE(found.size() == 1);
  CHECK(found.front().what == "samples that the file does not have");
  CHECK(found.front().step == 4);
}

TEST_CASE("rows of documents are looked up among the documents") {
  FileTokens file{{7, 1, 5, 1, 5, 2, 4, 6, 1}, {0, 2, 4, 6}};
  DataOrder order(file, length, false);
  for (const auto& [place, labels] : {std::pair(0, 1), std::pair(2, 1), std::pair(4, 1)}) {
    order.add(1, sample_at(file, place, labels));
  }
  order.add(2, sample_at(file, 6, 2));
  CHECK(order.broken().empty());
  order.add(2, sample_at(file, 1, 1));  // across two documents
  REQUIRE(order.broken().size() >= 1);
  CHECK(order.broken().front().what == "samples that the file does not have");
}
