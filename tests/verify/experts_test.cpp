// Layouts of models with experts, and mistakes in how tokens get to experts and back.
#include <utility>

#include "catch.h"
#include "sample_faults.h"
#include "sample_verify.h"
#include "temp_folder.h"
#include "thorough.h"
#include "verify/layouts.h"

using namespace trainctl;

namespace {

/// Four layers of four experts, two for each token: a Llama with every loss of a router.
const Options small_moe{"model.family=llama",       "model.num_layers=4",
                        "model.num_query_groups=2", "model.num_attention_heads=8",
                        "model.hidden_dropout=0.1", "moe.num_experts=4",
                        "moe.router_topk=2",        "moe.ffn_hidden_size=24",
                        "moe.aux_loss_factor=0.2",  "moe.z_loss_factor=0.1"};

/// That model with the router of DeepSeek-V3 (sigmoid scores with a bias, groups of experts, shared
/// ones) and the gate of Qwen2-MoE.
const Options small_shared =
    with(small_moe, {"moe.num_experts=8", "moe.router_topk=4", "moe.router_score_function=sigmoid",
                     "moe.router_topk_scaling_factor=1.5", "moe.router_num_groups=4",
                     "moe.router_group_topk=2", "moe.router_enable_expert_bias=true",
                     "moe.router_bias_update_rate=0.05", "moe.shared_expert_intermediate_size=40",
                     "moe.shared_expert_gate=true"});

/// A GPT-2 with experts in two of four layers, which have biases.
const Options some_layers{"model.num_layers=4",       "model.num_attention_heads=8",
                          "moe.num_experts=6",        "moe.router_topk=1",
                          "moe.first_dense_layers=1", "moe.layer_frequency=2",
                          "moe.ffn_hidden_size=40",   "train.global_batch_size=12"};

/// The first two rows of 32 features.
void swap_rows(const Tensor& rows) {
  for (int i = 0; i < 32; ++i) std::swap(rows.as<float>()[i], rows.as<float>()[32 + i]);
}

GroupFault exchange(GroupOperation operation, int occurrence, const FaultAction& act) {
  return {
      .group = "layers expert:ep", .operation = operation, .occurrence = occurrence, .act = act};
}

}  // namespace

TEST_CASE("experts on one rank of each kind") {
  check_equal(small_moe, {"dp1+m4", "tp2", "tp2sp", "dp4", "pp2+m4", "pp2+zb-h1+m4", "tp2sp+dp2"});
}

TEST_CASE("experts over several ranks") {
  check_equal(small_moe, {"dp2+ep2", "dp4+ep2+m2", "dp4+ep4", "tp2+dp2+ep2", "tp2sp+pp2+dp2+ep2"});
}

TEST_CASE("experts with the optimizer divided") {
  check_equal(small_moe, {"dp4+ep2+zero1", "dp4+ep2+zero2", "dp4+ep2+zero3", "tp2sp+dp2+zero3",
                          "dp4+ep2+megatron+zero1", "dp4+ep2+each_sum", "dp4+ep2+fusion"});
}

TEST_CASE("whole experts with tensor parallelism give the numbers of one rank") {
  check_equal(small_moe, {"tp2sp+wep1", "tp2sp+wep2", "tp4sp+wep2", "tp2sp+dp2+wep4",
                          "tp2sp+dp2+wep2+zero1", "tp2sp+dp2+zero3", "tp2sp+wep2+recompute",
                          "tp2sp+wep2+kept_sums", "tp2sp+pp2+wep2+m4"});
  check_equal(with(small_moe, {"model.num_query_groups=4"}),
              {"tp2sp+cp2+a2a+wep4", "tp2sp+cp2+p2p+wep2", "tp2sp+wep2+offload"});
  check_equal(small_shared, {"tp2sp+wep2", "tp2sp+dp2+wep4+recompute", "tp2sp+wep2+kept_sums",
                             "tp2sp+cp2+p2p+wep4"});
  check_free(small_moe, {"tp2sp+wep2", "tp2sp+dp2+wep4+zero3"});
  check_free(small_shared, {"tp2sp+dp2+wep2", "tp2sp+wep2+selective"});
}

TEST_CASE("experts recomputed, and kept on the host") {
  check_equal(small_moe, {"dp2+ep2+recompute", "tp2sp+selective", "tp2sp+kept_sums", "tp2+sliced",
                          "dp2+ep2+offload", "pp2+partial+m4"});
}

