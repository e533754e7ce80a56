#include "plan/params.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "catch.h"
#include "sample.h"

using namespace trainctl;

namespace {

std::vector<ParamSpec> parameters_of(const Config& config, std::int64_t dp = 1) {
  return make_parameters(model_shape(config.model), Mesh{.dp = dp, .edp = dp});
}

const ParamSpec& find(const std::vector<ParamSpec>& rows, const std::string& name) {
  const auto at = std::find_if(rows.begin(), rows.end(),
                               [&](const ParamSpec& row) { return row.name == name; });
  REQUIRE(at != rows.end());
  return *at;
}

std::int64_t total(const std::vector<ParamSpec>& rows) {
  std::int64_t sum = 0;
  for (const ParamSpec& row : rows) sum += row.shape.numel();
  return sum;
}

std::vector<std::string> names(const std::vector<ParamSpec>& rows) {
  std::vector<std::string> list;
  for (const ParamSpec& row : rows) list.push_back(row.name);
  return list;
}

}  // namespace

TEST_CASE("defaults of the model's sizes", "[model]") {
  ModelConfig config = small_config().model;
  ModelShape gpt2 = model_shape(config);
  CHECK(gpt2.ffn == 512);
  CHECK(gpt2.kv_heads == 4);
  CHECK(gpt2.head_dim == 32);
  CHECK(gpt2.positions == 64);
  CHECK(gpt2.tied);
  CHECK(gpt2.linear_bias);
  CHECK(gpt2.qkv_bias);
  config.family = Family::llama;
  config.hidden_size = 4096;
  config.vocab_size = 257;
  config.max_position_embeddings = 100;
  const ModelShape llama = model_shape(config);
  CHECK(llama.ffn == 11008);
  CHECK_FALSE(llama.tied);
  CHECK_FALSE(llama.linear_bias);
  CHECK_FALSE(llama.qkv_bias);
  CHECK(llama.padded_vocab == 384);
  CHECK(llama.positions == 100);
  config.hidden_size = 97;  // 8/3 x 97 = 258.7, just past a multiple of 256
  CHECK(model_shape(config).ffn == 512);
  config.hidden_size = 96;  // exactly 256
  CHECK(model_shape(config).ffn == 256);
  config.kv_channels = 64;
  config.num_query_groups = 2;
  CHECK(model_shape(config).q_features() == 256);
  CHECK(model_shape(config).kv_features() == 128);
}

TEST_CASE("GPT-2's table has the names and shapes of the header", "[params]") {
  Config config = small_config();
  config.model.num_layers = 1;
  const auto rows = parameters_of(config);
  const std::vector<std::string> expected{"embedding.token.weight",
                                          "embedding.position.weight",
                                          "layers.0.norm1.weight",
                                          "layers.0.norm1.bias",
                                          "layers.0.attention.q.weight",
                                          "layers.0.attention.q.bias",
                                          "layers.0.attention.k.weight",
                                          "layers.0.attention.k.bias",
                                          "layers.0.attention.v.weight",
                                          "layers.0.attention.v.bias",
                                          "layers.0.attention.out.weight",
                                          "layers.0.attention.out.bias",
                                          "layers.0.norm2.weight",
                                          "layers.0.norm2.bias",
                                          "layers.0.mlp.up.weight",
                                          "layers.0.mlp.up.bias",
                                          "layers.0.mlp.down.weight",
                                          "layers.0.mlp.down.bias",
                                          "final_norm.weight",
                                          "final_norm.bias"};
  CHECK(names(rows) == expected);
  CHECK(find(rows, "embedding.token.weight").shape == Shape{256, 128});
  CHECK(find(rows, "embedding.position.weight").shape == Shape{64, 128});
  CHECK(find(rows, "layers.0.mlp.up.weight").shape == Shape{512, 128});
  CHECK(find(rows, "layers.0.mlp.down.weight").shape == Shape{128, 512});
  CHECK(find(rows, "layers.0.mlp.up.bias").shape == Shape{512});
}

TEST_CASE("Llama's table: no biases, a gate, its own head, grouped keys", "[params]") {
  Config config = llama3_8b();
  config.model.num_layers = 1;
  config.model.qk_layernorm = true;
  config.model.add_qkv_bias = true;
  const auto rows = parameters_of(config);
  const std::vector<std::string> expected{"embedding.token.weight",
                                          "layers.0.norm1.weight",
                                          "layers.0.attention.q.weight",
                                          "layers.0.attention.q.bias",
                                          "layers.0.attention.k.weight",
                                          "layers.0.attention.k.bias",
                                          "layers.0.attention.v.weight",
                                          "layers.0.attention.v.bias",
                                          "layers.0.attention.q_norm.weight",
                                          "layers.0.attention.k_norm.weight",
                                          "layers.0.attention.out.weight",
                                          "layers.0.norm2.weight",
                                          "layers.0.mlp.gate.weight",
                                          "layers.0.mlp.up.weight",
                                          "layers.0.mlp.down.weight",
                                          "final_norm.weight",
                                          "head.weight"};
  CHECK(names(rows) == expected);
  CHECK(find(rows, "layers.0.attention.k.weight").shape == Shape{1024, 4096});
  CHECK(find(rows, "layers.0.attention.k.bias").shape == Shape{1024});
  CHECK(find(rows, "layers.0.attention.q_norm.weight").shape == Shape{128});
  CHECK(find(rows, "head.weight").shape == Shape{128256, 4096});
}

