// Context parallelism: layouts in which ranks hold parts of each sequence equal the single rank,
// and mistakes in what they exchange are named.

#include "catch.h"
#include "sample_faults.h"
#include "sample_verify.h"
#include "thorough.h"

using namespace trainctl;

namespace {

using enum GroupOperation;

/// A Llama with enough key and value heads for a2a, and with rope.
const Options llama{"model.family=llama", "model.num_layers=2", "model.num_attention_heads=8",
                    "model.num_query_groups=4", "model.qk_layernorm=true"};
const Options documents{"model.num_layers=2",          "model.num_attention_heads=8",
                        "model.hidden_dropout=0.1",    "model.attention_dropout=0.2",
                        "model.embedding_dropout=0.1", "data.reset_attention_mask=true",
                        "data.reset_position_ids=true"};

GroupFault layers(GroupOperation operation, int rank, int occurrence, const FaultAction& act) {
  return {.rank = rank,
          .group = "layers cp",
          .operation = operation,
          .occurrence = occurrence,
          .act = act};
}

/// A step has, in each layer: the gathers of keys and values, and in backward these once more and
/// the sums of their gradients.
std::vector<FaultRow> gather_faults() {
  return {
      {"keys in the order of other chunks", small_gpt, "cp2+all_gather",
       on_one(layers(all_gather, 1, 3, with_output(swap_halves))), "activation", "layers.1", 1},
      {"another rank's values missing", small_gpt, "cp2+all_gather",
       on_all(2, layers(all_gather, 0, 2, with_output(clear))), "activation", "layers.0"},
      {"the gradient of keys not summed", small_gpt, "cp2+all_gather",
       on_all(2, layers(reduce_scatter, 0, 1, left_out())), "gradient", "layers.3.attention.k"},
      {"the gradient of values summed over the wrong chunks", small_gpt, "cp2+all_gather",
       on_one(layers(reduce_scatter, 0, 4, with_input(swap_halves))), "gradient",
       "layers.2.attention.v"},
      {"weights not summed over the ranks of a sequence", small_gpt, "cp2",
       on_all(2, {.group = "gradients dp-cp",
                  .operation = all_reduce,
                  .occurrence = 3,
                  .act = left_out()}),
       "gradient", "layers."},
  };
}

/// Around a ring of two: a layer's keys and values, and in backward the same, then the gradients.
std::vector<FaultRow> ring_faults() {
  return {
      {"a step with the wrong keys", small_gpt, "cp2",
       on_one(layers(receive, 1, 3, with_output(swap_halves))), "activation", "layers.1", 1},
      {"a block of values that does not come", small_gpt, "cp2",
       on_one(layers(receive, 0, 2, with_output(clear))), "activation", "layers.0", 0},
      {"keys of another layer in backward", small_gpt, "cp4",
       on_one(layers(send, 2, 25, with_input(swap_halves))), "gradient", "layers.3.attention."},
      {"the gradient of keys that does not come home", small_gpt, "cp2",
       on_one(layers(receive, 0, 11, with_output(clear))), "gradient", "layers.3.attention.k"},
      {"the gradient of values from the wrong rows", small_gpt, "cp2",
       on_one(layers(receive, 1, 16, with_output(swap_halves))), "gradient",
       "layers.2.attention.v"},
  };
}

/// The block of one step of a ring comes a step early, and the block before it a step late.
Faults steps_exchanged(const std::vector<int>& sent) {
  std::vector<GroupFault> faults;
  for (const int number : sent) {
    for (GroupFault& fault :
         exchanged(layers(send, 0, number, {}), layers(send, 0, number + 2, {}))) {
      faults.push_back(std::move(fault));
    }
  }
  return {.world = [faults](World& world) { return faulty_world(world, faults); }};
}

/// Around a ring of four rank 1 gets in each layer from rank 0 keys, values, and so on.
std::vector<FaultRow> ring_order_faults() {
  return {
      {"a step that uses the next block's keys", small_gpt, "cp4", steps_exchanged({1}),
       "activation", "layers.0", 1},
      {"a block under the mask of the chunks of the next one", small_gpt, "cp4",
       steps_exchanged({1, 2}), "activation", "layers.0", 1},
      {"what is merged is given up before B has read its log-sum-exp", small_gpt, "cp2",
       of_plan([](Plan& plan) {
         for (StagePlan& stage : plan.stages) {
           for (ActivationSpec& row : stage.activations) {
             if (row.name.ends_with(".attention.logsumexp")) row.until = Moment::forward;
           }
           stage.activation_slots =
               assign_slots(stage.activations, stage.actions, schedule_input(plan, 0));
         }
       }),
       "gradient", ".attention."},
  };
}

std::vector<FaultRow> head_exchange_faults() {
  return {
      {"queries left as they are", small_gpt, "cp2+a2a",
       on_all(2, layers(all_to_all, 0, 5, left_out())), "activation", "layers.1"},
      {"the result of the wrong heads", small_gpt, "cp2+a2a",
       on_one(layers(all_to_all, 1, 4, with_output(swap_halves))), "activation", "layers.0", 1},
      {"the gradient of keys of the wrong heads", small_gpt, "cp2+a2a",
       on_one(layers(all_to_all, 0, 19, with_output(swap_halves))), "gradient",
       "layers.3.attention.k"},
  };
}

std::vector<FaultRow> token_faults() {
  const auto of_plan = [](const std::function<void(Plan&)>& change) {
    return Faults{.plan = [change](int rank, Plan& plan) {
      if (rank == 1) change(plan);
    }};
  };
  return {
      {"another half of each sequence", small_gpt, "cp2",
       of_plan([](Plan& plan) { plan.tokens.zigzag = false; }), "activation", "embedding", 1},
      {"a document that begins a token early",
       documents,
       "cp2",
       {.batches =
            [](int rank, std::int64_t, std::vector<Batch>& batches) {
              if (rank != 0) return;
              for (Batch& batch : batches) {
                batch.document.erase(batch.document.begin());
                batch.document.push_back(batch.document.back());
              }
            }},
       "activation",
       "layers.0",
       0},
  };
}

}  // namespace

