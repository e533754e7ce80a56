#include "plan/gradients/buckets.h"

#include <algorithm>
#include <set>

#include "catch.h"
#include "config/schema/words.h"
#include "sample.h"

using namespace trainctl;

namespace {

std::vector<ParamSpec> parameters_of(const Config& config, std::int64_t dp = 1) {
  return make_parameters(model_shape(config.model), Mesh{.dp = dp, .edp = dp});
}

FlatBuffer size_layout(const std::vector<ParamSpec>& rows, std::int64_t bucket_size,
                       std::int64_t replicas) {
  BucketInput input;
  input.bucket_size = bucket_size;
  input.replicas = replicas;
  return make_flat_layout(rows, input);
}

/// A chain of layers without biases: one matrix of 95 x 95 = 9025 elements each.
std::vector<ParamSpec> ten_layers() {
  std::vector<ParamSpec> rows(10);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].name = "layer " + std::to_string(i);
    rows[i].shape = Shape{95, 95};
    rows[i].unit = static_cast<int>(i) + 1;
  }
  return rows;
}

std::vector<std::int64_t> lengths(const FlatBuffer& flat) {
  std::vector<std::int64_t> list;
  for (const Bucket& bucket : flat.buckets) list.push_back(bucket.length);
  return list;
}

std::vector<std::vector<int>> members(const FlatBuffer& flat) {
  std::vector<std::vector<int>> list;
  for (const Bucket& bucket : flat.buckets) list.push_back(bucket.parameters);
  return list;
}

using Lengths = std::vector<std::int64_t>;
using Members = std::vector<std::vector<int>>;

}  // namespace

TEST_CASE("the flat layout is a padded reverse order cut into buckets", "[params]") {
  for (const bool tied : {true, false}) {
    for (const std::int64_t dp : {1, 2, 3, 8, 48}) {
      for (const std::int64_t bucket_size : {1, 100, 20'000, 100'000, 4'000'000}) {
        Config config = small_config();
        config.model.tie_word_embeddings = tied;
        config.model.hidden_size = 100;
        const auto rows = parameters_of(config, dp);
        const FlatBuffer flat = size_layout(rows, bucket_size, dp);
        std::int64_t end = 0;
        int expected = static_cast<int>(rows.size());
        int last_unit = 1 << 30;
        for (const Bucket& bucket : flat.buckets) {
          REQUIRE(bucket.offset == end);
          REQUIRE(bucket.length % (64 * dp) == 0);
          REQUIRE_FALSE(bucket.parameters.empty());
          std::int64_t at = bucket.offset;
          int lowest = 1 << 30;
          for (int index : bucket.parameters) {
            REQUIRE(index == --expected);
            const auto i = static_cast<std::size_t>(index);
            REQUIRE(flat.offset[i] % 64 == 0);
            REQUIRE(flat.offset[i] >= at);
            REQUIRE(flat.offset[i] < at + 64);
            at = flat.offset[i] + rows[i].shape.numel();
            lowest = std::min(lowest, rows[i].unit);
          }
          REQUIRE(bucket.ready_unit == lowest);
          REQUIRE(lowest <= last_unit);
          last_unit = lowest;
          end = bucket.offset + bucket.length;
          REQUIRE(at <= end);
          REQUIRE(end - at < 64 * dp);
        }
        CHECK(expected == 0);
        CHECK(flat.length == end);
      }
    }
  }
}

TEST_CASE("buckets close when full, and before a late parameter that fills one alone", "[params]") {
  std::vector<ParamSpec> rows(4);
  rows[0].shape = Shape{1000};  // reverse order: 3, 2, 1, 0
  rows[0].unit = 0;
  rows[1].shape = Shape{64};
  rows[1].unit = 1;
  rows[2].shape = Shape{200};
  rows[2].unit = 2;
  rows[3].shape = Shape{64};
  rows[3].unit = 3;
  const FlatBuffer flat = size_layout(rows, 256, 1);
  REQUIRE(flat.buckets.size() == 3);
  CHECK(flat.buckets[0].parameters == std::vector<int>{3, 2});
  CHECK(flat.buckets[0].length == 320);
  CHECK(flat.buckets[0].ready_unit == 2);
  CHECK(flat.buckets[1].parameters == std::vector<int>{1});
  CHECK(flat.buckets[2].parameters == std::vector<int>{0});
  CHECK(flat.buckets[2].offset == 384);
  CHECK(flat.length == 384 + 1024);
  // A few elements before it are not worth a reduction of their own.
  const FlatBuffer large = size_layout(rows, 1000, 1);
  REQUIRE(large.buckets.size() == 2);
  CHECK(large.buckets[0].parameters == std::vector<int>{3, 2, 1});
  rows[2].shape = Shape{64};
  CHECK(size_layout(rows, 1000, 1).buckets.size() == 1);
}