TEST_CASE("published parameter counts", "[params]") {
  Config gpt2 = gpt2_124m();
  CHECK(total(parameters_of(gpt2)) == 124'475'904);  // padded: 47 rows more than 124,439,808
  gpt2.model.make_vocab_size_divisible_by = 1;
  CHECK(total(parameters_of(gpt2)) == 124'439'808);
  gpt2.model.num_layers = 48;
  gpt2.model.hidden_size = 1600;
  gpt2.model.num_attention_heads = 25;
  CHECK(total(parameters_of(gpt2)) == 1'557'611'200);
  CHECK(total(parameters_of(llama3_8b())) == 8'030'261'248);
}

TEST_CASE("initialisation, decay, role and unit of each row", "[params]") {
  Config config = small_config();
  config.model.tie_word_embeddings = false;
  const auto rows = parameters_of(config);
  for (const ParamSpec& row : rows) {
    INFO(row.name);
    const bool vector = row.shape.rank() == 1;
    CHECK(row.decay != vector);
    CHECK((row.role == DTypeRole::vector) == vector);
    CHECK(row.shape == row.global_shape);
    if (row.name.ends_with(".bias")) CHECK(row.init == InitKind::zeros);
    if (vector && row.name.ends_with(".weight")) CHECK(row.init == InitKind::ones);
    if (vector) continue;
    const bool residual =
        row.name.ends_with("attention.out.weight") || row.name.ends_with("mlp.down.weight");
    CHECK(row.init == InitKind::normal);
    CHECK(row.init_deviation == Approx(residual ? 0.02 / std::sqrt(8.0) : 0.02));
  }
  CHECK(find(rows, "embedding.token.weight").unit == 0);
  CHECK(find(rows, "embedding.position.weight").unit == 0);
  CHECK(find(rows, "layers.0.norm1.bias").unit == 1);
  CHECK(find(rows, "layers.3.mlp.down.weight").unit == 4);
  CHECK(find(rows, "final_norm.weight").unit == 5);
  CHECK(find(rows, "head.weight").unit == 5);
}

TEST_CASE("gradients are summed over the axes whose size is above one", "[params]") {
  for (const ParamSpec& row : parameters_of(small_config(), 4)) {
    CHECK(row.gradient_sum[static_cast<int>(Axis::dp)]);
    CHECK_FALSE(row.gradient_sum[static_cast<int>(Axis::tp)]);
    CHECK_FALSE(row.gradient_sum[static_cast<int>(Axis::cp)]);
    CHECK_FALSE(row.split[static_cast<int>(Axis::dp)]);
  }
  CHECK_FALSE(parameters_of(small_config(), 1)[0].gradient_sum[static_cast<int>(Axis::dp)]);
}

TEST_CASE("the flat layout is a padded reverse order cut into buckets", "[params]") {
  for (const bool tied : {true, false}) {
    for (const std::int64_t dp : {1, 2, 3, 8, 48}) {
      for (const std::int64_t bucket_size : {1, 100, 20'000, 100'000, 4'000'000}) {
        Config config = small_config();
        config.model.tie_word_embeddings = tied;
        config.model.hidden_size = 100;
        const auto rows = parameters_of(config, dp);
        const FlatLayout flat = make_flat_layout(rows, bucket_size, dp);
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
  const FlatLayout flat = make_flat_layout(rows, 256, 1);
  REQUIRE(flat.buckets.size() == 3);
  CHECK(flat.buckets[0].parameters == std::vector<int>{3, 2});
  CHECK(flat.buckets[0].length == 320);
  CHECK(flat.buckets[0].ready_unit == 2);
  CHECK(flat.buckets[1].parameters == std::vector<int>{1});
  CHECK(flat.buckets[2].parameters == std::vector<int>{0});
  CHECK(flat.buckets[2].offset == 384);
  CHECK(flat.length == 384 + 1024);
  // A few elements before it are not worth a reduction of their own.
  const FlatLayout large = make_flat_layout(rows, 1000, 1);
  REQUIRE(large.buckets.size() == 2);
  CHECK(large.buckets[0].parameters == std::vector<int>{3, 2, 1});
  rows[2].shape = Shape{64};
  CHECK(make_flat_layout(rows, 1000, 1).buckets.size() == 1);
}

TEST_CASE("shards own every element exactly once", "[params]") {
  for (const std::int64_t shards : {1, 2, 4, 8}) {
    const auto rows = parameters_of(small_config(), 8);
    const FlatLayout flat = make_flat_layout(rows, 50'000, 8);
    std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>> pieces(rows.size());
    for (std::int64_t shard = 0; shard < shards; ++shard) {
      std::int64_t owned = 0;
      for (const ParamRange& range : owned_ranges(rows, flat, shard, shards)) {
        REQUIRE(range.begin < range.end);
        pieces[static_cast<std::size_t>(range.parameter)].emplace_back(range.begin, range.end);
        owned += range.end - range.begin;
      }
      CHECK(owned <= flat.length / shards);
    }
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::sort(pieces[i].begin(), pieces[i].end());
      std::int64_t at = 0;
      for (const auto& [begin, end] : pieces[i]) {
        REQUIRE(begin == at);
        at = end;
      }
      REQUIRE(at == rows[i].shape.numel());
    }
  }
}
