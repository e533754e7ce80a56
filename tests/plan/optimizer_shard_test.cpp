#include "plan/gradients/optimizer_shard.h"
#include "plan/gradients/buckets.h"

#include "catch.h"
#include "sample.h"

using namespace trainctl;

namespace {

ParamSpec matrix(std::int64_t rows, std::int64_t columns) {
  ParamSpec row;
  row.name = "layers.0.mlp.up.weight";
  row.global_shape = Shape{rows, columns};
  row.shape = row.global_shape;
  return row;
}

/// The facts that decide how parameters are cut.
struct ShardInput {
  ParallelMode mode = ParallelMode::stand_alone;
  ParallelOptimizerConfig optimizer;
  BucketRule bucket_rule = BucketRule::size;
  Mesh mesh;
};

ShardInput sharded(const Mesh& mesh) {
  ShardInput input;
  input.mode = ParallelMode::hybrid_parallel;
  input.optimizer.enable = true;
  input.mesh = mesh;
  return input;
}

std::vector<OptimizerShard> shards_of(const ShardInput& input,
                                      const std::vector<ParamSpec>& parameters) {
  return shard_optimizer(input.mode, input.optimizer, input.bucket_rule, input.mesh, parameters);
}

OptimizerShard one(const ShardInput& input, const ParamSpec& parameter) {
  return shards_of(input, {parameter}).front();
}

const Mesh eight{.dp = 8, .edp = 8};

}  // namespace

TEST_CASE("rows are shared by all replicas unless fewer are asked for", "[optimizer_shard]") {
  ShardInput input = sharded(eight);
  const OptimizerShard all = one(input, matrix(512, 128));
  CHECK(all.kind == ShardKind::rows);
  CHECK(all.ranks == 8);
  CHECK(all.mirrors == 1);
  CHECK(all.rows == 64);
  CHECK(all.elements == 64 * 128);
  CHECK(all.why.empty());
  input.optimizer.weight_shard_size = 2;
  const OptimizerShard two = one(input, matrix(512, 128));
  CHECK(two.ranks == 2);
  CHECK(two.mirrors == 4);
  CHECK(two.rows == 256);
  input.optimizer.weight_shard_size = 3;  // does not divide the replicas: all of them share
  CHECK(one(input, matrix(512, 128)).ranks == 8);
}

TEST_CASE("each condition leaves a parameter whole, with its reason", "[optimizer_shard]") {
  const auto why = [](const ShardInput& input, const ParamSpec& parameter) {
    const OptimizerShard shard = one(input, parameter);
    CHECK(shard.kind == ShardKind::whole);
    CHECK(shard.elements == parameter.shape.numel());
    CHECK(shard.ranks == 1);
    return shard.why;
  };
  ShardInput input = sharded(eight);
  ParamSpec bias = matrix(64 * 1024, 1);
  bias.bias = true;
  CHECK(why(input, bias) == "a bias");
  ParamSpec tied = matrix(512, 128);
  tied.two_homes = true;
  CHECK(why(input, tied) == "held by two stages");
  CHECK(one(input, matrix(128, 128)).kind == ShardKind::rows);  // 64 KB are enough
  CHECK(why(input, matrix(128, 127)) == "65024 bytes, fewer than 65536");
  CHECK(why(input, matrix(500, 128)) == "500 rows % (1 cuts x 8 ranks) is not 0");
  input.optimizer.threshold = 0;
  CHECK(one(input, matrix(8, 1)).kind == ShardKind::rows);
  input.optimizer.weight_shard_size = 1;
  CHECK(why(input, matrix(512, 128)) == "shared by one rank");
  CHECK(why(sharded(Mesh{}), matrix(512, 128)) == "one replica");
  input.optimizer.enable = false;
  CHECK(why(input, matrix(512, 128)) == "the parallel optimizer is off");
  input.optimizer.enable = true;
  input.mode = ParallelMode::stand_alone;
  CHECK(why(input, matrix(512, 128)) == "parallel_mode is stand_alone");
}