TEST_CASE("scattered gradients are in buckets of their own", "[params]") {
  const auto rows = parameters_of(small_config(), 4);
  BucketInput input;
  input.bucket_size = 20'000;
  input.replicas = 4;
  for (const ParamSpec& row : rows) input.scattered.push_back(!row.name.ends_with(".bias"));
  const FlatBuffer flat = make_flat_layout(rows, input);
  std::set<int> placed;
  std::int64_t end = 0;
  bool whole = false;
  for (const Bucket& bucket : flat.buckets) {
    CHECK(bucket.offset == end);
    end += bucket.length;
    const bool scattered = input.scattered[static_cast<std::size_t>(bucket.parameters.front())];
    CHECK_FALSE((whole && scattered));  // scattered first
    whole = !scattered;
    for (const int index : bucket.parameters) {
      CHECK(input.scattered[static_cast<std::size_t>(index)] == scattered);
      CHECK(placed.insert(index).second);
    }
  }
  CHECK(whole);
  CHECK(placed.size() == rows.size());
  CHECK(flat.length == end);
}

TEST_CASE("megatron's buckets of ten layers", "[flat_layout]") {
  BucketInput input;
  input.rule = BucketRule::megatron;
  input.replicas = 8;
  const auto lengths_of = [&](std::int64_t bucket_size, bool sharded) {
    input.bucket_size = bucket_size;
    input.parallel_optimizer = sharded;
    return lengths(make_flat_layout(ten_layers(), input));
  };
  for (const std::int64_t one : {9000, 9025}) {
    CHECK(lengths_of(one, false) == Lengths(10, 9025));
    CHECK(lengths_of(one, true) == Lengths(10, 9088));  // 71 x 128
  }
  for (const std::int64_t two : {9050, 18000, 18050}) {
    CHECK(lengths_of(two, false) == Lengths(5, 18050));
    CHECK(lengths_of(two, true) == Lengths(5, 18176));  // 9088 + 9025 = 18113 -> 142 x 128
  }
  CHECK(lengths_of(20000, false) == Lengths{27075, 27075, 27075, 9025});
  CHECK(lengths_of(20000, true) == Lengths{27264, 27264, 27264, 9088});
  CHECK(lengths_of(0, false) == Lengths{90250});  // the default: 40,000,000
  CHECK(lengths_of(0, true) == Lengths{90880});   // 9 x 9088 + 9025 = 90817 -> 710 x 128
  input.replicas = 3;
  CHECK(lengths_of(0, true) == Lengths{91008});  // lcm(3, 128) = 384: 237 x 384
}

TEST_CASE("megatron cuts only the first stage's first chunk, with overlap", "[flat_layout]") {
  BucketInput input;
  input.rule = BucketRule::megatron;
  input.bucket_size = 9025;
  CHECK(make_flat_layout(ten_layers(), input).buckets.size() == 10);
  input.overlap = false;
  CHECK(make_flat_layout(ten_layers(), input).buckets.size() == 1);
  input.overlap = true;
  input.stage = 1;
  CHECK(make_flat_layout(ten_layers(), input).buckets.size() == 1);
  input.stage = 0;
  input.units = {{0, 4}, {4, 12}};  // layers 0 to 2, and 3 to 9
  const FlatBuffer chunks = make_flat_layout(ten_layers(), input);
  CHECK(members(chunks) == Members{{9, 8, 7, 6, 5, 4, 3}, {2}, {1}, {0}});
  CHECK(default_bucket_size(BucketRule::megatron, 8) == 40'000'000);
  CHECK(default_bucket_size(BucketRule::megatron, 64) == 64'000'000);
}