TEST_CASE("experts of a limited capacity") {
  const std::vector<std::string> layouts{"tp2sp+dp2+ep2", "dp4+ep4", "pp2+m4"};
  check_equal(with(small_moe, {"moe.capacity_factor=1.25"}), layouts);
  check_equal(with(small_moe, {"moe.capacity_factor=1", "moe.overflow=probability",
                               "moe.router_pre_softmax=true", "moe.expert_group_size=8"}),
              layouts);
}

/// MindFormers' TopkRouter with the groups of a micro-batch, which is several sequences.
TEST_CASE("experts chosen in rounds and counted over micro-batches") {
  const Options rounds =
      with(small_moe, {"moe.router_choice=rounds", "moe.router_weights=kept",
                       "moe.router_load_balancing_type=round_aux_loss", "moe.capacity_factor=1.1",
                       "moe.expert_group=micro_batch", "train.micro_batch_size=2"});
  check_equal(rounds, {"dp1+m4", "tp2", "tp2sp", "dp2+ep2", "dp4+ep4", "pp2+m4", "tp2sp+dp2+ep2",
                       "cp2+p2p+ep2", "dp2+ep2+recompute", "dp2+ep2+zero1", "tp2sp+wep2",
                       "tp2sp+dp2+ep2+group_a2a+echunks2"});
  check_free(rounds, {"dp2+ep2", "tp2sp+dp2+ep2"});
}

TEST_CASE("capacities and losses over different groups, and what would be chosen freely") {
  check_equal(with(small_shared, {"moe.balance_counts=free", "moe.capacity_factor=1",
                                  "moe.overflow=token", "moe.router_weights=kept",
                                  "moe.capacity_group_size=32", "train.micro_batch_size=2"}),
              {"dp2+ep2", "tp2sp+dp2+ep2", "cp2+p2p+ep2", "pp2+m4"});
}

TEST_CASE("experts in some layers") {
  check_equal(some_layers, {"tp2sp+dp2+ep2", "dp2+ep2+m2", "pp2+vp2+m4", "dp3+ep3"});
}

/// With 16 experts for 8 tokens of a sequence some get none.
TEST_CASE("biases of experts in every way that experts are divided") {
  const Options biased = with(some_layers, {"moe.router_topk=2", "model.num_query_groups=8"});
  check_equal(biased, {"dp1+m4", "tp2", "tp2sp", "dp2+ep2+m2", "tp2sp+dp2+ep2", "tp2+wep2",
                       "tp2sp+wep2", "dp2+etp2", "tp4sp+etp2", "dp4+ep2+etp2+echunks2+zero1",
                       "cp2+p2p+ep2", "tp2+cp2+a2a+etp1+ep2", "tp2sp+dp2+ep2+group_a2a+echunks2",
                       "dp4+ep2+zero3", "pp2+zb-h1+m4", "pp2+dp2+ep2+m2+recompute"});
  check_equal(with(biased, {"moe.capacity_factor=1", "moe.overflow=probability"}),
              {"tp2sp+dp2+ep2", "tp2+dp2+etp1+ep2", "cp2+all_gather+ep2"});
  check_equal(with(biased, {"moe.num_experts=48", "model.add_qkv_bias=false"}),
              {"dp4+ep4", "tp2sp+wep2", "dp2+etp2"});
  check_free(biased, {"tp2sp+dp2+ep2", "dp4+ep2+zero3", "tp4+etp2"});
}

TEST_CASE("biases of parts of experts that are summed as those of dense layers are named") {
  const auto tp = static_cast<std::size_t>(Axis::tp);
  check_fault({"summed over tp", some_layers, "tp2sp+dp2", of_plan([tp](Plan& plan) {
                 for (ParamSpec& row : plan.stages[0].parameters) {
                   if (row.name.ends_with(".experts.down.bias")) row.gradient_sum[tp] = true;
                 }
               }),
               "gradient", ".moe.experts.down.bias"});
}

TEST_CASE("shared experts, and a router with sigmoid scores, groups and a bias") {
  check_equal(small_shared, {"dp1+m4", "tp2", "tp2sp", "dp4+ep2+m2", "tp2sp+pp2+dp2+ep2",
                             "pp2+zb-h1+m4", "dp4+ep2+zero1", "dp4+ep2+zero3"});
  check_equal(small_shared, {"dp2+ep2+recompute", "tp2sp+selective", "tp2sp+kept_sums",
                             "tp2+sliced", "dp2+offload2"});
  check_equal(
      with(some_layers, {"moe.shared_expert_intermediate_size=24", "model.add_bias_linear=false"}),
      {"tp2sp", "tp2sp+dp2+ep2"});
  check_free(small_shared, {"dp2+ep2", "dp4+ep2+zero3", "tp2sp+pp2+m4"});
}

