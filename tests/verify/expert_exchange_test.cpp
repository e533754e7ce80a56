// The exchange of rows between ranks with different experts, in chunks that overlap products:
// against a single rank, against one piece, and with mistakes.
#include <utility>

#include "catch.h"
#include "sample_faults.h"
#include "sample_run.h"
#include "sample_verify.h"

using namespace trainctl;

namespace {

using enum GroupOperation;

/// Four layers of four experts, two for each token.
const Options routed_moe{"model.family=llama",       "model.num_layers=4",
                         "model.num_query_groups=4", "model.num_attention_heads=8",
                         "moe.num_experts=4",        "moe.router_topk=2",
                         "moe.ffn_hidden_size=24",   "moe.aux_loss_factor=0.2"};
const Options shared_moe =
    with(routed_moe, {"moe.shared_expert_intermediate_size=40", "moe.shared_expert_gate=true"});

std::vector<StepReport> exchange_reports(const Options& options) {
  return train_sample({.set_options = options, .ranks = 4, .steps = 4, .world = {}});
}

GroupFault in_exchange(int occurrence, const FaultAction& act) {
  return {
      .group = "layers expert:ep", .operation = all_to_all, .occurrence = occurrence, .act = act};
}

/// The first two rows of 32 features.
void swap_two(const Tensor& rows) {
  for (int i = 0; i < 32; ++i) std::swap(rows.as<float>()[i], rows.as<float>()[32 + i]);
}

}  // namespace

TEST_CASE("rows that go to experts in chunks equal a single rank", "[threads]") {
  check_equal(routed_moe, {"dp2+ep2+echunks2", "dp4+ep4+echunks3", "dp4+ep2+m2+echunks2+zero2",
                           "tp2+dp2+ep2+echunks2", "tp2sp+dp2+ep2+echunks3", "tp2sp+wep2+echunks2",
                           "tp2sp+dp2+wep4+echunks2+tpoverlap", "pp2+dp2+ep2+m4+zb-h1+echunks2",
                           "cp2+p2p+ep2+echunks2"});
  check_equal(routed_moe, {"dp2+ep2+recompute+echunks2", "dp2+ep2+selective+echunks2",
                           "dp2+ep2+offload+echunks2"});
  check_equal(shared_moe, {"dp2+ep2+echunks2", "tp2sp+dp2+ep2+echunks2+recompute"});
}

TEST_CASE("chunks of rows with a limited capacity, and more of them than an expert has rows") {
  check_equal(with(routed_moe, {"moe.capacity_factor=1"}),
              {"dp2+ep2+echunks2", "dp4+ep4+echunks9"});
  check_equal(with(routed_moe, {"moe.num_experts=16", "moe.router_topk=1"}), {"dp4+ep4+echunks16"});
}

TEST_CASE("shares of the tokens that parts of experts gather equal a single rank", "[threads]") {
  check_equal(routed_moe,
              {"tp2sp+dp2+ep2+group_a2a", "tp2+dp2+ep2+group_a2a", "tp4sp+dp2+ep2+m2+group_a2a",
               "tp2sp+dp2+ep2+group_a2a+echunks2", "tp2+dp2+ep2+group_a2a+echunks3",
               "tp2sp+dp2+cp2+p2p+ep4+group_a2a", "tp2sp+pp2+dp2+ep2+m2+zb-h1+group_a2a",
               "tp2+dp4+ep2+zero3+group_a2a", "tp2sp+dp2+ep2+recompute+group_a2a+echunks2"});
  check_equal(with(routed_moe, {"moe.capacity_factor=1"}), {"tp2+dp2+ep2+group_a2a+echunks2"});
  check_equal(shared_moe, {"tp2sp+dp2+ep2+group_a2a", "tp2+dp2+ep2+group_a2a",
                           "tp2+dp2+ep2+sliced+group_a2a+echunks2"});
  check_free(shared_moe, {"tp2sp+dp2+ep2+group_a2a+echunks2", "tp2+dp2+ep2+group_a2a"});
}

