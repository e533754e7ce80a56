#include <algorithm>

#include "catch.h"
#include "plan/cost/estimate.h"
#include "plan/cost/forms.h"
#include "sample.h"

using namespace trainctl;

namespace {

CollectiveUse use_of(const StagePlan& stage, const std::string& name) {
  INFO(name);
  const auto at = std::find_if(stage.communication.begin(), stage.communication.end(),
                               [&](const CollectiveUse& use) { return use.name() == name; });
  REQUIRE(at != stage.communication.end());
  return *at;
}

bool uses(const StagePlan& stage, const std::string& name) {
  return std::any_of(stage.communication.begin(), stage.communication.end(),
                     [&](const CollectiveUse& use) { return use.name() == name; });
}

void check_use(const StagePlan& stage, const std::string& name, const std::string& group,
               std::int64_t count, std::int64_t bytes_each) {
  const CollectiveUse use = use_of(stage, name);
  CHECK(name_of(use.group) == group);
  CHECK(use.count == count);
  CHECK(use.bytes == count * bytes_each);
}

}  // namespace

TEST_CASE("traffic of data parallelism", "[communication]") {
  CHECK(plan_of(small_config()).stages[0].communication.empty());
  Config config = small_config();
  const Plan plan = plan_of(config, 4);
  const StagePlan& stage = plan.stages[0];
  REQUIRE(stage.communication.size() == 3);
  const CollectiveUse gradients = use_of(stage, "all_reduce gradients");
  CHECK(name_of(gradients.group) == "dp");
  CHECK(gradients.bytes == stage.flat.length * 4);
  CHECK(gradients.count == static_cast<std::int64_t>(stage.flat.buckets.size()));
  CHECK(gradients.ranks == 4);
  CHECK(group_name(gradients.purpose, gradients.group) == "gradients dp");
  check_use(stage, "all_gather loss", "world", 1, 4 * 16);
  check_use(stage, "all_gather gradient norm", "world", 1, 4 * 16);
  config.train.micro_batch_size = 1;
  config.hooks.no_sync = "never";
  const Plan often = plan_of(config, 4);
  CHECK(use_of(often.stages[0], "all_reduce gradients").count == 3 * gradients.count);
}

TEST_CASE("traffic of tensor parallelism", "[communication]") {
  Config config = small_config();
  config.parallel.tensor_parallel = 2;
  const Plan plan = plan_of(config, 2);
  REQUIRE(plan.stages.size() == 1);
  const StagePlan& stage = plan.stages[0];
  const std::int64_t stream = 12 * 64 * 128 * 4;
  check_use(stage, "all_reduce attention", "tp", 8, stream);  // leave and, backward, enter
  check_use(stage, "all_reduce mlp", "tp", 8, stream);
  check_use(stage, "all_reduce embedding", "tp", 1, stream);
  check_use(stage, "all_reduce head", "tp", 1, stream);
  check_use(stage, "all_gather head statistics", "tp", 4, 3 * 2 * 12 * 64);  // fp32, a quarter each
  check_use(stage, "all_gather gradient norm", "world", 1, 2 * 16);
  check_use(stage, "all_gather loss", "world", 1, 2 * 16);
  CHECK(stage.communication.size() == 7);
  config.data.eod_mask_loss = true;
  check_use(plan_of(config, 2).stages[0], "all_gather loss weights", "world", 1, 2 * 32);
}

