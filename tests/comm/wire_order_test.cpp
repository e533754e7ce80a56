// Which communicators ranks make together, and in how few steps.
#include "comm/nccl/device_group.h"

#include "base/error.h"
#include "catch.h"

using namespace trainctl;

namespace {

WireSpec wire(const std::string& lane, std::vector<int> ranks) {
  return {.lane = lane, .ranks = std::move(ranks)};
}

}  // namespace

TEST_CASE("every wire is told once, by its first rank, in that rank's order") {
  WireSpec line = wire("messages 3", {2, 0});
  line.line = true;
  WireSpec exchanged = wire("experts", {1, 2});
  exchanged.exchanges = true;
  const std::vector<std::vector<WireSpec>> wanted{
      {wire("layers", {0, 1}), line}, {exchanged, wire("layers", {0, 1})}, {line, exchanged}};
  std::vector<std::string> told;
  for (int rank = 0; rank < 3; ++rank) {
    told.push_back(wires_to_tell(wanted[static_cast<std::size_t>(rank)], rank));
  }
  const std::vector<WireSpec> all = wires_told(told);
  REQUIRE(all.size() == 3);
  CHECK(all[0].same_as(wire("layers", {0, 1})));
  CHECK(all[1].same_as(exchanged));
  CHECK(all[1].exchanges);
  CHECK(!all[1].line);
  CHECK(all[2].same_as(line));
  CHECK(all[2].line);
  for (int rank = 0; rank < 3; ++rank) {
    CHECK_NOTHROW(require_wanted(all, wanted[static_cast<std::size_t>(rank)], rank));
  }
  CHECK_THROWS_AS(require_wanted(all, wanted[0], 1), Error);
  CHECK_THROWS_AS(require_wanted({all.data(), 2}, wanted[0], 0), Error);
}

TEST_CASE("wires of different ranks are made by one split") {
  const std::vector<WireSpec> all{wire("layers", {0, 1}), wire("layers", {2, 3}),
                                  wire("gradients", {0, 2}), wire("gradients", {1, 3}),
                                  wire("gradients", {0, 1, 2, 3})};
  CHECK(split_rounds(all, 4) == std::vector<int>{0, 0, 1, 1, 2});
}

TEST_CASE("a long list of ranks is cut short in messages") {
  std::vector<int> ranks;
  for (int rank = 0; rank < 12; ++rank) ranks.push_back(rank);
  CHECK(wire("layers", ranks).text() == "layers among ranks 0, 1, 2, 3, 4, 5, 6, 7 and 4 more");
}
