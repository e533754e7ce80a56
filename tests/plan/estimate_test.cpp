#include "plan/cost/estimate.h"

#include <algorithm>
#include <set>

#include "base/collectives.h"
#include "catch.h"
#include "plan/gradients/optimizer_shard.h"
#include "sample.h"

using namespace trainctl;

namespace {

MemoryEstimate memory_of(const Config& config, std::int64_t ranks = 1, std::size_t stage = 0) {
  return plan_of(config, ranks).stages.at(stage).memory;
}

}  // namespace

TEST_CASE("memory of gpt2-124m, 4 x 1024 tokens, fp32, by hand", "[memory]") {
  const Plan plan = plan_of(gpt2_124m());
  const MemoryEstimate& memory = plan.stages[0].memory;
  CHECK(memory.parameters == 497'903'616);  // 124,475,904 x 4
  CHECK(memory.gradients == 497'903'616);
  CHECK(memory.optimizer == 995'807'232);
  const std::int64_t width = 4096 * 768 * 4;  // bytes of one [T, H]
  const std::int64_t batch = 4096 * (4 * 4 + 8 + 4);
  const std::int64_t layer = 8 * width + 2 * 4 * width + 4 * 4096 * 4 + 4096 * 12 * 4;
  const std::int64_t head = 3 * width + 2 * 4096 * 4;
  // Two of the gradients of the residual stream take the place of what the head has read.
  const std::int64_t transient = 7 * width + 4 * width + 1024 * 50304 * 4 + 3 * 1024 * 4;
  const std::int64_t scratch = 2 * (std::int64_t{4} << 20);
  CHECK(batch + 12 * layer + head + transient + scratch == 2'809'819'136);
  CHECK(memory.activations == 2'809'819'136);
  CHECK(memory.communication == 0);
  CHECK(memory.data == 3 * (4096 * 28 + 4 * 8));  // the current step and two ahead
  CHECK(memory.runtime > 0);
  CHECK(memory.total() == memory.parameters + memory.gradients + memory.optimizer +
                              memory.activations + memory.data + memory.runtime);
}

TEST_CASE("what changes the estimate", "[memory]") {
  Config config = gpt2_124m();
  const MemoryEstimate fp32 = memory_of(config);
  config.precision.compute = ComputeType::bf16;
  const MemoryEstimate bf16 = memory_of(config);
  // Masters, 16-bit matrices, and norms and biases in fp32.
  CHECK(bf16.parameters == 124'475'904 * 6 + 121'344 * 2);
  CHECK(bf16.gradients == fp32.gradients);
  CHECK(bf16.activations < fp32.activations * 6 / 10);

  // Only the copies of matrices that products read exist.
  config.optimizer.main_params_dtype = ComputeType::bf16;
  CHECK(memory_of(config).parameters == 124'475'904 * 2 + 121'344 * 2);
  config.optimizer.main_params_dtype = ComputeType::fp32;

  config.optimizer.exp_avg_dtype = ComputeType::bf16;
  CHECK(memory_of(config).optimizer == 746'855'424);
  config.optimizer.exp_avg_sq_dtype = ComputeType::bf16;
  CHECK(memory_of(config).optimizer == 497'903'616);
  config.optimizer.type = OptimizerType::sgd;
  CHECK(memory_of(config).optimizer == 497'903'616);
  config.optimizer.momentum = 0;
  CHECK(memory_of(config).optimizer == 0);
  config.optimizer.type = OptimizerType::lion;
  CHECK(memory_of(config).optimizer == 497'903'616 / 2);  // one value of each element, in bf16
  config.optimizer.exp_avg_dtype = ComputeType::fp32;
  CHECK(memory_of(config).optimizer == 497'903'616);
  config.optimizer.exp_avg_dtype = ComputeType::bf16;
  // Matrices keep one value, in bf16, and all others two, in bf16 as well: 121,344 elements.
  config.optimizer.groups = {{.match = {"*norm*", "*.bias"}, .type = OptimizerType::adamw}};
  CHECK(memory_of(config).optimizer == 497'903'616 / 2 + 121'344 * 2);
  config.optimizer.groups = {};

  config.train.micro_batch_size = 1;
  config.precision.compute = ComputeType::fp32;
  const MemoryEstimate small = memory_of(config);
  CHECK(small.activations < fp32.activations / 3);
  CHECK(small.data == fp32.data);

  const Plan four = plan_of(config, 4);
  CHECK(four.stages[0].memory.communication ==
        2 * 3 * 699'008);  // pieces of 2 MiB / 3, whole lines
  CHECK(four.stages[0].memory.runtime > fp32.runtime);
  CHECK(four.stages[0].memory.data == fp32.data / 4);
}

TEST_CASE("sums of gradients in bf16 take half the memory, and slots", "[memory]") {
  Config config = gpt2_124m();
  config.parallel.bucket_size = 1'000'000;
  const MemoryEstimate fp32 = memory_of(config);
  config.optimizer.main_grads_dtype = ComputeType::bf16;
  const Plan plan = plan_of(config, 1);
  const StagePlan& stage = plan.stages[0];
  CHECK(fp32.gradients == 124'475'904 * 4);
  CHECK(stage.memory.gradients ==
        124'475'904 * 2 + stage.gradient_ring.length * std::int64_t{sizeof(float)});
  CHECK(stage.gradient_ring.length >= 50'257 * 768);  // the largest bucket: the embedding
  CHECK(stage.memory.optimizer == fp32.optimizer);
  for (const BucketSum& sum : stage.sums) CHECK(sum.repeated);
}

TEST_CASE("llama keeps a rope table", "[memory]") {
  Config config = small_config();
  config.model.family = "llama";
  const std::int64_t usual = memory_of(config).activations;
  config.model.max_position_embeddings = 1064;
  CHECK(memory_of(config).activations == usual + 1000 * 32 * 4);
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

TEST_CASE("operations of the stages make those of the model", "[flops]") {
  const ModelShape model = model_shape(small_config().model);
  const FlopsEstimate whole = estimate_flops(model, 100);
  const FlopsEstimate first = estimate_flops(model, 100, {{0, 2}, {3, 4}});
  const FlopsEstimate last = estimate_flops(model, 100, {{2, 3}, {4, 6}});
  CHECK(first.matmul + last.matmul == whole.matmul);
  CHECK(first.attention_full == last.attention_full);
  CHECK(first.attention_causal + last.attention_causal == whole.attention_causal);
  CHECK(last.matmul - first.matmul == 6 * 128.0 * 256 * 100);
  CHECK(estimate_flops(model, 100, {{0, 1}}).total() == 0);
}

TEST_CASE("operations of experts", "[flops]") {
  Config config = llama3_8b();
  const double dense = estimate_flops(model_shape(config.model), 1).matmul;
  config.moe.num_experts = 8;
  config.moe.router_topk = 2;
  const double moe = estimate_flops(model_shape(config.model, config.moe), 1).matmul;
  CHECK(moe - dense == Approx(6 * 32.0 * (3 * 4096.0 * 14336 + 8 * 4096.0)));
}

TEST_CASE("megatron's optimizer slices divide the state", "[memory]") {
  Config config = small_config();
  config.parallel.bucket_rule = BucketRule::megatron;
  config.precision.compute = ComputeType::bf16;
  const MemoryEstimate whole = memory_of(config, 4);
  config.parallel.parallel_optimizer.enable = true;
  const Plan plan = plan_of(config, 4);
  REQUIRE(plan.stages.size() == 1);
  const std::int64_t length = plan.stages[0].flat.length;
  const MemoryEstimate& memory = plan.stages[0].memory;
  CHECK(memory.optimizer == length / 4 * 8);
  std::int64_t vectors = 0;
  for (const ParamSpec& row : plan.stages[0].parameters) {
    if (row.is_vector) vectors += (row.shape.numel() + 15) / 16 * 16;
  }
  CHECK(memory.parameters == length * 2 + vectors * 4 + length / 4 * 4);
  CHECK(memory.gradients == length * 4);
  CHECK(whole.optimizer > 3 * memory.optimizer);
}

TEST_CASE("rows of parameters divide state and accumulated gradients", "[memory]") {
  Config config = small_config();
  config.parallel.parallel_mode = ParallelMode::hybrid_parallel;
  config.parallel.parallel_optimizer.enable = true;
  config.parallel.parallel_optimizer.threshold = 0;
  config.parallel.bucket_size = 50'000;
  config.train.micro_batch_size = 1;
  const Plan plan = plan_of(config, 2);
  REQUIRE(plan.stages.size() == 1);
  const StagePlan& stage = plan.stages[0];
  std::int64_t held = 0;
  std::int64_t biases = 0;
  for (const ParamSpec& row : stage.parameters) {
    const bool bias = row.name.ends_with(".bias");
    held += bias ? row.shape.numel() : row.shape.numel() / 2;
    biases += bias ? row.shape.numel() : 0;
  }
  CHECK(biases > 0);
  CHECK(stage.memory.optimizer == held * 8);
  // Parts of sums are padded to 64 bytes; biases are whole, in buckets that are summed once.
  std::int64_t gradients = stage.gradient_ring.length;
  for (std::size_t i = 0; i < stage.flat.buckets.size(); ++i) {
    const Bucket& bucket = stage.flat.buckets[i];
    if (stage.gradient_ring.slot[i] < 0) gradients += bucket.length;
    for (const int index : bucket.parameters) {
      const std::int64_t part = stage.parameters[static_cast<std::size_t>(index)].shape.numel() / 2;
      if (stage.gradient_ring.slot[i] >= 0) gradients += (part + 15) / 16 * 16;
    }
  }
  CHECK(stage.memory.gradients == gradients * 4);
  CHECK(stage.gradient_ring.sizes.size() < stage.flat.buckets.size());
  CHECK(gradients < stage.flat.length);
  config.parallel.parallel_optimizer.gradient_accumulation_shard = false;
  CHECK(memory_of(config, 2).gradients == stage.flat.length * 4);
}

TEST_CASE("dealt parameters: the rank that holds most", "[memory]") {
  Config config = small_config();
  config.parallel.parallel_mode = ParallelMode::data_parallel;
  config.parallel.parallel_optimizer.enable = true;
  const Plan plan = plan_of(config, 3);
  REQUIRE(plan.stages.size() == 1);
  std::int64_t held[3] = {0, 0, 0};
  for (std::size_t i = 0; i < plan.stages[0].parameters.size(); ++i) {
    held[i % 3] += plan.stages[0].parameters[i].shape.numel();
  }
  CHECK(plan.stages[0].memory.optimizer == 8 * std::max({held[0], held[1], held[2]}));
}

TEST_CASE("recomputed layers keep their input only", "[memory]") {
  Config config = gpt2_124m();
  const std::int64_t usual = memory_of(config).activations;
  const std::int64_t width = 4096 * 768 * 4;
  const std::int64_t layer = 8 * width + 2 * 4 * width + 4 * 4096 * 4 + 4096 * 12 * 4;
  config.recompute.enable = true;
  CHECK(memory_of(config).activations == usual - 11 * (layer - width));
  config.recompute.layers_per_stage = IntList{4};
  CHECK(memory_of(config).activations == usual - 3 * (layer - width));
  config.recompute.layers_per_stage = IntList{0};
  CHECK(memory_of(config).activations == usual);
}

// The input of a layer stays until somebody has waited for its copy: the last ones' until the
// backward begins.
TEST_CASE("offloaded layers are on the device one at a time, or two", "[memory]") {
  Config config = gpt2_124m();
  const std::int64_t usual = memory_of(config).activations;
  const std::int64_t width = 4096 * 768 * 4;
  const std::int64_t layer = 8 * width + 2 * 4 * width + 4 * 4096 * 4 + 4096 * 12 * 4;
  config.offload.enable = true;
  config.offload.num_layers = 11;
  CHECK(memory_of(config).activations == usual - 10 * layer + width);
  config.offload.double_buffering = true;
  CHECK(memory_of(config).activations == usual - 9 * layer + 2 * width);
}

TEST_CASE("staging of every group that a rank sums with", "[memory]") {
  Config config = small_config();
  config.parallel.tensor_parallel = 2;
  CHECK(memory_of(config, 2).communication == staging_bytes(2));
  CHECK(memory_of(config, 8).communication == staging_bytes(2) + staging_bytes(4));
  config.parallel.context_parallel = 2;
  CHECK(memory_of(config, 8).communication == staging_bytes(2) + staging_bytes(4));
  CHECK(memory_of(config, 8).data == memory_of(config, 4).data / 2);
}

TEST_CASE("the hash sees every stage and layout", "[hash]") {
  std::set<std::uint64_t> seen;
  const auto fresh = [&](const Config& config, std::int64_t ranks) {
    return seen.insert(plan_of(config, ranks).hash).second;
  };
  Config config = small_config();
  CHECK(fresh(config, 4));
  CHECK_FALSE(fresh(config, 4));
  config.parallel.tensor_parallel = 2;
  CHECK(fresh(config, 4));
  config.parallel.sequence_parallel = true;
  CHECK(fresh(config, 4));
  config.parallel.rank_order = "cp-tp-ep-dp-pp";
  CHECK(fresh(config, 4));
  config.parallel.rank_order = "dp-tp-cp-ep-pp";
  CHECK(fresh(config, 4));
  config.parallel.bucket_size = 50'000;
  CHECK(fresh(config, 4));
  config.parallel.vocab_emb_dp = true;
  CHECK(fresh(config, 4));
  config.parallel.pipeline_stages = 2;
  CHECK(fresh(config, 4));
  config.parallel.pipeline.last_stage_layers = 1;
  CHECK(fresh(config, 4));
  config.parallel.pipeline.scheduler = PipelineScheduler::gpipe;
  CHECK(fresh(config, 4));
  config.model.add_bias_linear = false;
  CHECK(fresh(config, 4));
  config.moe.num_experts = 4;
  CHECK(fresh(config, 4));
  config.moe.router_topk = 2;
  CHECK(fresh(config, 4));
  config.output.dir = "elsewhere";
  CHECK_FALSE(fresh(config, 4));
}

TEST_CASE("a rank with a CUDA device has two memories") {
  Config config = small_config();
  const MemoryEstimate cpu = memory_of(config);
  CHECK_FALSE(cpu.on_cuda);
  CHECK(cpu.device() == cpu.total());
  CHECK(cpu.host() == cpu.total());
  CHECK(cpu.library == 0);
  config.parallel.device = "cuda";
  const MemoryEstimate alone = memory_of(config);
  CHECK(alone.on_cuda);
  CHECK(alone.library == std::int64_t{640} << 20);
  CHECK(alone.communicators == 0);
  CHECK(alone.host() == alone.offloaded + alone.data + alone.checkpoint + alone.runtime);
  CHECK(alone.device() == alone.parameters + alone.gradients + alone.optimizer + alone.activations +
                              alone.communication + alone.library);
  // Gradient sums, and the norm and loss of all ranks.
  const MemoryEstimate two = memory_of(config, 2);
  CHECK(two.communicators == 2 * (std::int64_t{288} << 20));
  CHECK(two.communication == 0);  // NCCL has no staging of ours
  config.parallel.share_devices = DeviceSharing::without_nccl;
  CHECK(memory_of(config, 2).communicators == 0);
  config.parallel.share_devices = DeviceSharing::nccl;
  CHECK(memory_of(config, 2).communicators == two.communicators);
  config.parallel.share_devices = DeviceSharing::none;
  config.parallel.pipeline_stages = 2;
  const MemoryEstimate stages = memory_of(config, 2);
  const std::int64_t lines = std::int64_t{36} << 20;
  CHECK(stages.communicators % (std::int64_t{288} << 20) == 2 * lines);
}

TEST_CASE("a plan that does not fit into a CUDA device gets a warning") {
  Config config = small_config();
  config.parallel.device = "cuda";
  config.cluster.device_memory = 0.5;
  const auto found = [&] {
    Diagnostics diagnostics;
    make_plan(config, {.world_size = 1}, SourceMap{}, diagnostics);
    return diagnostics.list();
  };
  REQUIRE(found().size() == 1);
  const Diagnostic one = found().front();
  CHECK(one.code == "device-memory");
  CHECK(one.severity == Severity::warning);
  CHECK(one.path == "cluster.device_memory");
  CHECK(one.message.starts_with("the fullest rank needs "));
  CHECK(one.message.find(" of its device, which has 512.00 MiB: parameters ") != std::string::npos);
  CHECK(one.message.ends_with(", library 640.00 MiB"));
  CHECK(one.help == "use recompute, smaller micro-batches, more ranks or a parallel optimizer");
  config.cluster.device_memory = 80;
  CHECK(found().empty());
}

TEST_CASE("a plan with more streams than a CUDA device has queues is refused") {
  Config config = small_config();
  config.model.num_layers = 24;
  config.train.micro_batch_num = 3;
  config.parallel.device = "cuda";
  config.parallel.pipeline_stages = 3;
  const auto plan = [&](Diagnostics& diagnostics) {
    return make_plan(config, {.world_size = 3}, SourceMap{}, diagnostics);
  };
  const auto found = [&](std::int64_t chunks) {
    config.parallel.virtual_pipeline_stages = chunks;
    Diagnostics diagnostics;
    plan(diagnostics);
    return diagnostics.list();
  };
  CHECK(found(4).empty());
  REQUIRE(found(8).size() == 1);
  const Diagnostic one = found(8).front();
  CHECK(one.code == "device-queues");
  CHECK(one.severity == Severity::error);
  CHECK(one.path == "parallel.virtual_pipeline_stages");
  CHECK(one.message ==
        "a rank needs 2 streams of the engine + 32 for messages between stages (up to 4 for each "
        "of 8 chunks) = 34, but a CUDA device has 32 queues: streams that share one wait for each "
        "other, and two ranks could wait for each other's messages for ever");
  CHECK(one.help == "set virtual_pipeline_stages to 7 or less");
  // Nothing on a device waits for what comes later.
  config.parallel.share_devices = DeviceSharing::without_nccl;
  CHECK(found(8).empty());
  config.parallel.share_devices = DeviceSharing::none;
  config.parallel.device = "cpu";
  CHECK(found(8).empty());
}