TEST_CASE("traffic of sequence parallelism", "[communication]") {
  Config config = small_config();
  config.parallel.tensor_parallel = 2;
  config.parallel.sequence_parallel = true;
  const Plan plan = plan_of(config, 2);
  REQUIRE(plan.stages.size() == 1);
  const StagePlan& stage = plan.stages[0];
  const std::int64_t stream = 12 * 64 * 128 * 4;
  for (const std::string part : {"attention", "mlp"}) {
    check_use(stage, "all_gather " + part, "tp", 12, stream);  // one more for the weight gradient
    check_use(stage, "reduce_scatter " + part, "tp", 8, stream);
    CHECK_FALSE(uses(stage, "all_reduce " + part));
  }
  check_use(stage, "reduce_scatter embedding", "tp", 1, stream);
  check_use(stage, "all_gather embedding", "tp", 1, stream);
  check_use(stage, "all_gather head", "tp", 1, stream);
  check_use(stage, "reduce_scatter head", "tp", 1, stream);
  // Per layer two norms with biases and two row biases; positions; the last norm.
  check_use(stage, "all_reduce replicated gradients", "tp", 1,
            (4 * (4 + 2) * 128 + 64 * 128 + 2 * 128) * 4);
  config.recompute.enable = true;  // the forward's once more, as far as the last product
  CHECK(use_of(plan_of(config, 2).stages[0], "all_gather mlp").count == 16);
  CHECK(use_of(plan_of(config, 2).stages[0], "reduce_scatter attention").count == 12);
  CHECK(use_of(plan_of(config, 2).stages[0], "reduce_scatter mlp").count == 8);
  // Gathered values are kept until W.
  config.recompute.mp_comm_recompute = false;
  CHECK(use_of(plan_of(config, 2).stages[0], "all_gather mlp").count == 8);
  CHECK(use_of(plan_of(config, 2).stages[0], "reduce_scatter attention").count == 8);
  config.recompute.mp_comm_recompute = true;
  config.recompute.select = "norms+attention+activations";
  CHECK(use_of(plan_of(config, 2).stages[0], "all_gather mlp").count == 12);
  CHECK(use_of(plan_of(config, 2).stages[0], "reduce_scatter attention").count == 8);
  config.recompute.select = "full";
  config.parallel.sequence_parallel = false;
  config.recompute.slice_activation = true;
  check_use(plan_of(config, 2).stages[0], "all_gather sliced inputs", "tp", 4, 12 * 64 * 128 * 4);
}

TEST_CASE("traffic between stages", "[communication]") {
  Config config = small_config();
  config.parallel.pipeline_stages = 2;
  config.precision.compute = ComputeType::bf16;
  const Plan plan = plan_of(config, 2);
  REQUIRE(plan.stages.size() == 2);
  const std::int64_t message = 64 * 128 * 2;
  check_use(plan.stages[0], "send activations", "pp", 12, message);
  check_use(plan.stages[0], "receive gradients", "pp", 12, message);
  check_use(plan.stages[1], "receive activations", "pp", 12, message);
  check_use(plan.stages[1], "send gradients", "pp", 12, message);
  CHECK_FALSE(uses(plan.stages[0], "receive activations"));
  for (const StagePlan& stage : plan.stages) {
    check_use(stage, "all_reduce tied embedding", "embedding", 1, 256 * 128 * 4);
  }
  config.parallel.pipeline.dtype = ComputeType::fp32;
  const Plan wide = plan_of(config, 2);
  check_use(wide.stages[0], "send activations", "pp", 12, 2 * message);
}

