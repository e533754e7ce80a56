#include "plan/estimate.h"

#include "catch.h"
#include "sample.h"

using namespace trainctl;

TEST_CASE("memory of gpt2-124m, 4 x 1024 tokens, fp32, by hand", "[memory]") {
  const Plan plan = plan_of(gpt2_124m());
  const MemoryEstimate& memory = plan.memory;
  CHECK(memory.parameters == 497'903'616);  // 124,475,904 x 4
  CHECK(memory.gradients == 497'903'616);
  CHECK(memory.optimizer == 995'807'232);
  const std::int64_t width = 4096 * 768 * 4;  // bytes of one [T, H]
  const std::int64_t batch = 4096 * (4 * 4 + 8 + 4);
  const std::int64_t layer = 8 * width + 2 * 4 * width + 4 * 4096 * 4 + 4096 * 12 * 4;
  const std::int64_t head = 3 * width + 2 * 4096 * 4;
  const std::int64_t transient = 9 * width + 4 * width + 1024 * 50304 * 4 + 3 * 1024 * 4;
  const std::int64_t scratch = 2 * (std::int64_t{4} << 20);
  CHECK(batch + 12 * layer + head + transient + scratch == 2'834'984'960);
  CHECK(memory.activations == 2'834'984'960);
  CHECK(memory.communication == 0);
  CHECK(memory.data == 3 * 4096 * 28);  // the step at hand and two ahead
  CHECK(memory.runtime > 0);
  CHECK(memory.total() == memory.parameters + memory.gradients + memory.optimizer +
                              memory.activations + memory.data + memory.runtime);
}

TEST_CASE("what changes the estimate", "[memory]") {
  Config config = gpt2_124m();
  const MemoryEstimate fp32 = plan_of(config).memory;
  config.precision.compute = ComputeType::bf16;
  const MemoryEstimate bf16 = plan_of(config).memory;
  CHECK(bf16.parameters == 124'475'904 * 6);
  CHECK(bf16.gradients == fp32.gradients);
  CHECK(bf16.activations < fp32.activations * 6 / 10);

  config.optimizer.type = OptimizerType::sgd;
  CHECK(plan_of(config).memory.optimizer == 497'903'616);
  config.optimizer.momentum = 0;
  CHECK(plan_of(config).memory.optimizer == 0);

  config.train.micro_batch_size = 1;
  config.precision.compute = ComputeType::fp32;
  const MemoryEstimate small = plan_of(config).memory;
  CHECK(small.activations < fp32.activations / 3);
  CHECK(small.data == fp32.data);

  const Plan four = plan_of(config, 4);
  CHECK(four.memory.communication == 2 * 3 * 699'008);  // pieces of 2 MiB / 3, whole lines
  CHECK(four.memory.runtime > fp32.runtime);
  CHECK(four.memory.data == fp32.data / 4);
}

TEST_CASE("rows are padded to 64 bytes and counted by their lifetime", "[memory]") {
  std::vector<ActivationSpec> rows(3);
  rows[0] = {"a", Shape{17}, DType::f32, Lifetime::kept};       // 68 -> 128
  rows[1] = {"b", Shape{4, 2}, DType::bf16, Lifetime::batch};   // 16 -> 64
  rows[2] = {"c", Shape{16}, DType::f32, Lifetime::transient};  // 64
  CHECK(activation_bytes(rows, 1) == 128 + 64 + 64);
  CHECK(activation_bytes(rows, 3) == 3 * (128 + 64) + 64);
}

TEST_CASE("llama keeps a rope table", "[memory]") {
  Config config = small_config();
  config.model.family = Family::llama;
  const std::int64_t usual = plan_of(config).memory.activations;
  config.model.max_position_embeddings = 1064;
  CHECK(plan_of(config).memory.activations == usual + 1000 * 32 * 4);
}

TEST_CASE("operations of gpt2-124m by hand", "[flops]") {
  const FlopsEstimate flops = plan_of(gpt2_124m()).flops;
  CHECK(flops.matmul == 3'036'810'313'728.0);
  CHECK(flops.attention_full == 463'856'467'968.0);
  CHECK(flops.attention_causal == 232'154'726'400.0);
  CHECK(flops.total() == flops.matmul + flops.attention_causal);
}

TEST_CASE("operations follow the sizes", "[flops]") {
  const ModelShape model = model_shape(llama3_8b().model);
  // One layer: q and out 4096^2 each, k and v 4096 x 1024 each, three of 4096 x 14336.
  const double weights =
      32.0 * (2 * 4096.0 * 4096 + 2 * 4096.0 * 1024 + 3 * 4096.0 * 14336) + 4096.0 * 128256;
  CHECK(estimate_flops(model, 10).matmul == Approx(6 * weights * 10));
  ModelShape longer = model;
  longer.seq_length *= 2;
  CHECK(estimate_flops(longer, 10).attention_full == 2 * estimate_flops(model, 10).attention_full);
  CHECK(estimate_flops(longer, 10).matmul == estimate_flops(model, 10).matmul);
  ModelShape one = model;
  one.seq_length = 1;
  CHECK(estimate_flops(one, 10).attention_full == estimate_flops(one, 10).attention_causal);
}

TEST_CASE("traffic of data parallelism", "[flops]") {
  CHECK(plan_of(small_config()).communication.empty());
  const Plan plan = plan_of(small_config(), 4);
  REQUIRE(plan.communication.size() == 1);
  CHECK(plan.communication[0].axis == Axis::dp);
  CHECK(plan.communication[0].bytes == plan.flat.length * 4);
  CHECK(plan.communication[0].count == static_cast<std::int64_t>(plan.flat.buckets.size()));
}