TEST_CASE("softmax scores with groups of experts") {
  for (const char* pre : {"true", "false"}) {
    check_equal(
        with(small_moe, {"moe.num_experts=8", "moe.router_topk=4", "moe.router_num_groups=4",
                         "moe.router_group_topk=2", std::string("moe.router_pre_softmax=") + pre}),
        {"tp2sp+dp2+ep2", "cp2+p2p+ep2"});
  }
}

TEST_CASE("biases and shared experts go through a checkpoint into another layout") {
  const Verification verification(read_sample(small_shared).config, 4);
  const std::pair<const char*, const char*> rows[] = {{"dp4+ep2+zero3", "tp2sp"},
                                                      {"tp2sp+dp2+ep2", "dp2"},
                                                      {"tp2+dp2+etp4+zero1", "tp2sp+wep2"},
                                                      {"dp4+ep2+etp2", "tp2+dp2+etp1+ep4"}};
  for (const auto& [first, second] : rows) {
    const TempFolder temp;
    const LayoutChoice from = parse_layouts(first, 0).front();
    const LayoutChoice to = parse_layouts(second, 0).front();
    const Config before = with_layout(read_sample(small_shared).config, from);
    const Config after = with_layout(read_sample(small_shared).config, to);
    const LayoutVerdict verdict = verification.compare_through_checkpoint(
        {before, plan_of(before, from.ranks()), 20}, {after, plan_of(after, to.ranks()), 20},
        temp.path());
    INFO(first << "->" << second << ": " << told(verdict));
    CHECK(verdict.equal);
  }
}

TEST_CASE("mistakes in shared experts and in biases are caught and named") {
  const auto tp = static_cast<std::size_t>(Axis::tp);
  const auto leave_in_parts = [tp](const char* name) {
    return of_plan([tp, name](Plan& plan) {
      for (ParamSpec& row : plan.stages[0].parameters) {
        if (row.name.ends_with(name)) row.gradient_sum[tp] = false;
      }
    });
  };
  const std::vector<FaultRow> rows{
      {"biases that move by another rate", small_shared, "dp2+ep2",
       of_plan([](Plan& plan) { plan.model.bias_rate *= 2; }), "", ""},
      {"another scaling of the weights", small_shared, "dp2+ep2",
       of_plan([](Plan& plan) { plan.model.topk_scaling = 1; }), "activation", "layers.0"},
      {"experts of any group", small_shared, "dp2+ep2",
       of_plan([](Plan& plan) { plan.model.group_topk = plan.model.expert_groups = 1; }),
       "activation", "layers.0"},
      {"the gradient of the gate not summed over tp", small_shared, "tp2sp",
       leave_in_parts(".moe.shared_gate.weight"), "gradient", ".moe.shared_gate"},
      {"shared experts without their gate", small_shared, "dp2+ep2",
       of_plan([](Plan& plan) { plan.model.shared_gate = false; }), "activation", "layers.0"},
  };
  check_faults(rows);
}

TEST_CASE("experts of tokens that context-parallel ranks divide") {
  const std::vector<std::string> layouts{
      "cp2+p2p",           "cp4+a2a_p2p+ep2",   "cp2+all_gather+ep2",
      "tp2sp+cp2+a2a+ep2", "dp2+cp2+ep4+zero2", "pp2+cp2+p2p+m4"};
  check_equal(with(small_moe, {"model.num_query_groups=4"}), layouts);
  check_equal(with(small_moe, {"model.num_query_groups=4", "moe.capacity_factor=1",
                               "moe.overflow=probability", "moe.expert_group_size=8"}),
              layouts);
  check_equal(with(small_moe, {"model.num_query_groups=4", "moe.capacity_factor=1.25"}),
              {"cp2+p2p+ep2", "tp2sp+cp2+a2a+recompute"});
}

TEST_CASE("experts run freely") {
  check_free(small_moe, {"dp2+ep2", "tp2sp+dp2+ep2", "dp4+ep2+zero3", "pp2+recompute+m4"});
  check_free(some_layers, {"pp2+dp2+ep2"});
  check_free(with(small_moe, {"model.num_query_groups=4"}), {"cp2+p2p+ep2", "cp4+a2a_p2p"});
}