TEST_CASE("experts that are cut otherwise than dense layers equal a single rank",
          "[threads-every]") {
  check_equal(routed_moe, {"tp4sp+etp2", "tp4+etp2", "tp4sp+ep2+etp2", "tp2+dp2+etp1+ep2",
                           "tp2+etp1", "dp2+etp2", "dp4+ep2+etp2+echunks2", "tp2sp+dp2+etp4",
                           "tp2+dp2+etp4+echunks2", "tp2+cp2+p2p+etp1+ep2",
                           "tp4sp+dp2+ep2+etp2+zero1+recompute", "pp2+dp2+etp2+m4+selective"});
  check_equal(shared_moe, {"tp4sp+ep2+etp2", "tp2+dp2+etp1+ep4", "dp2+etp2"});
  check_free(routed_moe, {"tp4sp+ep2+etp2+echunks2", "tp4+ep2+etp2", "dp4+ep2+etp2+zero3",
                          "pp2+dp4+zb-h1+m2+zero1+etp2"});
}

TEST_CASE("shares of the tokens in every order of the ranks", "[threads-every]") {
  for (const char* order : {"cp-tp-ep-dp-pp", "tp-ep-cp-dp-pp", "ep-tp-cp-dp-pp"}) {
    INFO(order);
    const Options ordered = with(routed_moe, {std::string("parallel.rank_order=") + order});
    check_equal(ordered, {"tp2sp+cp2+p2p+wep4", "tp2sp+dp2+ep2+group_a2a", "tp2+cp2+a2a+ep2",
                          "tp2sp+cp2+p2p+ep2+echunks2"});
  }
}

TEST_CASE("chunks of rows send what the plan says") {
  check_free(routed_moe, {"dp2+ep2+echunks2", "tp2sp+dp2+ep2+echunks3+recompute"});
  check_free(shared_moe, {"dp4+ep2+echunks2"});
}

TEST_CASE("chunks of rows change the order of sums over tokens, and nothing before") {
  const Options ranks = with(routed_moe, {"parallel.expert_parallel=4"});
  const auto usual = exchange_reports(ranks);
  const auto chunks = exchange_reports(
      with(ranks, {"moe.comp_comm_parallel=true", "moe.comp_comm_parallel_degree=3"}));
  CHECK(chunks.front().loss == usual.front().loss);
  for (std::size_t step = 0; step < usual.size(); ++step) {
    CHECK(chunks[step].loss == Approx(usual[step].loss).epsilon(1e-5));
    CHECK(chunks[step].grad_norm == Approx(usual[step].grad_norm).epsilon(1e-4));
  }
}

/// The rows that a layer gathers in F and B: rows, weights and gradients, and sums of the experts'
/// results, of the gradient of their input and of that of the weights.
TEST_CASE("mistakes between parts of experts are named") {
  const auto in_parts = [](GroupOperation operation, int occurrence, const FaultAction& act) {
    return GroupFault{
        .group = "layers expert:tp", .operation = operation, .occurrence = occurrence, .act = act};
  };
  const char* layout = "tp2sp+dp2+ep2+group_a2a";
  check_faults({
      {"rows of two parts the wrong way round", routed_moe, layout,
       on_all(4, in_parts(all_gather, 5, with_output(swap_halves))), "activation", "layers.1"},
      {"what one part made left out", routed_moe, layout,
       on_one({1, "layers expert:tp", reduce_scatter, 2, with_input(clear)}), "activation",
       "layers.1"},
      {"gradients of weights that are not summed", routed_moe, layout,
       on_all(4, in_parts(reduce_scatter, 6, left_out())), "gradient", "layers.3."},
      {"another slice of the tokens", routed_moe, "tp2+dp2+ep2+group_a2a",
       on_all(4, {.group = "layers tp",
                  .operation = all_reduce,
                  .occurrence = 3,
                  .act = with_output(swap_halves)}),
       "activation", "layers.0"},
  });
}

/// With two chunks, a layer sends rows, weights, rows, weights there in F and two times rows back;
/// in B it sends rows in two chunks there, and rows and weights of each back: six calls in each
/// pass.
TEST_CASE("mistakes in chunks of rows are named") {
  check_faults({
      {"two rows permuted in the second chunk", routed_moe, "dp2+ep2+echunks2",
       on_all(2, in_exchange(9, with_output(swap_two))), "activation", "layers.1"},
      {"a chunk on its way back left out", routed_moe, "dp2+ep2+echunks2",
       on_all(2, in_exchange(11, left_out())), "activation", "layers.1"},
      {"a chunk that has not come", routed_moe, "dp2+ep2+echunks2",
       on_all(2, in_exchange(7, left_out())), "activation", "layers.1"},
      {"a chunk of gradients left out", routed_moe, "dp2+ep2+echunks2",
       on_all(2, in_exchange(25, left_out())), "gradient", "layers.3."},
  });
}
