#include <functional>

#include "base/attention_part.h"
#include "base/scratch.h"
#include "catch.h"
#include "plan/rules/check.h"
#include "sample.h"

using namespace trainctl;

namespace {

/// GPT-2 in bf16 on a device where auto may take cuDNN.
Config for_cudnn() {
  Config config = gpt2_124m();
  config.precision.compute = ComputeType::bf16;
  config.parallel.device = "cuda";
  return config;
}

Plan plan_there(const Config& config, bool cudnn = true, std::int64_t ranks = 1) {
  Site site = site_of(ranks);
  site.device = DeviceKind::cuda;
  site.cudnn = cudnn;
  Diagnostics diagnostics;
  Plan plan = make_plan(config, site, SourceMap{}, diagnostics);
  REQUIRE_FALSE(diagnostics.has_errors());
  return plan;
}

/// Why cuDNN is not for the configuration after a change.
std::string reason(const std::function<void(Config&)>& change, std::int64_t ranks = 1) {
  Config config = for_cudnn();
  change(config);
  const Site site = site_of(ranks);
  return why_not_cudnn(Facts(config, site));
}

}  // namespace

TEST_CASE("auto takes cuDNN where the site has it, and the words decide otherwise", "[plan]") {
  Config config = for_cudnn();
  const Plan taken = plan_there(config);
  REQUIRE(taken.cudnn);
  CHECK(*taken.cudnn == AttentionExtents{taken.micro_batch_size, 1024, 12, 12, 64});
  const Plan left = plan_there(config, false);
  CHECK_FALSE(left.cudnn);
  CHECK(taken.hash != left.hash);
  config.parallel.attention_backend = "own";
  CHECK(plan_there(config).hash == left.hash);
  config.parallel.attention_backend = "cudnn";
  CHECK(plan_there(config, false).hash == taken.hash);
}

TEST_CASE("the memory of cuDNN's attention is planned", "[plan]") {
  const Plan taken = plan_there(for_cudnn());
  const Plan left = plan_there(for_cudnn(), false);
  const std::int64_t bytes = attention_bytes(attention_part(*taken.cudnn));
  CHECK(bytes > 0);
  CHECK(left.scratch_bytes() == scratch_bytes(DeviceKind::cuda, 1));
  CHECK(taken.scratch_bytes() == left.scratch_bytes() + bytes);
  CHECK(taken.stages[0].memory.activations == left.stages[0].memory.activations + bytes);
}

TEST_CASE("tensor-parallel ranks give their heads to cuDNN", "[plan]") {
  Config config = for_cudnn();
  config.parallel.tensor_parallel = 2;
  const Plan plan = plan_there(config, true, 2);
  REQUIRE(plan.cudnn);
  CHECK(plan.cudnn->heads == 6);
  CHECK(plan.cudnn->kv_heads == 6);
}

TEST_CASE("what cuDNN's attention is not for", "[plan]") {
  CHECK(reason([](Config&) {}).empty());
  CHECK(reason([](Config& c) { c.parallel.device = "cpu"; }) == "device is not cuda");
  CHECK(reason([](Config& c) { c.precision.compute = ComputeType::fp32; }) ==
        "precision.compute is fp32");
  CHECK(reason([](Config& c) { c.model.num_attention_heads = 24; }) ==
        "heads have 32 features, not 64 or 128");
  CHECK(reason([](Config& c) { c.model.seq_length = 1000; }) ==
        "seq_length (1000) is not a multiple of 128");
  CHECK(reason([](Config& c) { c.model.attention_dropout = 0.1; }) ==
        "attention_dropout is above 0");
  CHECK(reason([](Config& c) { c.data.reset_attention_mask = true; }) ==
        "reset_attention_mask keeps documents apart");
  CHECK(reason([](Config& c) { c.parallel.context_parallel = 2; }, 2) ==
        "context-parallel ranks share sequences");
  CHECK(reason([](Config& c) { c.model.seq_length = 32768; }).starts_with("it would need 2"));
  // Without a fixed order no gradients of scores are kept.
  CHECK(reason([](Config& c) {
          c.model.seq_length = 32768;
          c.train.deterministic_mode = false;
        }).empty());
}

TEST_CASE("deterministic_mode decides the form of cuDNN's backward pass", "[plan]") {
  Config config = for_cudnn();
  config.model.seq_length = 8192;
  const Plan ordered = plan_there(config);
  config.train.deterministic_mode = false;
  const Plan any = plan_there(config);
  REQUIRE(ordered.cudnn);
  REQUIRE(any.cudnn);
  CHECK(ordered.cudnn->ordered);
  CHECK_FALSE(any.cudnn->ordered);
  CHECK(ordered.hash != any.hash);
  CHECK(any.scratch_bytes() < ordered.scratch_bytes());
}

TEST_CASE("the backward pass is cut into parts that are alike and small", "[plan]") {
  // Sequences of 1,024 and 16 heads: 32 MiB of scores each.
  const AttentionExtents whole = attention_part({64, 1024, 16, 16, 64});
  CHECK(whole == AttentionExtents{32, 1024, 16, 16, 64});
  CHECK(attention_bytes(whole) <= wished_attention_bytes);
  // 128 MiB of scores for each head of 8,192.
  CHECK(attention_part({2, 8192, 32, 32, 128}) == AttentionExtents{1, 8192, 8, 8, 128});
  // Heads that share keys stay together.
  const AttentionExtents shared = attention_part({1, 8192, 32, 8, 128});
  CHECK(shared == AttentionExtents{1, 8192, 8, 2, 128});
  CHECK(attention_bytes(shared) > 8 * (std::int64_t{128} << 20));
  CHECK(attention_bytes(shared) < max_attention_bytes);
  // Where sums have no fixed order, all heads are one part: 128 MiB of sums, as much for keys.
  const AttentionExtents any = attention_part({1, 8192, 32, 8, 128, false});
  CHECK(any == AttentionExtents{1, 8192, 32, 8, 128, false});
  CHECK(attention_bytes(any) < std::int64_t{264} << 20);
  for (const std::int64_t kv_heads : {1, 2, 3, 4, 6, 12}) {
    const auto part = attention_part({6, 512, 12, kv_heads, 64}, std::int64_t{8} << 20);
    CHECK(6 % part.sequences == 0);
    CHECK(kv_heads % part.kv_heads == 0);
    CHECK((part.sequences == 1 || part.kv_heads == kv_heads));
  }
}

TEST_CASE("the bytes of a call tell whether its sums are ordered", "[plan]") {
  for (const std::int64_t length : {128, 256, 384, 1024}) {
    for (const std::int64_t heads : {1, 2, 3}) {
      for (const bool ordered : {true, false}) {
        const auto bytes = attention_bytes(attention_part({1, length, heads, heads, 64, ordered}));
        CHECK(is_ordered(bytes) == ordered);
        CHECK(bytes % attention_block == 0);
      }
    }
  }
}