TEST_CASE("traffic of context and expert parallelism", "[communication]") {
  Config config = small_config();
  config.parallel.context_parallel = 2;
  const Plan ring = plan_of(config, 2);
  REQUIRE(ring.stages.size() == 1);
  const std::int64_t keys = (12 * 32) * 128 * 4;  // of half of each sequence
  // Keys and values apart: in forward and backward of four layers, and their gradients.
  for (const char* name : {"send keys and values", "receive keys and values"}) {
    check_use(ring.stages[0], name, "cp", 2 * 4 * 3, keys);
  }
  CHECK(use_of(ring.stages[0], "all_reduce gradients").group == group_over({Axis::dp, Axis::cp}));

  config.parallel.cp_comm_type = CpCommType::all_gather;
  const Plan gathered = plan_of(config, 2);
  check_use(gathered.stages[0], "all_gather keys and values", "cp", 2 * 4 * 2, 2 * keys);
  check_use(gathered.stages[0], "reduce_scatter keys and values", "cp", 2 * 4, 2 * keys);

  config.parallel.cp_comm_type = CpCommType::a2a;
  const Plan exchanged = plan_of(config, 2);
  check_use(exchanged.stages[0], "all_to_all heads", "cp", 4 * 8, keys);

  config.parallel.context_parallel = 4;
  config.parallel.cp_comm_type = CpCommType::a2a_p2p;
  config.parallel.hierarchical_context_parallel_sizes = IntList{2, 2};
  const Plan both = plan_of(config, 4);
  check_use(both.stages[0], "all_to_all heads", "cp-heads", 4 * 8, keys / 2);
  check_use(both.stages[0], "send keys and values", "cp-ring", 2 * 4 * 3, keys / 2);

  config.parallel.context_parallel = 2;
  config.parallel.hierarchical_context_parallel_sizes.reset();
  config.parallel.cp_comm_type.layers = {CpCommType::p2p, CpCommType::a2a, CpCommType::a2a,
                                         CpCommType::all_gather};
  const Plan mixed = plan_of(config, 2);
  check_use(mixed.stages[0], "send keys and values", "cp", 2 * 3, keys);
  check_use(mixed.stages[0], "all_to_all heads", "cp", 2 * 8, keys);
  check_use(mixed.stages[0], "all_gather keys and values", "cp", 2 * 2, 2 * keys);
  check_use(mixed.stages[0], "reduce_scatter keys and values", "cp", 2, 2 * keys);

  Config moe = small_config();
  moe.moe.num_experts = 4;
  moe.parallel.expert_parallel = 2;
  moe.moe.capacity_factor = 1;
  const Plan plan = plan_of(moe, 4);
  REQUIRE(plan.stages.size() == 1);
  const StagePlan& stage = plan.stages[0];
  // 16 tokens of each of three sequences to each of four experts. A row has 128 features; its
  // weight goes there, and the gradient of that back.
  const std::int64_t rows = 4 * 3 * 16;
  CHECK(use_of(stage, "all_to_all experts (at most)").count == 4 * (3 + 3));
  CHECK(use_of(stage, "all_to_all experts (at most)").bytes == 4 * (4 * 128 + 2) * rows * 4);
  CHECK(use_of(stage, "all_to_all experts (at most)").at_most);
  check_use(stage, "all_gather rows of experts", "expert:ep", 4, 2 * 4 * 8);
  std::int64_t dense = 0;
  std::int64_t experts = 0;
  for (const CollectiveUse& use : stage.communication) {
    if (use.name() != "all_reduce gradients") continue;
    (use.group == group_over({Axis::edp}) ? experts : dense) += use.bytes;
  }
  CHECK(dense + experts == stage.flat.length * 4);
  CHECK(experts >= 4 * 2 * 2 * 512 * 128 * 4);  // four layers, two experts of two matrices
}

