// Rows of experts on their way while a pass of another micro-batch runs: against a single rank, and
// with mistakes.
#include <algorithm>
#include <string>

#include "base/at.h"
#include "catch.h"
#include "sample_faults.h"
#include "sample_run.h"
#include "sample_verify.h"

using namespace trainctl;

namespace {

/// Four layers of four experts, two for each token.
const Options beside_moe{"model.family=llama",       "model.num_layers=4",
                         "model.num_query_groups=4", "model.num_attention_heads=8",
                         "moe.num_experts=4",        "moe.router_topk=2",
                         "moe.ffn_hidden_size=24",   "moe.aux_loss_factor=0.2"};
const Options beside_shared =
    with(beside_moe, {"moe.shared_expert_intermediate_size=40", "moe.shared_expert_gate=true"});

/// Rows on their way lie in one place, whatever their pass is.
void share_place(Plan& plan) {
  for (StagePlan& stage : plan.stages) {
    for (std::size_t row = 0; row < stage.activations.size(); ++row) {
      if (stage.activations[row].storage != Storage::exchanged) continue;
      ActivationSlots& slots = stage.activation_slots;
      std::ranges::fill(at(slots.groups, slots.rows[row].group).slot, 0);
    }
  }
}

std::vector<StepReport> beside_reports(const Options& options) {
  return train_sample({.set_options = options, .ranks = 2, .steps = 3, .world = {}});
}

GroupFault in_rows(int occurrence, const FaultAction& act) {
  return {.group = "layers expert:ep",
          .operation = GroupOperation::all_to_all,
          .occurrence = occurrence,
          .act = act};
}

}  // namespace

TEST_CASE("rows on their way during another micro-batch equal a single rank", "[threads]") {
  check_equal(beside_moe, {"dp2+ep2+m4+ep_overlap", "dp4+ep4+m2+ep_overlap",
                           "dp4+ep2+m2+ep_overlap+zero2", "dp2+ep2+m2+echunks2+ep_overlap",
                           "tp2+dp2+ep2+m2+ep_overlap", "tp2sp+dp2+ep2+m2+ep_overlap+tpoverlap",
                           "tp2sp+dp2+ep2+m2+group_a2a+ep_overlap", "cp2+p2p+ep2+m2+ep_overlap"});
  check_equal(with(small_gpt, {"moe.num_experts=4", "moe.router_topk=2"}),
              {"dp2+ep2+m4+ep_overlap", "tp2sp+pp2+dp2+ep2+m2+ep_overlap+recompute"});
  check_equal(beside_shared, {"dp2+ep2+m4+ep_overlap", "tp2sp+dp2+ep2+m2+ep_overlap"});
}

TEST_CASE("rows during another micro-batch on several stages equal a single rank", "[threads]") {
  check_equal(beside_moe, {"pp2+dp2+ep2+m4+ep_overlap", "pp2+dp2+ep2+vp2+m4+ep_overlap",
                           "pp4+dp2+ep2+m4+ep_overlap", "pp2+dp2+ep2+m4+ep_overlap+delayw",
                           "pp2+dp2+ep2+vp2+m4+ep_overlap+overlapped",
                           "pp2+dp2+ep2+vp2+m4+ep_overlap+single+deallocated"});
}

TEST_CASE("rows during another micro-batch with layers recomputed or on the host", "[threads]") {
  check_equal(beside_moe, {"dp2+ep2+m4+recompute+ep_overlap", "dp2+ep2+m4+selective+ep_overlap",
                           "pp2+dp2+ep2+m4+partial+ep_overlap", "dp2+ep2+m4+offload+ep_overlap",
                           "dp2+ep2+m4+offload2+ep_overlap+recompute",
                           "dp4+ep2+m2+zero3+ep_overlap", "dp4+ep2+m2+each_sum+zero2+ep_overlap"});
}

TEST_CASE("rows during another micro-batch with a limit, one expert for each token, dense layers",
          "[threads]") {
  check_equal(with(beside_moe, {"moe.capacity_factor=1"}), {"dp2+ep2+m4+ep_overlap"});
  check_equal(with(beside_moe, {"moe.router_topk=1", "moe.router_pre_softmax=true"}),
              {"dp2+ep2+m4+ep_overlap"});
  check_equal(with(beside_moe, {"moe.first_dense_layers=1"}), {"dp2+ep2+m4+ep_overlap"});
  check_equal(with(beside_moe, {"moe.layer_frequency=2"}), {"pp2+dp2+ep2+m4+ep_overlap"});
}

TEST_CASE("a free run with rows during another micro-batch sends what the plan says", "[threads]") {
  check_free(beside_moe, {"dp2+ep2+m4+ep_overlap", "pp2+dp2+ep2+vp2+m4+ep_overlap+zero1",
                          "tp2sp+dp2+ep2+m2+group_a2a+ep_overlap"});
  check_free(beside_shared, {"dp2+ep2+m4+recompute+ep_overlap"});
}

TEST_CASE("a step has the same bits with and without overlap with another micro-batch") {
  const Options ranks = with(beside_moe, {"parallel.expert_parallel=2", "train.micro_batch_num=4"});
  const auto usual = beside_reports(ranks);
  const auto beside = beside_reports(with(ranks, {"moe.overlap_expert_parallel_comm=true"}));
  for (std::size_t step = 0; step < usual.size(); ++step) {
    CHECK(beside[step].loss == usual[step].loss);
    CHECK(beside[step].grad_norm == usual[step].grad_norm);
  }
}

/// The first F sends rows, weights and rows back in each of four layers: calls 1 to 12. Then pairs
/// begin: B of the fourth layer sends gradients, F of the next micro-batch rows and weights.
TEST_CASE("mistakes in rows during another micro-batch are named") {
  const char* layout = "dp2+ep2+m4+ep_overlap";
  check_faults({
      {"two passes with rows in one place", beside_moe, layout, of_plan(share_place), "", ""},
      {"gradients that do not leave", beside_moe, layout, on_all(2, in_rows(13, left_out())),
       "gradient", "layers.3."},
      {"rows of the next micro-batch the wrong way round", beside_moe, layout,
       on_all(2, in_rows(14, with_output(swap_halves))), "activation", "layers.0"},
      {"rows that do not come home", beside_moe, layout, on_all(2, in_rows(18, left_out())),
       "activation", "layers.0"},
  });
}
