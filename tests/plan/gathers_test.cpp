// Blocks of parameters that are gathered together, and which of them share a call.
#include "plan/gradients/gathers.h"

#include "catch.h"
#include "plan/ownership/ownership.h"

using namespace trainctl;

namespace {

struct Rows {
  std::vector<ParamSpec> parameters;
  std::vector<OptimizerShard> shards;
  FlatBuffer flat;
};

/// Six matrices of 512 x 512, one MB each, in units 0 to 5 and in buckets of two, the last first.
Rows six() {
  Rows rows;
  for (int i = 0; i < 6; ++i) {
    ParamSpec& row = rows.parameters.emplace_back();
    row.shape = row.global_shape = Shape{512, 512};
    row.unit = i;
    rows.shards.push_back({.kind = ShardKind::rows, .ranks = 2, .why = {}});
  }
  for (int i = 5; i > 0; i -= 2) {
    rows.flat.buckets.push_back(Bucket{.parameters = {i, i - 1}, .ready_unit = i - 1});
  }
  return rows;
}

std::string blocks_of(const Rows& rows, BucketRule rule, const CommFusionConfig& fusion = {}) {
  std::string text;
  for (const GatherBlock& block :
       make_gathers(rows.parameters, rows.shards, rows.flat, rule, fusion)) {
    if (!text.empty()) text += " | ";
    for (const int index : block.parameters) text += std::to_string(index);
    text +=
        " of [" + std::to_string(block.units.begin) + "," + std::to_string(block.units.end) + ")";
    if (block.bucket >= 0) text += " bucket " + std::to_string(block.bucket);
  }
  return text;
}

CommFusionConfig gather_blocks(std::int64_t megabytes) {
  CommFusionConfig fusion;
  fusion.allgather.mode = FusionMode("size");
  fusion.allgather.config.size = megabytes;
  return fusion;
}

}  // namespace

TEST_CASE("parameters are gathered bucket by bucket, those that are read first first") {
  Rows rows = six();
  CHECK(blocks_of(rows, BucketRule::size) == "01 of [0,2) | 23 of [2,4) | 45 of [4,6)");
  CHECK(blocks_of(rows, BucketRule::layers) == blocks_of(rows, BucketRule::size));
  rows.shards[3].kind = rows.shards[4].kind = rows.shards[5].kind = ShardKind::whole;
  CHECK(blocks_of(rows, BucketRule::size) == "01 of [0,2) | 2 of [2,3)");
  for (OptimizerShard& shard : rows.shards) shard.kind = ShardKind::bucket;
  CHECK(blocks_of(rows, BucketRule::megatron) ==
        "01 of [0,2) bucket 2 | 23 of [2,4) bucket 1 | 45 of [4,6) bucket 0");
}

TEST_CASE("comm_fusion.allgather decides its own blocks, in the order of the forward") {
  Rows rows = six();
  CHECK(blocks_of(rows, BucketRule::comm_fusion) == "012345 of [0,6)");  // auto: 64 MB
  // The second is not smaller than what is left; a new block does not count its first.
  CHECK(blocks_of(rows, BucketRule::comm_fusion, gather_blocks(1)) ==
        "0 of [0,1) | 1 of [1,2) | 2 of [2,3) | 3 of [3,4) | 4 of [4,5) | 5 of [5,6)");
  CHECK(blocks_of(rows, BucketRule::comm_fusion, gather_blocks(3)) ==
        "012 of [0,3) | 345 of [3,6)");
  rows.parameters[5].expert = true;
  CHECK(blocks_of(rows, BucketRule::comm_fusion) == "01234 of [0,5) | 5 of [5,6)");
  CommFusionConfig off;
  off.openstate = false;
  CHECK(blocks_of(rows, BucketRule::comm_fusion, off) ==
        "0 of [0,1) | 1 of [1,2) | 2 of [2,3) | 3 of [3,4) | 4 of [4,5) | 5 of [5,6)");
  for (OptimizerShard& shard : rows.shards) shard.kind = ShardKind::dealt;
  CHECK(blocks_of(rows, BucketRule::comm_fusion) == "01 of [0,2) | 23 of [2,4) | 45 of [4,6)");
}

TEST_CASE("rows of one route share a call where the rule fuses") {
  OwnershipTable table;
  table.parameters.resize(5);
  const int routes[] = {0, 1, 0, -1, 1};
  for (std::size_t i = 0; i < 5; ++i) table.parameters[i].route = routes[i];
  const auto calls = [&](bool fused) {
    std::string text;
    for (const std::vector<int>& one : row_exchanges(table, {4, 3, 2, 1, 0}, fused)) {
      text += std::to_string(routes[one.front()]) + ":";
      for (const int index : one) text += std::to_string(index);
      text += " ";
    }
    return text;
  };
  CHECK(calls(true) == "1:41 0:20 ");
  CHECK(calls(false) == "1:4 0:2 1:1 0:0 ");
}
