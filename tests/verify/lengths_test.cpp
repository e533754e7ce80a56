// Micro-batches as long as their longest document, against a single rank that pads them all; also
// mistakes in their lengths.
#include "catch.h"
#include "sample_verify.h"
#include "thorough.h"

#include <algorithm>

using namespace trainctl;

namespace {

const Options apart{"data.packing=false"};
/// By scores of which those of padding are none.
const Options clipped{"optimizer.qk_clip_threshold=0.01"};

/// Cuts more off the end than no label needs.
void cut_labels(Batch& batch) {
  while (batch.length > 2) {
    const double before = batch.weight_sum;
    const auto last = static_cast<std::size_t>(batch.length - 1);
    const auto row = static_cast<std::size_t>(batch.length);
    for (std::size_t i = last; i < batch.loss_weight.size(); i += row) batch.loss_weight[i] = 0;
    for (std::int64_t& real : batch.real) real = std::min(real, batch.length - 1);
    shorten(batch, 1);
    batch.weight_sum = before;
    if (batch.length % 2 == 0) return;
  }
}

}  // namespace

TEST_CASE("micro-batches of different lengths equal padded ones") {
  int number = 0;
  int turn = 0;
  for (const Options& model : {small_gpt, small_llama}) {
    for (const char* layout :
         {"dp2+m4+variable", "pp2+m4+variable", "pp2+vp2+m4+variable+overlapped",
          "pp2+gpipe+m4+variable+single+send_bf16", "pp2+zb-h1+m4+variable+deallocated",
          "pp2+zb-v+m4+variable", "tp2sp+pp2+dp2+m2+variable", "cp2+m4+variable+p2p",
          "cp2+m4+variable+all_gather", "cp2+m4+variable+a2a", "tp2+m4+variable+sliced",
          "pp2+m4+variable+offload2", "pp2+m4+variable+partial", "pp2+m4+variable+deferred",
          "tp2sp+m4+variable+tpoverlap", "dp2+m4+variable+zero3"}) {
      if (number++ % stride(1) != 0) continue;
      if (!thorough() && !watched() && number % 2 != turn) continue;  // the models take turns
      const Options options = with(model, turn == 0 ? with(apart, clipped) : apart);
      const LayoutVerdict verdict = compare_sample(options, layout);
      INFO(model[0] << " " << layout << ": " << told(verdict));
      CHECK(verdict.equal);
      const LayoutVerdict free = run_sample_freely(options, layout);
      INFO(told(free));
      CHECK(free.equal);
    }
    ++turn;
  }
}

/// Replicas of a group of experts have other lengths: rows come from longer ones.
TEST_CASE("with experts, micro-batches of different lengths equal padded ones") {
  const Options experts =
      with(small_llama, {"moe.num_experts=4", "moe.router_topk=2", "moe.ffn_hidden_size=24",
                         "moe.aux_loss_factor=0.2", "moe.z_loss_factor=0.1",
                         "moe.capacity_factor=1", "data.packing=false"});
  const Options groups = with(experts, {"moe.expert_group_size=32", "train.micro_batch_size=2"});
  int number = 0;
  for (const auto& [options, layout] : std::initializer_list<std::pair<Options, const char*>>{
           {experts, "dp2+ep2+m4+variable"},
           {groups, "dp2+ep2+variable"},
           {with(experts, {"moe.expert_group_size=8"}), "tp2sp+dp2+ep2+m2+variable"},
           {experts, "tp2sp+dp2+wep4+m2+variable"},
           {experts, "tp2+dp2+ep2+m2+variable+group_a2a+echunks2"},
           {experts, "cp2+ep2+m4+variable+p2p"},
           {experts, "pp2+dp2+ep2+m2+variable"},
           {experts, "dp2+ep2+m4+variable+ep_overlap"},
           {experts, "dp2+ep2+m4+variable+recompute"}}) {
    if (number++ % stride(1) != 0) continue;
    const LayoutVerdict verdict = compare_sample(options, layout);
    INFO(layout << ": " << told(verdict));
    CHECK(verdict.equal);
    if (!thorough() && number % 2 == 0) continue;
    const LayoutVerdict free = run_sample_freely(options, layout);
    INFO(told(free));
    CHECK(free.equal);
  }
}

TEST_CASE("padding that one rank routes is found") {
  const Options experts =
      with(small_llama, {"moe.num_experts=4", "moe.router_topk=2", "moe.ffn_hidden_size=24",
                         "moe.aux_loss_factor=0.2", "data.packing=false"});
  const Faults all_real{.batches = [](int rank, std::int64_t, std::vector<Batch>& batches) {
    if (rank == 1) std::ranges::fill(batches[0].real, batches[0].length);
  }};
  check_fault({.name = "padding is routed",
               .options = experts,
               .layout = "dp2+ep2+m4",
               .faults = all_real,
               .what = "activation",
               .tensor = "layers.0"});
}

TEST_CASE("mistakes in lengths are found") {
  const Options options = with(small_gpt, apart);
  // Every rank cuts tokens that count.
  const Faults short_everywhere{.batches = [](int, std::int64_t, std::vector<Batch>& batches) {
    for (Batch& batch : batches) cut_labels(batch);
  }};
  check_fault({.name = "too short",
               .options = options,
               .layout = "dp2+m4+variable",
               .faults = short_everywhere,
               .what = "scalar",
               .tensor = "token_factor"});
  // One rank of a pipeline has another length than its neighbour.
  const Faults short_on_one{.batches = [](int rank, std::int64_t, std::vector<Batch>& batches) {
    if (rank == 1) cut_labels(batches[1]);
  }};
  const LayoutVerdict other = compare_sample(options, "pp2+m4+variable", short_on_one, 3);
  CHECK_FALSE(other.equal);
  CHECK_THAT(other.failure, Catch::Contains("bytes where"));
  // All ranks pad as if lengths did not vary: more is sent than the plan has.
  check_fault({.name = "padded",
               .options = options,
               .layout = "pp2+m4+variable",
               .faults = of_plan([](Plan& plan) { plan.length_step = 0; }),
               .what = "bytes of",
               .tensor = "messages pp"},
              run_sample_freely);
}