TEST_CASE("ranks that hold parts of each sequence equal the single rank") {
  check_equal(documents, {"cp2+all_gather", "cp2+p2p", "cp2+a2a", "cp4+all_gather", "cp4+p2p",
                          "cp4+a2a", "cp4+a2a_p2p", "cp8+p2p", "cp8+a2a_p2p+m2"});
  const std::vector<std::string> layouts{"cp2+all_gather", "cp2+p2p", "cp2+a2a", "cp4+a2a_p2p+m2"};
  check_equal(llama, layouts);
  check_equal(with(llama, {"data.reset_attention_mask=true"}), layouts);
}

TEST_CASE("layers that share attention in different ways equal the single rank") {
  const Options four = with(documents, {"model.num_layers=4"});
  check_equal(four, {"cp2+cp_mixed", "cp4+cp_mixed", "cp4+cp_mixed+recompute",
                     "dp2+cp2+zero3+cp_mixed+m2", "pp2+cp4+cp_mixed+m4", "tp2sp+cp2+cp_mixed"});
  check_equal(with(llama, {"model.num_layers=4"}), {"cp4+cp_mixed", "tp2+cp2+cp_mixed+selective"});
  check_equal(with(four, {"precision.compute=bf16"}), {"cp4+cp_mixed"});
  check_free(four, {"cp4+cp_mixed", "pp2+cp2+cp_mixed+m4+recompute"});
}

TEST_CASE("context parallelism composes with the other axes") {
  check_equal(small_gpt,
              {"tp2+cp2+all_gather", "tp2sp+cp2+p2p", "tp2sp+cp2+a2a", "pp2+cp2+p2p+m4",
               "pp2+cp2+zb-h1+a2a+m4", "pp2+cp2+zb-v+all_gather+m4", "pp2+vp2+cp2+p2p+m4",
               "dp2+cp2+p2p+m2", "dp2+cp2+zero2+all_gather+m2", "dp2+cp2+zero3+p2p+m2",
               "cp4+zero3+p2p", "tp2sp+cp2+recompute+p2p", "cp2+selective+a2a",
               "cp2+selective+all_gather", "cp2+offload+p2p", "cp2+offload2+recompute+a2a",
               "tp2+pp2+cp2+gpipe+p2p+m2", "tp2+cp4+a2a_p2p"});
  if (!thorough()) return;
  check_equal(documents, {"tp2sp+pp2+dp2+cp2+zero1+p2p+m2", "cp8+all_gather+selective"});
}

TEST_CASE("context parallelism in 16 bits equals the single rank") {
  check_equal(with(documents, {"precision.compute=bf16"}),
              {"cp2+all_gather", "cp4+p2p", "cp2+a2a", "tp2sp+cp4+a2a_p2p"});
}

TEST_CASE("free runs over parts of sequences have the planned traffic and loss") {
  check_free(documents,
             {"cp2+all_gather", "cp4+p2p", "cp2+a2a", "cp4+a2a_p2p", "tp2sp+cp2+recompute+p2p",
              "pp2+cp2+selective+a2a+m4", "dp2+cp2+zero1+all_gather+recompute"});
}

TEST_CASE("mistakes in gathered keys are named") { check_faults(gather_faults()); }

TEST_CASE("mistakes around a ring of keys are named") { check_faults(ring_faults()); }

TEST_CASE("steps around a ring in another order are named") { check_faults(ring_order_faults()); }

TEST_CASE("mistakes in an exchange of heads are named") { check_faults(head_exchange_faults()); }

/// In two layers a2a, then a ring.
TEST_CASE("mistakes between layers that share attention in different ways are named") {
  const Options mixed = with(small_gpt, {"model.num_layers=2"});
  check_faults({
      {"keys of the wrong chunks in the second layer", mixed, "cp2+cp_mixed",
       on_one(layers(receive, 1, 1, with_output(swap_halves))), "activation", "layers.1", 1},
      {"the result of the wrong heads in the first layer", mixed, "cp2+cp_mixed",
       on_one(layers(all_to_all, 0, 4, with_output(swap_halves))), "activation", "layers.0", 0},
  });
}

TEST_CASE("tokens of the wrong rank are named") { check_faults(token_faults()); }