/// Tokens go where the single rank's go, so that they differ by rounding alone.
TEST_CASE("experts in 16 bits") {
  check_equal(with(small_moe, in_bf16),
              {"dp1+m4", "tp2", "tp2sp+dp2+ep2", "tp2sp+wep2+recompute", "pp2+dp2+ep2+zero3+m4",
               "cp2+p2p+ep2", "dp2+ep2+m4+offloadw+ep_overlap"});
  check_equal(with(small_moe, in_fp16), {"tp2sp+dp2", "pp2+zb-h1+m4", "cp2+all_gather"});
  check_equal(small_moe, {"pp2+send_bf16+m4"});
  check_equal(with(small_shared, in_bf16), {"tp2sp+dp2+ep2"});
  check_equal(with(some_layers, in_bf16), {"dp3+ep3", "tp2+etp1+ep2"});
  check_free(with(small_moe, in_bf16), {"tp2sp+dp2+ep2", "pp2+m4"});
  check_free(with(small_shared, in_fp16), {"tp2sp"});
}

TEST_CASE("a mistake in the scores of experts is named in 16 bits, too") {
  check_fault({"scores of two halves of a sequence the wrong way round", with(small_moe, in_bf16),
               "tp2sp",
               on_all(2, {.group = "layers tp",
                          .operation = GroupOperation::all_gather,
                          .occurrence = 3,
                          .act = with_output(swap_halves)}),
               "router logits", "layers.0"});
}

TEST_CASE("mistakes in the exchange between experts are caught and named") {
  using enum GroupOperation;
  const FaultAction permuted = with_output(swap_rows);
  const std::vector<FaultRow> rows{
      {"two tokens permuted on their way to the experts", small_moe, "dp2+ep2",
       on_all(2, exchange(all_to_all, 4, permuted)), "activation", "layers.1"},
      {"two tokens permuted on their way back", small_moe, "dp2+ep2",
       on_all(2, exchange(all_to_all, 3, permuted)), "activation", "layers.0"},
      {"counts exchanged with the wrong peer", small_moe, "dp2+ep2",
       on_all(2, exchange(all_gather, 2, with_output(swap_halves))), "activation", "layers.1"},
      {"two gradients permuted", small_moe, "dp2+ep2",
       on_all(2, exchange(all_to_all, 13, permuted)), "gradient", "layers.3."},
      {"scores of two context-parallel ranks the wrong way round", small_moe, "cp2+p2p",
       on_all(2, {.group = "layers cp",
                  .operation = all_gather,
                  .occurrence = 1,
                  .act = with_output(swap_halves)}),
       "activation", "layers.0"},
      {"a weight gradient that stays on the rank of its expert", small_moe, "dp2+ep2",
       on_all(2, exchange(all_to_all, 15, left_out())), "gradient", "layers.3."},
  };
  check_faults(rows);
}

TEST_CASE("mistakes in the sums of experts and in their losses are caught and named") {
  const auto tp = static_cast<std::size_t>(Axis::tp);
  const std::vector<FaultRow> rows{
      {"gradients of experts summed over dp instead of edp", small_moe, "dp4+ep2",
       of_plan([](Plan& plan) {
         for (Bucket& bucket : plan.stages[0].flat.buckets) bucket.expert = false;
       }),
       "gradient", ".moe.experts."},
      {"the balance loss counted once for each rank", small_moe, "dp2+ep2",
       of_plan([](Plan& plan) { plan.model.balance_factor *= 2; }), "gradient", "layers.3."},
      {"routing groups of two sequences", small_moe, "dp2",
       of_plan([](Plan& plan) { plan.model.routing_group *= 2; }), "router", "balance loss"},
      {"the router's gradient not summed over tp", small_moe, "tp2sp", of_plan([tp](Plan& plan) {
         for (ParamSpec& row : plan.stages[0].parameters) {
           if (row.kind == ParamKind::router) row.gradient_sum[tp] = false;
         }
       }),
       "gradient", ".moe.router"},
      {"a capacity of one token less", with(small_moe, {"moe.capacity_factor=1.5"}), "dp2+ep2",
       of_plan([](Plan& plan) {
         ModelShape& model = plan.model;
         model.capacity_factor =
             static_cast<double>((moe_capacity(layer_form(model, 0)) - 1) * model.experts) /
             static_cast<double>(model.routing_group * model.topk);
       }),
       "activation", "layers.1"},
  };
  check_faults(rows);
}

TEST_CASE("all layouts of a model with experts", "[thorough]") {
  if (!thorough()) return;
  const std::vector<std::string> layouts{"dp8+ep2",
                                         "dp8+ep4",
                                         "tp2sp+pp2+dp2+ep2+zb-v+m4",
                                         "tp4sp+dp2+ep2+zero3+recompute",
                                         "pp4+dp2+ep2+gpipe+m4",
                                         "tp2+dp4+ep4+selective",
                                         "tp2sp+dp4+ep2+offload2"};
  for (const Options& model : {small_moe, small_shared}) {
    check_equal(model, layouts);
    check_free(model, layouts);
  }
}
