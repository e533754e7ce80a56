// MindFormers' section moe_config: the router's own definitions and defaults, as words and numbers.
#include "catch.h"
#include "config/migrate/migrate.h"
#include "config_text.h"

namespace trainctl::test {
namespace {

const std::string base = good_model + good_data + good_lr +
                         "train: {steps: 10, global_batch_size: 8, micro_batch_size: 2}\n";

MoeConfig moe_of(const std::string& section, const std::string& more = "") {
  const ReadResult result = read(base + "moe_config: {" + section + "}\n" + more);
  INFO(render_text(result.diagnostics, false));
  REQUIRE_FALSE(result.diagnostics.has_errors());
  return result.config.moe;
}

/// The message of the only error.
std::string error_of(const std::string& section, const std::string& more = "") {
  const ReadResult result = read(base + "moe_config: {" + section + "}\n" + more);
  std::string text;
  for (const Diagnostic& one : result.diagnostics.list()) {
    if (one.severity == Severity::error) text += one.message + "; " + one.help + "\n";
  }
  return text;
}

}  // namespace

TEST_CASE("the section moe_config has the definitions and defaults of TopkRouter") {
  const MoeConfig moe = moe_of("expert_num: 4, num_experts_chosen: 2");
  CHECK(moe.router_choice == ExpertChoice("rounds"));
  CHECK(moe.router_weights == ExpertWeights::kept);
  CHECK(moe.router_load_balancing_type == LoadBalancing("round_aux_loss"));
  CHECK(moe.overflow == Overflow::position);
  CHECK(moe.capacity_factor == 1.1);
  CHECK(moe.expert_group_size == 64);  // 2 sequences of 32
  CHECK_FALSE(moe.capacity_group_size.has_value());
  CHECK(moe_of("expert_num: 4, routing_policy: TopkRouterV1") == moe_of("expert_num: 4"));
}

TEST_CASE("the same names under moe are plain aliases, and one expert needs no router") {
  const ReadResult plain = read(base + "moe: {expert_num: 4, num_experts_chosen: 2}\n");
  CHECK(found(plain).empty());
  MoeConfig expected;
  expected.num_experts = 4;
  expected.router_topk = 2;
  CHECK(plain.config.moe == expected);
  CHECK(moe_of("expert_num: 1") == MoeConfig{});
}

TEST_CASE("what is given in either section holds against the router's defaults") {
  CHECK(moe_of("expert_num: 4, capacity_factor: 2.5").capacity_factor == 2.5);
  CHECK(moe_of("expert_num: 4, expert_group_size: 16").expert_group_size == 16);
  CHECK(moe_of("expert_num: 4", "moe: {router_weights: all}\n").router_weights ==
        ExpertWeights::all);
  const MoeConfig mixed = moe_of(
      "expert_num: 4, router_choice: topk, router_load_balancing_type: aux_loss, overflow: token");
  CHECK(mixed.router_choice == ExpertChoice("topk"));
  CHECK(mixed.overflow == Overflow::token);
  CHECK(mixed.router_weights == ExpertWeights::kept);
}

TEST_CASE("a group is a micro-batch, whose size may come later") {
  const std::string text = good_text + "moe_config: {expert_num: 4}\n";
  CHECK(read(text).config.moe.expert_group == ExpertGroup("micro_batch"));
  CHECK_FALSE(read(text).config.moe.expert_group_size.has_value());
  CHECK(read(text, {"train.micro_batch_size=4"}).config.moe.expert_group_size == 128);
  CHECK(read(text, {"train.micro_batch_size=4", "model.seq_length=16"})
            .config.moe.expert_group_size == 64);
  const ReadResult set = read(good_text, {"moe_config.expert_num=4", "train.micro_batch_size=2"});
  CHECK(set.config.moe.expert_group_size == 64);
  CHECK(set.sources.find("moe.expert_group_size").to_string() == "default of moe_config");
}

TEST_CASE("TopkRouterV2 is carried") {
  const std::string second = "expert_num: 4, num_experts_chosen: 2, routing_policy: TopkRouterV2";
  MoeConfig moe = moe_of(second);
  CHECK(moe.router_choice == ExpertChoice("topk"));
  CHECK(moe.router_weights == ExpertWeights::kept);
  CHECK(moe.router_load_balancing_type == LoadBalancing("none"));
  CHECK(moe.overflow == Overflow::position);
  CHECK(moe.capacity_factor == 1.1);
  CHECK(moe.expert_group_size == 64);
  moe = moe_of(second + ", enable_sdrop: True, norm_topk_prob: false, routed_scaling_factor: 2.5");
  CHECK(moe.overflow == Overflow::token);
  CHECK(moe.router_weights == ExpertWeights::all);
  CHECK(moe.router_topk_scaling_factor == 2.5);
  // The weights of several choices that are divided by their sum are not scaled, one alone is p.
  CHECK(moe_of(second + ", routed_scaling_factor: 2.5").router_topk_scaling_factor == 1);
  moe = moe_of("expert_num: 4, routing_policy: TopkRouterV2, routed_scaling_factor: 2.5");
  CHECK(moe.router_weights == ExpertWeights::all);
  CHECK(moe.router_topk_scaling_factor == 2.5);
  CHECK_FALSE(moe_of(second + ", capacity_factor: -1").capacity_factor.has_value());
  moe = moe_of(second + ", aux_loss_types: [expert], aux_loss_factors: [0.02]");
  CHECK(moe.router_load_balancing_type == LoadBalancing("aux_loss"));
  CHECK(moe.aux_loss_factor == 0.02);
}

TEST_CASE("TopkRouterV2 counts over a rank's tokens, and rounds its places up") {
  const std::string second = "expert_num: 4, num_experts_chosen: 2, routing_policy: TopkRouterV2";
  const std::string split = "parallel_config: {model_parallel: 2, use_seq_parallel: true}\n";
  CHECK(moe_of(second, split).expert_group_size == 32);
  CHECK(moe_of(second, split).capacity_factor == 1.1);
  CHECK(moe_of(second, "parallel_config: {context_parallel: 2}\n").expert_group_size == 32);
  // ceil(2 x 64 x 1.1 / 4) = 36 places; with eight ranks that cut them 40.
  const MoeConfig cut = moe_of(second, "parallel_config: {model_parallel: 8}\n");
  CHECK(cut.expert_group_size == 64);
  CHECK(cut.capacity_factor == (40 - 0.5) * 4 / (2 * 64));
  const MoeConfig chunks =
      moe_of(second + ", comp_comm_parallel: true, comp_comm_parallel_degree: 5", split);
  CHECK(chunks.capacity_factor == (20 - 0.5) * 4 / (2 * 32));                       // of 18
  CHECK(moe_of(second + ", comp_comm_parallel: true", "").capacity_factor == 1.1);  // 36 is even
  const ReadResult unknown = read(good_text + split + "moe_config: {" + second + "}\n");
  CHECK(only(unknown).code == "expert-group-size");
}

TEST_CASE("what a router of MindFormers does that is not built is refused by name") {
  const std::string second = "expert_num: 4, routing_policy: TopkRouterV2, ";
  CHECK(contains(error_of("expert_num: 4, routing_policy: DeepSeekRouter"),
                 "not built yet: routing_policy: DeepSeekRouter"));
  for (const std::string option :
       {"topk_method: group_limited_greedy", "balance_via_topk_bias: True",
        "use_gating_sigmoid: true", "enable_cold_hot_expert: true",
        "aux_loss_types: [expert, device]", "aux_loss_types: [comm]", "aux_loss_types: [expert]"}) {
    INFO(option);
    CHECK(contains(error_of(second + option),
                   "not built yet: " + option.substr(0, option.find(':'))));
  }
  CHECK(moe_of(second + "topk_method: greedy, balance_via_topk_bias: False, aux_loss_types: null, "
                        "topk_bias_update_rate: 0.001, aux_loss_factor: 0.05") ==
        moe_of("expert_num: 4, routing_policy: TopkRouterV2"));
}

TEST_CASE("migration writes the words and numbers of MindFormers' router") {
  const std::string text = base + "moe_config: {expert_num: 4, num_experts_chosen: 2}\n";
  const Migrated first = migrate_config(text, "t.yaml");
  REQUIRE(first.ok);
  for (const char* line :
       {"  router_choice: rounds\n", "  router_weights: kept\n", "  overflow: position\n",
        "  router_load_balancing_type: round_aux_loss\n", "  capacity_factor: 1.1\n",
        "  expert_group_size: 64\n"}) {
    CHECK(contains(first.text, line));
  }
  CHECK(read(first.text).config == read(text).config);
  CHECK(migrate_config(first.text, "t.yaml").text == first.text);
  const Migrated second = migrate_config(
      base +
          "moe_config: {expert_num: 4, num_experts_chosen: 2, routing_policy: TopkRouterV2, "
          "enable_sdrop: True, capacity_factor: -1}\n",
      "t.yaml");
  REQUIRE(second.ok);
  for (const char* line :
       {"  router_choice: topk\n", "  router_weights: kept\n", "  overflow: token\n",
        "  router_load_balancing_type: none\n", "  expert_group_size: 64\n"}) {
    CHECK(contains(second.text, line));
  }
  CHECK_FALSE(contains(second.text, "capacity_factor"));
}

TEST_CASE("MindFormers' SGD adds weight decay to the gradient") {
  const std::string text = good_text + "run_mode: train\nrunner_config: {batch_size: 2}\n";
  CHECK(read(text + "optimizer: {type: SGD}\n").config.optimizer.weight_decay_form ==
        WeightDecayForm("coupled"));
  CHECK(read(good_text + "optimizer: {type: sgd}\n").config.optimizer.weight_decay_form ==
        WeightDecayForm("decoupled"));
}

}  // namespace trainctl::test
