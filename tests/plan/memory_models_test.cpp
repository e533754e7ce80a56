#include "plan/cost/published_memory.h"

#include "catch.h"
#include "sample.h"

using namespace trainctl;

namespace {

MemoryModelInput input_of(const Plan& plan, const Config& config) {
  return megatron_memory_input(plan, config.model.make_vocab_size_divisible_by, config.recompute,
                               config.parallel.parallel_optimizer);
}

/// h 16, L 4, f 64, 4 heads in 2 groups of 4, V 128, s 8, b 2.
MemoryModelInput tiny() {
  MemoryModelInput in;
  in.layers = 4;
  in.hidden = 16;
  in.ffn = 64;
  in.heads = 4;
  in.groups = 2;
  in.head_size = 4;
  in.vocab = 128;
  in.sequence = 8;
  in.micro_batch = 2;
  return in;
}

constexpr bool head = true;
constexpr bool old = false;

}  // namespace

TEST_CASE("megatron pads the vocabulary to a multiple that grows with tp", "[memory_models]") {
  CHECK(megatron_padded_vocab(50257, 128, 1) == 50304);
  CHECK(megatron_padded_vocab(50257, 128, 8) == 51200);
  CHECK(megatron_padded_vocab(51200, 128, 8) == 51200);
}

TEST_CASE("megatron's weights by hand", "[memory_models]") {
  MemoryModelInput in = tiny();
  // Attention 2 x 256 x 1.5 = 768, MLP 2 x 16 x 64 = 2048, norms 64, embedding 2048, final norm 32.
  CHECK(megatron_memory(in, old).parameters == 4 * (768 + 2048 + 64) + 32 + 2048);
  CHECK(megatron_memory(in, old).weights == 18.0 * 13600);
  CHECK(megatron_memory(in, head).parameters == 13600);
  CHECK(megatron_memory(in, head).model == 13600);
  in.untied = true;
  CHECK(megatron_memory(in, old).parameters == 13600 + 2048);
  in.pp = 2;  // the second table is on the last stage
  CHECK(megatron_memory(in, old).parameters == (4 * 2880 + 32) / 2 + 2048);
  in.tp = 2;
  CHECK(megatron_memory(in, old).parameters == ((4 * 2880 + 32) / 2 + 2048) / 2);
  CHECK(megatron_memory(in, head).parameters == (2816 * 2 + 2048) / 2 + 2 * 64 + 32 / 2);
  in.distributed_optimizer = true;
  in.dp = 4;
  CHECK(megatron_memory(in, old).weights == 9.0 * megatron_memory(in, old).parameters);
}

TEST_CASE("megatron's gated MLP, RMS norms and experts", "[memory_models]") {
  MemoryModelInput in = tiny();
  in.gated = in.rms_norm = true;
  CHECK(megatron_memory(in, head).parameters == 4 * (768 + 3072 + 32) + 16 + 2048);
  CHECK(megatron_memory(in, old).parameters == 4 * (768 + 3072 + 64) + 32 + 2048);
  in.experts = 8;
  in.expert_ffn = 32;
  const double experts = 4 * 8 * 2 * 16 * 32 * 1.5;  // 196,608
  CHECK(megatron_memory(in, head).experts == experts);
  const double router = 16 * 8;
  CHECK(megatron_memory(in, head).parameters == 4 * (768 + 32 + router) + 16 + 2048 + experts);
  CHECK(megatron_memory(in, head).model == megatron_memory(in, head).parameters);
  CHECK(megatron_memory(in, old).model == 4 * (768 + 64) + 32 + 2048 + experts);
  in.tp = 2;
  in.etp = 4;
  in.ep = 2;
  in.edp = 3;
  in.dp = 12;
  in.distributed_optimizer = true;
  CHECK(megatron_memory(in, old).experts == experts / 2);
  CHECK(megatron_memory(in, head).experts == experts / 8);
  const double dense = (4 * 768 + 2048) / 2 + 4 * (32 + router) + 16;
  CHECK(megatron_memory(in, head).weights == Approx(dense * 7 + experts / 8 * 10));
}