TEST_CASE("traffic of a sharded optimizer", "[communication]") {
  Config config = small_config();
  config.parallel.bucket_rule = BucketRule::megatron;
  config.parallel.parallel_optimizer.enable = true;
  const Plan plan = plan_of(config, 4);
  REQUIRE(plan.stages.size() == 1);
  const StagePlan& stage = plan.stages[0];
  CHECK(use_of(stage, "reduce_scatter gradients").bytes == stage.flat.length * 4);
  CHECK(use_of(stage, "all_gather parameters").bytes == stage.flat.length * 4);
  CHECK_FALSE(uses(stage, "all_reduce gradients"));
  check_use(stage, "all_gather gradient norm", "world", 1, 4 * 16);
  config.parallel.bucket_rule = BucketRule::size;
  const Plan dealt = plan_of(config, 4);
  REQUIRE(dealt.stages.size() == 1);
  CHECK(uses(dealt.stages[0], "all_reduce gradients"));
  CHECK(use_of(dealt.stages[0], "broadcast parameters").bytes >= 4 * 800'000);
}

TEST_CASE("weights are gathered in comm_fusion's blocks", "[communication]") {
  Config config = small_config();
  config.parallel.parallel_mode = ParallelMode::hybrid_parallel;
  config.parallel.bucket_rule = BucketRule::comm_fusion;
  config.parallel.parallel_optimizer.enable = true;
  config.parallel.parallel_optimizer.threshold = 0;
  const Plan plan = plan_of(config, 2);
  std::int64_t bytes = 0;
  for (const ParamSpec& row : plan.stages[0].parameters) {
    if (!row.name.ends_with(".bias")) bytes += row.shape.numel() * 4;
  }
  const auto gathers = [&] {
    return use_of(plan_of(config, 2).stages[0], "all_gather parameters");
  };
  CHECK(gathers().count == 1);  // auto: 64 MB
  CHECK(gathers().bytes == bytes);
  config.parallel.comm_fusion.allgather.mode = FusionMode("size");
  config.parallel.comm_fusion.allgather.config.size = 1;  // 262,144 elements
  CHECK(gathers().count == 4);
  CHECK(gathers().bytes == bytes);
  config.parallel.comm_fusion.openstate = false;
  CHECK(gathers().count == 2 + 4 * 8 + 1);
}

TEST_CASE("shorter micro-batches send less", "[communication]") {
  Config config = small_config();
  config.parallel.tensor_parallel = 2;
  config.parallel.sequence_parallel = true;
  config.parallel.context_parallel = 2;
  config.parallel.pipeline_stages = 2;
  config.train.micro_batch_size = 2;
  config.parallel.pipeline.variable_seq_lengths = true;
  CHECK(plan_of(config, 8).length_step == 0);  // every sequence has seq_length tokens
  config.data.packing = false;
  const Plan plan = plan_of(config, 8);
  CHECK(plan.length_step == 8);  // two pieces on each of two ranks, over two tensor ranks
  config.parallel.tensor_parallel = 1;
  config.parallel.sequence_parallel = false;
  CHECK(plan_of(config, 4).length_step == 8);
  const std::int64_t rank = 7;
  config.parallel.tensor_parallel = 2;
  config.parallel.sequence_parallel = true;
  const auto whole = estimate_communication(plan.at_length(64), rank, step_numbers(config));
  const auto part = estimate_communication(plan.at_length(16), rank, step_numbers(config));
  REQUIRE(whole.size() == part.size());
  int shorter = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    INFO(whole[i].name());
    const bool passes =
        whole[i].purpose == TrafficPurpose::layers || whole[i].purpose == TrafficPurpose::messages;
    CHECK(part[i].bytes * (passes ? 4 : 1) == whole[i].bytes);
    CHECK(plan.stages.back().communication[i].bytes == whole[i].bytes);
    CHECK(plan.stages.back().communication[i].at_most == passes);
    CHECK(plan.stages.back().communication[i].fewer_calls ==
          (whole[i].purpose == TrafficPurpose::layers));
    if (passes) ++shorter;
  }
  CHECK(shorter > 4);
  // The loss is divided by the weights of labels that are there.
  CHECK(uses(plan.stages.back(), "all_gather loss weights"));
  CHECK(plan.stages[0].memory.activations == plan_of(
                                                 [&] {
                                                   Config padded = config;
                                                   padded.parallel.pipeline.variable_seq_lengths =
                                                       false;
                                                   return padded;
                                                 }(),
                                                 8)
                                                 .stages[0]
                                                 .memory.activations);
}

TEST_CASE("shapes of shorter micro-batches fit into the places of the longest") {
  Config config = small_config();
  config.model.vocab_size = 4096;
  config.train.micro_batch_size = 6;
  config.data.packing = false;
  config.parallel.pipeline.variable_seq_lengths = true;
  const Plan plan = plan_of(config, 1);
  const StagePlan& stage = plan.stages[0];
  for (std::int64_t length = 8; length <= 64; length += 8) {
    const std::vector<Shape> shapes = shapes_at(plan, 0, stage, length);
    REQUIRE(shapes.size() == stage.activations.size());
    for (std::size_t row = 0; row < shapes.size(); ++row) {
      INFO(stage.activations[row].name << " " << length);
      CHECK(shapes[row].numel() <= stage.activations[row].shape.numel());
      if (length == 64) CHECK(shapes[row] == stage.activations[row].shape);
    }
  }
}
