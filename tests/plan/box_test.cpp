// Boxes: cutting a stretch of a share, intersections, and where their elements lie.
#include "plan/tables/shard.h"

#include "base/philox.h"
#include "catch.h"

using namespace trainctl;

namespace {

/// The index in a tensor of shape `whole` of element `index` of `box`, row by row.
std::int64_t place_of(const Box& box, const Shape& whole, std::int64_t index) {
  std::int64_t place = 0;
  std::int64_t stride = 1;
  for (int dim = whole.rank() - 1; dim >= 0; --dim) {
    const std::int64_t inside = index % box.extent[dim];
    index /= box.extent[dim];
    place += (box.begin[static_cast<std::size_t>(dim)] + inside) * stride;
    stride *= whole[dim];
  }
  return place;
}

class Random {
 public:
  explicit Random(std::uint64_t seed) : random_(seed, 1) {}
  std::int64_t below(std::int64_t bound) {
    return static_cast<std::int64_t>(random_.bits(next_++) % static_cast<std::uint64_t>(bound));
  }

 private:
  Philox random_;
  std::uint64_t next_ = 0;
};

struct Sample {
  Shape whole;
  Box share;
};

Sample sample(Random& random) {
  Sample one;
  const std::int64_t rank = 1 + random.below(4);
  if (rank == 1) one.whole = {1 + random.below(9)};
  if (rank == 2) one.whole = {1 + random.below(9), 1 + random.below(9)};
  if (rank == 3) one.whole = {1 + random.below(5), 1 + random.below(5), 1 + random.below(5)};
  if (rank == 4) {
    one.whole = {1 + random.below(4), 1 + random.below(4), 1 + random.below(4),
                 1 + random.below(4)};
  }
  one.share = whole_box(one.whole);
  for (int dim = 0; dim < one.whole.rank(); ++dim) {
    const std::int64_t begin = random.below(one.whole[dim]);
    one.share.begin[static_cast<std::size_t>(dim)] = begin;
    one.share.extent[dim] = 1 + random.below(one.whole[dim] - begin);
  }
  return one;
}

}  // namespace

TEST_CASE("a stretch of a share is cut into boxes that hold exactly its elements", "[box]") {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    const auto [whole, share] = sample(random);
    const std::int64_t begin = random.below(share.numel() + 1);
    const Slice part{begin, begin + random.below(share.numel() - begin + 1)};
    CAPTURE(seed, share.to_string(), part.begin, part.end);
    const std::vector<Box> boxes = cut_into_boxes(share, part);
    CHECK(std::ssize(boxes) <= 2 * whole.rank() - 1);
    std::int64_t reached = part.begin;
    for (const Box& one : boxes) {
      REQUIRE(index_in(share, one) == reached);
      for (std::int64_t i = 0; i < one.numel(); ++i) {
        REQUIRE(place_of(one, whole, i) == place_of(share, whole, reached + i));
      }
      reached += one.numel();
    }
    CHECK(reached == part.end);
  }
}

TEST_CASE("runs between two boxes copy each shared element to its place", "[box]") {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Random random(1000 + seed);
    const auto [whole, source] = sample(random);
    Box target = whole_box(whole);
    for (int dim = 0; dim < whole.rank(); ++dim) {
      const std::int64_t begin = random.below(whole[dim]);
      target.begin[static_cast<std::size_t>(dim)] = begin;
      target.extent[dim] = 1 + random.below(whole[dim] - begin);
    }
    const Box shared = intersection(source, target);
    CAPTURE(seed, source.to_string(), target.to_string());
    std::int64_t copied = 0;
    std::int64_t reached = 0;
    for (const BoxRun& run : runs_between(shared, source, target)) {
      CHECK(run.from >= reached);
      reached = run.from + run.length;
      for (std::int64_t i = 0; i < run.length; ++i) {
        REQUIRE(place_of(source, whole, run.from + i) == place_of(target, whole, run.to + i));
      }
      copied += run.length;
    }
    CHECK(copied == shared.numel());
  }
}