TEST_CASE("a small Llama as Megatron-LM itself counts it", "[memory_models]") {
  MemoryModelInput in;
  in.layers = 1;
  in.hidden = 64;
  in.ffn = in.expert_ffn = 256;
  in.heads = in.groups = 4;
  in.head_size = 16;
  in.vocab = 128;
  in.untied = in.gated = in.rms_norm = true;
  CHECK(megatron_memory(in, head).parameters == 82'112);
  CHECK(megatron_memory(in, head).weights == 1'478'016);
  in.experts = 4;
  CHECK(megatron_memory(in, head).parameters == 229'824);
  in.linear_bias = true;  // of the router, one for each expert
  CHECK(megatron_memory(in, head).parameters == 229'828);
  in.pp = 2;  // the final norm is spread over the stages as the layers are
  in.layers = 2;
  CHECK(megatron_memory(in, head).parameters == 229'828 - 8192 - 32);
}

TEST_CASE("megatron's activations by hand", "[memory_models]") {
  MemoryModelInput in = tiny();
  in.tp = 2;
  in.sequence_parallel = true;
  in.selective_recompute = true;
  const double sbh = 8 * 2 * 16;
  // Layers sbh (18 + 16), inputs 8 sb + sbh, output 4 sbh (1 + 8), all over tp.
  const double sliced = (4 * sbh * 34 + 8 * 16 + sbh + 36 * sbh) / 2;
  for (const bool version : {old, head}) {
    CHECK(megatron_memory(in, version).activations == Approx(sliced));
  }
  in.selective_recompute = false;
  const double whole = (4 * sbh * 22 + 8 * 16 + sbh + 2 * (16 * 128 / 2.0 + sbh)) * 1.05;
  CHECK(megatron_memory(in, head).activations == Approx(whole));
  in.selective_recompute = true;
  in.pp = 4;
  in.microbatches = 2;  // of the four that would fill the stages
  const double stages = (4 * sbh * 34 + 4 * (8 * 16 + sbh)) / 2;
  CHECK(megatron_memory(in, head).activations == Approx(stages * 0.5));
  in.microbatches = 8;
  CHECK(megatron_memory(in, head).activations == Approx(stages));
  in.chunks = 2;
  CHECK(megatron_memory(in, head).activations == Approx(stages * (1 + 3.0 / 8)));
  CHECK(megatron_memory(in, head).total() ==
        megatron_memory(in, head).weights + megatron_memory(in, head).activations);
}

TEST_CASE("a configuration's arguments for megatron's estimate", "[memory_models]") {
  Config config = llama3_8b();
  config.train.global_batch_size = 16;
  config.parallel.tensor_parallel = 2;
  config.parallel.sequence_parallel = true;
  config.parallel.pipeline_stages = 2;
  config.parallel.virtual_pipeline_stages = 2;
  config.parallel.pipeline.overlap_p2p_comm = true;
  config.parallel.parallel_optimizer.enable = true;
  const Plan plan = plan_of(config, 16);
  const MemoryModelInput in = input_of(plan, config);
  CHECK(in.groups == 8);
  CHECK(in.vocab == 128256);  // 501 x 256
  CHECK(in.untied);
  CHECK(in.gated);
  CHECK(in.dp == 4);
  CHECK(in.pp == 2);
  CHECK(in.chunks == 2);
  CHECK(in.distributed_optimizer);
  CHECK(in.sequence_parallel);
  CHECK(in.selective_recompute);
  config.recompute.enable = true;
  CHECK_FALSE(input_of(plan, config).selective_recompute);
  CHECK(megatron_memory(input_of(plan_of(llama3_8b()), llama3_8b()), head).model == 8'030'261'248);
}

TEST_CASE("activations by Korthikanti et al., table 2", "[memory_models]") {
  MemoryModelInput in{.layers = 4, .hidden = 16, .heads = 4, .sequence = 8, .micro_batch = 2};
  const double sbh = 256;  // 5 a s / h = 10
  CHECK(korthikanti_layer(in, "none") == sbh * 44);
  in.tp = 2;
  CHECK(korthikanti_layer(in, "tensor") == sbh * (10 + 12 + 5));
  CHECK(korthikanti_layer(in, "tensor_sequence") == sbh * 22);
  CHECK(korthikanti_layer(in, "tensor_selective") == sbh * 22);
  CHECK(korthikanti_layer(in, "tensor_sequence_selective") == sbh * 17);
  CHECK(korthikanti_layer(in, "full") == sbh * 2);
  in.tp = 1;  // then the tensor rows are those without parallelism
  CHECK(korthikanti_layer(in, "tensor") == korthikanti_layer(in, "none"));
  CHECK(korthikanti_layer(in, "tensor_sequence") == sbh * 44);
}

TEST_CASE("the first stage by Korthikanti et al., equation 5", "[memory_models]") {
  MemoryModelInput in{.layers = 4, .hidden = 16, .heads = 4, .sequence = 8, .micro_batch = 2};
  in.vocab = 128;
  in.tp = 2;
  const double sbh = 256;
  CHECK(korthikanti_total(in, "full") == 8 * sbh + sbh / 2 + 2 * sbh * 9);
  in.pp = 4;
  CHECK(korthikanti_total(in, "full") == 8 * sbh + 2 * sbh);
  in.chunks = 3;
  CHECK(korthikanti_total(in, "full") == Approx(8 * sbh * 1.25 + 2 * sbh));
}

TEST_CASE("which technique a plan is nearest to", "[memory_models]") {
  Config config = small_config();
  Plan plan;
  CHECK(technique_of(plan, config.recompute) == Technique("tensor_selective"));
  plan.sequence_parallel = true;
  CHECK(technique_of(plan, config.recompute) == Technique("tensor_sequence_selective"));
  config.recompute.enable = true;
  CHECK(technique_of(plan, config.recompute) == Technique("full"));
}
