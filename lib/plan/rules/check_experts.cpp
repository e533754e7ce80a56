// Mixture of experts: how experts are divided among ranks, and the limits of the router.
#include "base/integers.h"
#include "base/text.h"
#include "config/schema/words.h"
#include "plan/model/form.h"
#include "plan/rules/check.h"

namespace trainctl {

namespace {

void check_partition(const Facts& facts, Check& check) {
  const char* path = "parallel.expert_parallel";
  if (!facts.splits || !facts.mesh_is_clean(check) || !check.clean({"moe.num_experts"})) return;
  const std::int64_t experts = facts.config.moe.num_experts;
  const std::int64_t ranks = facts.mesh.ep;
  if (ranks == 1) return;
  if (!facts.has_experts()) {
    check.error(
        "experts-needed", path,
        named("expert_parallel", ranks) + " needs experts, but moe.num_experts is 1",
        formatted("set moe.num_experts to {} or {}, or expert_parallel to 1", ranks, 2 * ranks));
  } else if (experts % ranks != 0) {
    check.error("experts-divide", path,
                indivisible(named("moe.num_experts", experts), named("expert_parallel", ranks)),
                formatted("set expert_parallel to {}, or moe.num_experts to {}",
                          divisors_near(experts, ranks), multiples_near(ranks, experts)));
  } else if (resolve_compute(facts.config.precision) == ComputeType::fp16 &&
             check.clean({"precision.compute"})) {
    check.error(
        "expert-fp16", "precision.compute",
        formatted("compute must not be fp16 with {}: gradients of rarely chosen experts underflow",
                  named("expert_parallel", ranks)),
        "set compute to bf16 or fp32");
  }
}

void check_expert_tensor(const Facts& facts, const ModelShape& shape, Check& check) {
  if (!facts.has_experts() || !facts.mesh_is_clean(check) || facts.mesh.etp == 1) return;
  const char* path = facts.parallel().expert_tensor_parallel ? "parallel.expert_tensor_parallel"
                                                             : "parallel.tensor_parallel";
  const std::string tensor = formatted("{}", facts.mesh.etp);
  const std::int64_t width = facts.config.moe.ffn_hidden_size.value_or(shape.kinds.front().ffn);
  if (width % facts.mesh.etp == 0 ||
      !check.clean({"moe.ffn_hidden_size", "model.ffn_hidden_size", "model.hidden_size"})) {
    return;
  }
  check.error(
      "expert-ffn-divide", path,
      indivisible(named("moe.ffn_hidden_size", width), named("expert_tensor_parallel", tensor)),
      formatted("set expert_tensor_parallel to {}, or moe.ffn_hidden_size to {}",
                divisors_near(width, facts.mesh.etp), multiples_near(facts.mesh.etp, width)));
}

void check_router(const Facts& facts, Check& check) {
  const MoeConfig& moe = facts.config.moe;
  if (moe.router_topk > moe.num_experts && check.clean({"moe.router_topk", "moe.num_experts"})) {
    check.error(
        "router-topk", "moe.router_topk",
        formatted("{} must be at most {}", named("router_topk", moe.router_topk),
                  named("num_experts", moe.num_experts)),
        formatted("set router_topk to {}{}", moe.num_experts > 1 ? "1 or " : "", moe.num_experts));
  }
}

/// The bias of experts requires scores that are independent of each other (sigmoid).
void check_expert_bias(const Facts& facts, Check& check) {
  const MoeConfig& moe = facts.config.moe;
  const bool sigmoid = facts.model.sigmoid_scores;
  if (moe.router_enable_expert_bias && !sigmoid) {
    check.error("router-sigmoid", "moe.router_enable_expert_bias",
                "router_enable_expert_bias needs router_score_function sigmoid: it is added to "
                "scores between 0 and 1",
                "set router_score_function to sigmoid, or router_enable_expert_bias to false");
  }
}

void check_expert_groups(const Facts& facts, Check& check) {
  const MoeConfig& moe = facts.config.moe;
  const char* count = "moe.router_num_groups";
  const char* chosen = "moe.router_group_topk";
  if (!check.clean({count, chosen, "moe.num_experts", "moe.router_topk"})) return;
  const std::int64_t groups = moe.router_num_groups;
  const std::int64_t topk = moe.router_group_topk;
  const auto refuse = [&](const char* path, const std::string& message, const std::string& help) {
    check.error("router-groups", path, message, help);
  };
  const std::string number = named("router_num_groups", groups);
  const std::string each = named("router_group_topk", topk);
  const std::string routed = named("router_topk", moe.router_topk);
  if (moe.num_experts % groups != 0) {
    return refuse(count, indivisible(named("moe.num_experts", moe.num_experts), number),
                  "set router_num_groups to " + divisors_near(moe.num_experts, groups));
  }
  const std::string all = formatted("set router_group_topk to {}", groups);
  if (topk > groups) return refuse(chosen, formatted("{} must be at most {}", each, number), all);
  if (groups == 1) return;
  if (moe.router_topk % topk != 0) {
    return refuse(chosen, indivisible("moe." + routed, each),
                  "set router_group_topk to " + divisors_near(moe.router_topk, topk));
  }
  const std::int64_t most = product_of({topk, moe.num_experts / groups});
  if (moe.router_topk <= most) return;
  refuse(chosen, formatted("{} groups have {} experts, fewer than {}", each, most, routed), all);
}

void check_shared_experts(const Facts& facts, Check& check) {
  const char* path = "moe.shared_expert_intermediate_size";
  const std::int64_t width = facts.model.shared_ffn;
  const std::string biases = facts.config.model.add_mlp_bias ? "add_mlp_bias" : "add_bias_linear";
  if (width > 0 && facts.model.mlp_bias && check.clean({path, "model." + biases, "model.family"})) {
    check.error(
        "expert-bias", path,
        formatted("{} must not be given when linear layers have biases ({} is true): shared "
                  "experts have none",
                  named("shared_expert_intermediate_size", width), biases),
        formatted("set model.{} to false, or leave shared_expert_intermediate_size out", biases));
  }
  if (width == 0 || !facts.mesh_is_clean(check) || !check.clean({path})) return;
  if (width % facts.mesh.tp == 0) return;
  check.error("shared-expert-divide", path,
              indivisible(named("shared_expert_intermediate_size", width),
                          named("tensor_parallel", facts.mesh.tp)),
              formatted("set shared_expert_intermediate_size to {}, or tensor_parallel to {}",
                        multiples_near(facts.mesh.tp, width), divisors_near(width, facts.mesh.tp)));
}

/// Warns about keys that have no effect because of other keys.
void remark_router(const Facts& facts, Check& check) {
  const MoeConfig& moe = facts.config.moe;
  check.no_effect("moe.router_pre_softmax",
                  moe.router_pre_softmax.has_value() && facts.model.sigmoid_scores,
                  "with router_score_function sigmoid there is no softmax");
  check.no_effect("moe.router_pre_softmax",
                  moe.router_pre_softmax && moe.router_weights && facts.model.expert_groups == 1,
                  "router_weights says what weights are divided by, and there is one group of "
                  "experts");
  check.no_effect("moe.expert_group",
                  moe.expert_group != MoeConfig{}.expert_group && moe.expert_group_size,
                  "expert_group_size says how many tokens a routing group has");
  check.no_effect("moe.balance_counts", moe.balance_counts == "free" && !facts.model.free_counts,
                  "without a bias and groups of experts what is chosen is free");
  check.no_effect("moe.balance_counts",
                  moe.balance_counts == "free" && facts.model.balance_factor == 0,
                  "router_load_balancing_type is none");
  check.no_effect("moe.shared_expert_gate",
                  moe.shared_expert_gate && !moe.shared_expert_intermediate_size,
                  "without shared_expert_intermediate_size there are no shared experts");
  check.no_effect("moe.router_bias_update_rate",
                  moe.router_bias_update_rate != MoeConfig{}.router_bias_update_rate &&
                      !moe.router_enable_expert_bias,
                  "router_enable_expert_bias is false");
  check.no_effect("moe.aux_loss_factor",
                  moe.aux_loss_factor != MoeConfig{}.aux_loss_factor &&
                      moe.router_load_balancing_type == "none",
                  "router_load_balancing_type is none");
}

void check_group_size(const Facts& facts, Check& check) {
  const char* group = "moe.expert_group_size";
  const bool needed = facts.mode == ParallelMode::auto_parallel &&
                      facts.parallel().search_mode != "sharding_propagation";
  const MoeConfig& moe = facts.config.moe;
  if (!check.clean({group, "parallel.parallel_mode", "parallel.search_mode"})) return;
  if (needed && !moe.expert_group_size) {
    const std::int64_t tokens = facts.batch.micro_batch_size * facts.config.model.seq_length;
    check.error(
        "expert-group-size", group,
        formatted("auto_parallel with search_mode {} needs expert_group_size, the number of tokens "
                  "in each data-parallel group",
                  word_of(facts.parallel().search_mode)),
        formatted("set expert_group_size to {}, or search_mode to sharding_propagation", tokens));
  }
}

/// Checks that a micro-batch holds whole groups, since context-parallel ranks count them together.
void check_group_divides(const Facts& facts, const std::string& key, std::int64_t group,
                         Check& check) {
  const std::string path = "moe." + key;
  if (!facts.mesh_is_clean(check) || facts.mesh.cp < 1 ||
      !check.clean({path, "model.seq_length", "train.micro_batch_size", "train.global_batch_size",
                    "parallel.context_parallel"})) {
    return;
  }
  const std::int64_t tokens = product_of({facts.batch.micro_batch_size, facts.model.seq_length});
  if (group < 1 || tokens < 1 || tokens % group == 0) return;
  check.error("expert-group-divide", path,
              indivisible(formatted("the tokens of a micro-batch ({})", tokens), named(key, group)),
              formatted("set {} to {}", key, divisors_near(tokens, group)));
}

void check_group_sizes(const Facts& facts, Check& check) {
  const MoeConfig& moe = facts.config.moe;
  check_group_divides(facts, "expert_group_size", facts.model.routing_group, check);
  if (!moe.capacity_factor) {
    check.no_effect("moe.capacity_group_size", moe.capacity_group_size.has_value(),
                    "without capacity_factor no expert is ever full");
  } else if (moe.capacity_group_size) {
    check_group_divides(facts, "capacity_group_size", facts.model.capacity_group, check);
  }
}

/// Checks that the options of MindFormers' TopkRouter are used together.
void check_rounds(const Facts& facts, Check& check) {
  const MoeConfig& moe = facts.config.moe;
  const bool by_round = moe.router_load_balancing_type == "round_aux_loss";
  const auto refuse = [&](const std::string& key, const std::string& message,
                          const std::string& help) {
    if (check.clean({"moe." + key})) check.error("router-rounds", "moe." + key, message, help);
  };
  if (!facts.model.rounds) {
    if (!by_round) return;
    return refuse("router_load_balancing_type",
                  "router_load_balancing_type round_aux_loss needs router_choice rounds: without "
                  "rounds there is one term",
                  "set router_choice to rounds, or router_load_balancing_type to aux_loss");
  }
  if (!by_round) {
    const std::string word(word_of(moe.router_load_balancing_type));
    refuse("router_choice",
           formatted("router_choice rounds goes only with router_load_balancing_type "
                     "round_aux_loss, which is {}{}",
                     word, check.place_of("moe.router_load_balancing_type")),
           "set router_load_balancing_type to round_aux_loss, or router_choice to topk");
  } else if (facts.model.sigmoid_scores || facts.model.expert_groups > 1) {
    refuse("router_choice",
           "router_choice rounds needs router_score_function softmax and one group of experts "
           "(router_num_groups 1)",
           "set router_choice to topk and router_load_balancing_type to aux_loss");
  }
  if (moe.overflow == Overflow::position) return;
  refuse("overflow",
         "overflow must be position with router_choice rounds, whose places are given round by "
         "round; it is " +
             std::string(word_of(moe.overflow)),
         "set overflow to position");
}

/// Checks the case that weights are always 1, so the router learns only from its own losses.
void check_learning(const Facts& facts, Check& check) {
  const ModelShape& model = facts.model;
  const MoeConfig& moe = facts.config.moe;
  if (!facts.site.trains || model.topk != 1 || model.weights == ExpertWeights::all) return;
  const std::string key = moe.router_weights ? "router_weights" : "router_pre_softmax";
  if (!check.clean({"moe." + key, "moe.router_topk"})) return;
  const std::string what =
      (moe.router_weights ? "router_weights " + std::string(word_of(model.weights))
                          : std::string("router_pre_softmax false")) +
      " with router_topk 1 gives every weight the value 1, so the router ";
  const std::string help = formatted("set {}{}, or router_topk to 2 or more", key,
                                     moe.router_weights ? " to all" : " to true");
  if (model.balance_factor == 0 && model.z_factor == 0) {
    check.error("router-softmax", "moe." + key, what + "would not learn", help);
  } else {
    check.warning("router-softmax", "moe." + key, what + "learns from its own losses only", help);
  }
}

bool says_experts(const ModelConfig& model) {
  return std::ranges::any_of(model.layers,
                             [](const LayerEntry& entry) { return entry.experts.has_value(); });
}

/// Checks the entries of model.layers that specify whether their layers have experts.
void check_expert_kinds(const Facts& facts, Check& check) {
  const MoeConfig& moe = facts.config.moe;
  const auto& entries = facts.config.model.layers;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::string path = formatted("model.layers.{}.experts", i);
    if (!facts.has_experts() && entries[i].experts.value_or(false)) {
      check.error("layer-kinds", path,
                  formatted("layers {} have experts, but {}", entries[i].name,
                            named("moe.num_experts", moe.num_experts)),
                  "set moe.num_experts to at least 2, or experts to false");
    }
    if (!entries[i].experts || (moe.first_dense_layers == 0 && moe.layer_frequency == 1)) continue;
    const bool first = moe.first_dense_layers != 0;
    check.error("layer-kinds", path,
                formatted("experts and moe.{} both say which layers have experts",
                          first ? named("first_dense_layers", moe.first_dense_layers)
                                : named("layer_frequency", moe.layer_frequency)),
                "remove one of them");
  }
}

void check_expert_layers(const Facts& facts, Check& check) {
  const ModelShape& model = facts.model;
  if (!check.clean({"model.num_layers", "moe.first_dense_layers", "moe.layer_frequency"})) return;
  if (first_block_with(model, true) > 0) return;
  const MoeConfig& moe = facts.config.moe;
  if (says_experts(facts.config.model)) {
    return check.error(
        "expert-layers", "model.layers",
        "no layer has experts, but " + named("moe.num_experts", moe.num_experts),
        "set experts to true in an entry of layers that is used, or moe.num_experts to 1");
  }
  const std::int64_t every = moe.layer_frequency;
  const std::int64_t first = round_up(moe.first_dense_layers, every);
  check.error("expert-layers", "moe.first_dense_layers",
              formatted("no layer has experts: the first would be layer {} (counted from 0, after "
                        "{}, a multiple of {}), but {}",
                        first, named("first_dense_layers", moe.first_dense_layers),
                        named("layer_frequency", every), named("num_layers", model.layers)),
              "set first_dense_layers to 0, or moe.num_experts to 1");
}

void check_ranges(const MoeConfig& moe, Check& check) {
  constexpr std::int64_t max_experts = std::int64_t{1} << 20;
  check.range("moe.num_experts", moe.num_experts, 1, max_experts);
  check.range("moe.router_topk", moe.router_topk, 1, max_experts);
  check.range("moe.expert_group_size", moe.expert_group_size.value_or(1), 1, std::int64_t{1} << 40);
  check.range("moe.capacity_group_size", moe.capacity_group_size.value_or(1), 1,
              std::int64_t{1} << 40);
  check.range("moe.ffn_hidden_size", moe.ffn_hidden_size.value_or(1), 1, std::int64_t{1} << 24);
  check.range("moe.comp_comm_parallel_degree", moe.comp_comm_parallel_degree, 1, 1 << 16);
  check.range("moe.first_dense_layers", moe.first_dense_layers, 0, 10'000);
  check.range("moe.layer_frequency", moe.layer_frequency, 1, 10'000);
  const double capacity = moe.capacity_factor.value_or(1);
  check.rule("moe.capacity_factor", capacity >= 1, capacity, "at least 1");
  check.range("moe.router_num_groups", moe.router_num_groups, 1, max_experts);
  check.range("moe.router_group_topk", moe.router_group_topk, 1, max_experts);
  check.range("moe.shared_expert_intermediate_size",
              moe.shared_expert_intermediate_size.value_or(1), 1, std::int64_t{1} << 24);
  check.rule("moe.router_topk_scaling_factor",
             moe.router_topk_scaling_factor > 0 && moe.router_topk_scaling_factor <= 1e6,
             moe.router_topk_scaling_factor, "above 0 and at most 1000000");
  check.rule("moe.router_bias_update_rate",
             moe.router_bias_update_rate >= 0 && moe.router_bias_update_rate <= 1,
             moe.router_bias_update_rate, "from 0 to 1");
  check.rule("moe.z_loss_factor", moe.z_loss_factor >= 0 && moe.z_loss_factor < 1,
             moe.z_loss_factor, "at least 0 and below 1");
  check.rule("moe.aux_loss_factor", moe.aux_loss_factor > 0 && moe.aux_loss_factor < 1,
             moe.aux_loss_factor, "above 0 and below 1");
}

}  // namespace

void check_experts(const Facts& facts, Check& check) {
  const ModelShape& shape = facts.model;
  check_ranges(facts.config.moe, check);
  check_partition(facts, check);
  check_expert_tensor(facts, shape, check);
  check_router(facts, check);
  check_expert_kinds(facts, check);
  if (!facts.has_experts()) return;
  check_group_size(facts, check);
  check_group_sizes(facts, check);
  check_rounds(facts, check);
  check_learning(facts, check);
  check_expert_bias(facts, check);
  check_expert_groups(facts, check);
  check_shared_experts(facts, check);
  remark_router(facts, check);
  check_expert_layers(facts, check);
  check.no_effect(
      "moe.overflow",
      facts.config.moe.overflow != MoeConfig{}.overflow && !facts.config.moe.capacity_factor,
      "without capacity_factor no expert is ever full");
}

}  // namespace trainctl