TEST_CASE("tensor parallelism: fewer replicas, more cuts of the rows", "[optimizer_shard]") {
  const Mesh mesh{.tp = 2, .cp = 2, .dp = 4, .edp = 16};
  ParamSpec column = matrix(512, 256);
  column.split_dim[static_cast<std::size_t>(Axis::tp)] = 0;
  column.shape = Shape{256, 256};
  CHECK(replicas_of(column, mesh) == 8);
  CHECK(one(sharded(mesh), column).rows == 32);
  column.tp_copies = 2;
  CHECK(replicas_of(column, mesh) == 16);
  CHECK(replicas_of(matrix(512, 256), mesh) == 16);
  ParamSpec expert = matrix(512, 256);
  expert.expert = true;
  CHECK(replicas_of(expert, mesh) == 16);
  // 8 rows cut in two leave 4 for 8 ranks.
  ParamSpec flat = matrix(8, 65536);
  flat.split_dim[static_cast<std::size_t>(Axis::tp)] = 0;
  flat.shape = Shape{4, 65536};
  CHECK(one(sharded(mesh), flat).why == "8 rows % (2 cuts x 8 ranks) is not 0");
}

TEST_CASE("data_parallel deals whole parameters out one by one", "[optimizer_shard]") {
  ShardInput input = sharded(Mesh{.dp = 3, .edp = 3});
  input.mode = ParallelMode::data_parallel;
  const auto shards = shards_of(input, std::vector<ParamSpec>(7, matrix(4, 4)));
  for (std::size_t i = 0; i < shards.size(); ++i) {
    CHECK(shards[i].kind == ShardKind::dealt);
    CHECK(shards[i].owner == static_cast<std::int64_t>(i) % 3);
    CHECK(shards[i].elements == 16);  // thresholds and shard sizes do not matter
  }
}

TEST_CASE("megatron slices buckets, whatever the mode", "[optimizer_shard]") {
  ShardInput input = sharded(Mesh{.tp = 2, .cp = 2, .dp = 2, .ep = 4, .edp = 2});
  input.bucket_rule = BucketRule::megatron;
  for (const ParallelMode mode : {ParallelMode::data_parallel, ParallelMode::hybrid_parallel}) {
    input.mode = mode;
    CHECK(one(input, matrix(3, 1)).kind == ShardKind::bucket);
    CHECK(one(input, matrix(3, 1)).ranks == 4);
    ParamSpec expert = matrix(3, 1);
    expert.expert = true;
    CHECK(one(input, expert).ranks == 2);
  }
  input.mesh = Mesh{};
  CHECK(one(input, matrix(3, 1)).kind == ShardKind::whole);
}

TEST_CASE("the rank that holds most of a parameter in slices of a bucket", "[optimizer_shard]") {
  // In the flat buffer the last parameter comes first.
  const std::vector<ParamSpec> rows{matrix(1, 2048), matrix(1, 1536)};
  const auto elements = [&rows](std::int64_t dp) {
    ShardInput input = sharded(Mesh{.dp = dp, .edp = dp});
    input.bucket_rule = BucketRule::megatron;
    BucketInput buckets;
    buckets.rule = input.bucket_rule;
    buckets.replicas = dp;
    buckets.parallel_optimizer = true;
    const FlatBuffer flat = make_flat_layout(rows, buckets);
    REQUIRE(flat.buckets.size() == 1);
    REQUIRE(flat.length == 3584);
    std::vector<OptimizerShard> shards = shards_of(input, rows);
    measure_slices(shards, rows, flat);
    return std::vector<std::int64_t>{shards[0].elements, shards[1].elements};
  };
  using Elements = std::vector<std::int64_t>;
  CHECK(elements(2) == Elements{1792, 1536});  // the first 256 of 2,048 are in the other slice
  CHECK(elements(4) == Elements{896, 896});    // slices at 896, 1,792 and 2,688
  CHECK(elements(7) == Elements{512, 512});
  CHECK(elements(1) == Elements{2048, 1536});  // not cut
}