TEST_CASE("a shared embedding is a bucket of its own", "[flat_layout]") {
  auto rows = ten_layers();
  rows[9].two_homes = true;  // first in reverse order
  BucketInput input;
  input.rule = BucketRule::megatron;
  input.bucket_size = 9050;
  input.replicas = 8;
  // Megatron does so for its distributed optimizer only.
  CHECK(members(make_flat_layout(rows, input)) == Members{{9, 8}, {7, 6}, {5, 4}, {3, 2}, {1, 0}});
  input.parallel_optimizer = true;
  const Members first{{9}, {8, 7}, {6, 5}, {4, 3}, {2, 1}, {0}};
  CHECK(members(make_flat_layout(rows, input)) == first);
  rows[9].two_homes = false;
  rows[6].two_homes = true;
  CHECK(members(make_flat_layout(rows, input)) ==
        Members{{9, 8}, {7}, {6}, {5, 4}, {3, 2}, {1, 0}});
  input.bucket_size = 0;
  for (const BucketRule rule : {BucketRule::size, BucketRule::megatron, BucketRule::comm_fusion}) {
    input.rule = rule;
    CHECK(members(make_flat_layout(rows, input)) == Members{{9, 8, 7}, {6}, {5, 4, 3, 2, 1, 0}});
  }
  input.rule = BucketRule::layers;
  input.layers = 10;
  const Members layers = members(make_flat_layout(rows, input));
  CHECK(std::find(layers.begin(), layers.end(), Members::value_type{6}) != layers.end());
}

TEST_CASE("blocks by size: what opens a block is not counted against it", "[flat_layout]") {
  CHECK(fusion_blocks({}, 10).empty());
  // 4 is not counted; 5 leaves 5; 5 is not smaller than 5 and opens the next.
  CHECK(fusion_blocks({4, 5, 5, 9, 1}, 10) == std::vector<int>{0, 0, 1, 1, 2});
  CHECK(fusion_blocks({100, 1, 1}, 10) == std::vector<int>{0, 0, 0});
  CHECK(fusion_blocks({1, 100, 1}, 10) == std::vector<int>{0, 1, 1});
  FusionConfig fusion;
  CHECK(fusion_threshold(fusion) == 16'777'216);  // 64 MB of fp32
  fusion.mode = FusionMode("size");
  fusion.config.size = 3;
  CHECK(fusion_threshold(fusion) == 786'432);
  fusion.mode = FusionMode("auto");
  CHECK(fusion_threshold(fusion) == 16'777'216);
}

TEST_CASE("blocks by index: each index is the last of its block", "[flat_layout]") {
  CHECK(index_blocks(5, {0, 2}) == std::vector<int>{0, 1, 1, 2, 2});
  CHECK(index_blocks(3, {}) == std::vector<int>{0, 0, 0});
  CHECK(index_blocks(3, {1, 40}) == std::vector<int>{0, 0, 1});
  CHECK(index_blocks(3, {2}) == std::vector<int>{0, 0, 0});
}

TEST_CASE("comm_fusion chooses the kind that the run uses", "[flat_layout]") {
  BucketInput input;
  input.rule = BucketRule::comm_fusion;
  CHECK(make_flat_layout(ten_layers(), input).buckets.size() == 1);  // auto
  input.fusion.allreduce.mode = FusionMode("index");
  input.fusion.allreduce.config.index = IntList{1, 5};
  const FlatBuffer flat = make_flat_layout(ten_layers(), input);
  CHECK(members(flat) == Members{{9, 8}, {7, 6, 5, 4}, {3, 2, 1, 0}});
  CHECK(flat.buckets[1].offset == 18'176);  // 9025 -> 9088, twice
  CHECK(flat.buckets[1].ready_unit == 5);
  input.units = {{0, 4}, {4, 12}};  // a border that no bucket spans; the indices count on
  CHECK(members(make_flat_layout(ten_layers(), input)) ==
        Members{{9, 8}, {7, 6, 5, 4}, {3}, {2, 1, 0}});
  input.parallel_optimizer = true;
  input.units.clear();
  CHECK(make_flat_layout(ten_layers(), input).buckets.size() == 1);  // no index then: auto
  input.scattered = {true, true, true, true, false, false, false, false, false, false};
  CHECK(members(make_flat_layout(ten_layers(), input)) ==
        Members{{3, 2, 1, 0}, {9, 8, 7, 6, 5, 4}});
  input.fusion.openstate = false;
  CHECK(make_flat_layout(ten_layers(), input).buckets.size() == 10);
}

TEST_CASE("gradient_aggregation_group counts groups of layers", "[flat_layout]") {
  for (int layer = 0; layer < 12; ++layer) {
    CHECK(aggregation_group(layer + 1, 12, 4, true) == layer / 3 + 1);
  }
  CHECK(aggregation_group(14, 14, 4, true) == 5);  // a remainder makes one group more
  CHECK(aggregation_group(3, 2, 8, true) == 8);    // the head
  CHECK(aggregation_group(0, 12, 4, true) == 4);   // the embedding without stages
  CHECK(aggregation_group(0, 12, 4, false) == 1);
  CHECK(aggregation_group(13, 12, 4, false) == 4);

  std::vector<ParamSpec> rows(6);  // embedding, four layers, head
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].shape = Shape{64};
    rows[i].unit = static_cast<int>(i);
  }
  BucketInput input;
  input.rule = BucketRule::layers;
  input.layers = 4;
  input.aggregation_groups = 2;
  input.units = {{0, 6}};
  const FlatBuffer flat = make_flat_layout(rows, input);
  CHECK(members(flat) == Members{{2, 1}, {5, 4, 3, 0}});
  CHECK(flat.buckets[0].ready_unit == 1);
  CHECK(flat.buckets[1].ready_unit == 0);
  CHECK(flat.offset[5] == 128);
  rows.erase(rows.begin() + 4, rows.end());  // a first stage
  input.units = {{0, 4}};
  CHECK(members(make_flat_layout(rows, input)) == Members{{3}, {2, 1, 0}});
}

TEST_CASE("megatron's default size is that of the dense replicas for experts too",
          "[flat_layout]") {
  std::vector<ParamSpec> rows(4);
  for (ParamSpec& row : rows) {
    row.shape = Shape{21'000'000};
    row.unit = 1;
    row.expert = true;
  }
  BucketInput input;
  input.rule = BucketRule::megatron;
  input.expert_replicas = 2;
  input.replicas = 40;  // dp x cp: 40 million, full after two
  CHECK(members(make_flat_layout(rows, input)) == Members{{3, 2}, {1, 0}});
  input.replicas = 50;  // 50 million, full after three
  CHECK(members(make_flat_layout(rows, input)) == Members{{3, 2, 1}, {0}});
}

TEST_CASE("experts and chunks have buckets of their own under every rule", "[flat_layout]") {
  Config config = small_config();
  config.moe.num_experts = 4;
  const ModelShape model = model_shape(config.model, config.moe);
  const Mesh mesh{.dp = 4, .ep = 2, .edp = 2};
  BucketInput input;
  input.units = {{0, 3}, {3, 6}};
  input.layers = 4;
  input.replicas = 4;
  input.expert_replicas = 2;
  input.parallel_optimizer = true;
  const auto rows = make_parameters({model, mesh, false, {}}, input.units);
  for (const BucketRule rule :
       {BucketRule::size, BucketRule::megatron, BucketRule::comm_fusion, BucketRule::layers}) {
    INFO(word_of(rule));
    input.rule = rule;
    const FlatBuffer flat = make_flat_layout(rows, input);
    std::set<int> seen;
    std::int64_t end = 0;
    bool experts = false;
    for (const Bucket& bucket : flat.buckets) {
      REQUIRE(bucket.offset == end);
      end += bucket.length;
      CHECK(bucket.length % (bucket.expert ? 2 : 4) == 0);
      CHECK((bucket.expert || !experts));  // those of experts are last
      experts = bucket.expert;
      int lowest = 1 << 30;
      for (const int index : bucket.parameters) {
        const ParamSpec& row = rows[static_cast<std::size_t>(index)];
        CHECK(seen.insert(index).second);
        CHECK(row.expert == bucket.expert);
        CHECK((row.unit < 3) == (bucket.ready_unit < 3));
        lowest = std::min(lowest, row.unit);
      }
      CHECK(lowest == bucket.ready_unit);
    }
    CHECK(experts);
    CHECK(end == flat.length);
    CHECK(seen.size() == rows.size());
  }
}
