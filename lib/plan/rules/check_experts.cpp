// Mixture of experts: how experts are divided among ranks, and the limits of the router.
#include "base/round_up.h"
#include "config/schema/words.h"
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
    check.error("experts-needed", path,
                named("expert_parallel", ranks) + " needs experts, but moe.num_experts is 1",
                "set moe.num_experts to " + std::to_string(ranks) + " or " +
                    std::to_string(2 * ranks) + ", or expert_parallel to 1");
  } else if (experts % ranks != 0) {
    check.error("experts-divide", path,
                indivisible(named("moe.num_experts", experts), named("expert_parallel", ranks)),
                "set expert_parallel to " + divisors_near(experts, ranks) +
                    ", or moe.num_experts to " + multiples_near(ranks, experts));
  } else if (resolve_compute(facts.config.precision) == ComputeType::fp16 &&
             check.clean({"precision.compute"})) {
    check.error("expert-fp16", "precision.compute",
                "compute must not be fp16 with " + named("expert_parallel", ranks) +
                    ": gradients of rarely chosen experts underflow",
                "set compute to bf16 or fp32");
  }
}

void check_expert_tensor(const Facts& facts, const ModelShape& shape, Check& check) {
  if (!facts.has_experts() || !facts.mesh_is_clean(check) || facts.mesh.etp == 1) return;
  const char* path = facts.parallel().expert_tensor_parallel ? "parallel.expert_tensor_parallel"
                                                             : "parallel.tensor_parallel";
  const std::string tensor = std::to_string(facts.mesh.etp);
  const std::int64_t width = facts.config.moe.ffn_hidden_size.value_or(shape.ffn);
  if (width % facts.mesh.etp == 0 ||
      !check.clean({"moe.ffn_hidden_size", "model.ffn_hidden_size", "model.hidden_size"})) {
    return;
  }
  check.error(
      "expert-ffn-divide", path,
      indivisible(named("moe.ffn_hidden_size", width), named("expert_tensor_parallel", tensor)),
      "set expert_tensor_parallel to " + divisors_near(width, facts.mesh.etp) +
          ", or moe.ffn_hidden_size to " + multiples_near(facts.mesh.etp, width));
}

void check_router(const Facts& facts, Check& check) {
  const MoeConfig& moe = facts.config.moe;
  if (moe.router_topk > moe.num_experts && check.clean({"moe.router_topk", "moe.num_experts"})) {
    check.error("router-topk", "moe.router_topk",
                named("router_topk", moe.router_topk) + " must be at most " +
                    named("num_experts", moe.num_experts),
                "set router_topk to " + std::string(moe.num_experts > 1 ? "1 or " : "") +
                    std::to_string(moe.num_experts));
  }
}

/// The bias belongs to scores of each expert by itself.
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
  if (moe.num_experts % groups != 0) {
    return check.error(
        "router-groups", count,
        indivisible(named("moe.num_experts", moe.num_experts), named("router_num_groups", groups)),
        "set router_num_groups to " + divisors_near(moe.num_experts, groups));
  }
  if (topk > groups) {
    return check.error(
        "router-groups", chosen,
        named("router_group_topk", topk) + " must be at most " + named("router_num_groups", groups),
        "set router_group_topk to " + std::to_string(groups));
  }
  if (groups == 1) return;
  if (moe.router_topk % topk != 0) {
    return check.error(
        "router-groups", chosen,
        indivisible(named("moe.router_topk", moe.router_topk), named("router_group_topk", topk)),
        "set router_group_topk to " + divisors_near(moe.router_topk, topk));
  }
  const std::int64_t most = product_of({topk, moe.num_experts / groups});
  if (moe.router_topk <= most) return;
  check.error("router-groups", chosen,
              named("router_group_topk", topk) + " groups have " + std::to_string(most) +
                  " experts, fewer than " + named("router_topk", moe.router_topk),
              "set router_group_topk to " + std::to_string(groups));
}

void check_shared_experts(const Facts& facts, Check& check) {
  const char* path = "moe.shared_expert_intermediate_size";
  const std::int64_t width = facts.model.shared_ffn;
  if (width > 0 && facts.model.linear_bias &&
      check.clean({path, "model.add_bias_linear", "model.family"})) {
    check.error("expert-bias", path,
                named("shared_expert_intermediate_size", width) +
                    " must not be given when linear layers have biases (add_bias_linear is true): "
                    "shared experts have none",
                "set model.add_bias_linear to false, or leave shared_expert_intermediate_size out");
  }
  if (width == 0 || !facts.mesh_is_clean(check) || !check.clean({path})) return;
  if (width % facts.mesh.tp == 0) return;
  check.error("shared-expert-divide", path,
              indivisible(named("shared_expert_intermediate_size", width),
                          named("tensor_parallel", facts.mesh.tp)),
              "set shared_expert_intermediate_size to " + multiples_near(facts.mesh.tp, width) +
                  ", or tensor_parallel to " + divisors_near(width, facts.mesh.tp));
}

/// Keys that other keys switch off.
void remark_router(const Facts& facts, Check& check) {
  const MoeConfig& moe = facts.config.moe;
  check.no_effect("moe.router_pre_softmax",
                  moe.router_pre_softmax.has_value() && facts.model.sigmoid_scores,
                  "with router_score_function sigmoid there is no softmax");
  check.no_effect("moe.shared_expert_gate",
                  moe.shared_expert_gate && !moe.shared_expert_intermediate_size,
                  "without shared_expert_intermediate_size there are no shared experts");
  check.no_effect("moe.router_bias_update_rate",
                  moe.router_bias_update_rate != MoeConfig{}.router_bias_update_rate &&
                      !moe.router_enable_expert_bias,
                  "router_enable_expert_bias is false");
  check.no_effect("moe.aux_loss_factor",
                  moe.aux_loss_factor != MoeConfig{}.aux_loss_factor &&
                      moe.router_load_balancing_type == LoadBalancing::none,
                  "router_load_balancing_type is none");
}

void check_group_size(const Facts& facts, Check& check) {
  const char* group = "moe.expert_group_size";
  const bool needed = facts.mode == ParallelMode::auto_parallel &&
                      facts.parallel().search_mode != SearchMode::sharding_propagation;
  const MoeConfig& moe = facts.config.moe;
  if (!check.clean({group, "parallel.parallel_mode", "parallel.search_mode"})) return;
  if (needed && !moe.expert_group_size) {
    const std::int64_t tokens = facts.batch.micro_batch_size * facts.config.model.seq_length;
    check.error("expert-group-size", group,
                "auto_parallel with search_mode " +
                    std::string(word_of(facts.parallel().search_mode)) +
                    " needs expert_group_size, the number of tokens in each data-parallel group",
                "set expert_group_size to " + std::to_string(tokens) +
                    ", or search_mode to sharding_propagation");
  }
}

/// Context-parallel ranks count whole routing groups together.
void check_routing_groups(const Facts& facts, Check& check) {
  const char* path = "moe.expert_group_size";
  const std::int64_t sequence = facts.model.seq_length;
  if (!facts.mesh_is_clean(check) || facts.mesh.cp < 1 ||
      !check.clean({path, "model.seq_length", "train.micro_batch_size", "train.global_batch_size",
                    "parallel.context_parallel"})) {
    return;
  }
  const std::int64_t tokens = product_of({facts.batch.micro_batch_size, sequence});
  const std::int64_t group = facts.model.routing_group;
  if (group < 1 || tokens < 1 || tokens % group == 0) return;
  check.error("expert-group-divide", path,
              indivisible("the tokens of a micro-batch (" + std::to_string(tokens) + ")",
                          named("expert_group_size", group)),
              "set expert_group_size to " + divisors_near(tokens, group));
}

void check_router_softmax(const Facts& facts, Check& check) {
  const MoeConfig& moe = facts.config.moe;
  if (facts.model.sigmoid_scores) return;
  if (facts.model.pre_softmax || moe.router_topk != 1 || !check.clean({"moe.router_topk"})) return;
  check.error("router-softmax", "moe.router_pre_softmax",
              "router_pre_softmax must not be false with router_topk (1): the softmax over one "
              "chosen expert is always 1, so the router would not learn",
              "set router_pre_softmax to true, or router_topk to 2 or more");
}

void check_expert_layers(const Facts& facts, Check& check) {
  const ModelShape& model = facts.model;
  if (!check.clean({"model.num_layers", "moe.first_dense_layers", "moe.layer_frequency"})) return;
  const std::int64_t every = model.expert_every;
  const std::int64_t first = round_up(model.first_dense, every);
  if (first < model.layers) return;
  check.error("expert-layers", "moe.first_dense_layers",
              "no layer has experts: the first would be layer " + std::to_string(first) +
                  " (counted from 0, after " + named("first_dense_layers", model.first_dense) +
                  ", a multiple of " + named("layer_frequency", every) + "), but " +
                  named("num_layers", model.layers),
              "set first_dense_layers to 0, or moe.num_experts to 1");
}

std::int64_t micro_batch_tokens(const Facts& facts) {
  return product_of({facts.batch.micro_batch_size, facts.model.seq_length}) / facts.mesh.cp;
}

/// An expert gets a token once.
void check_exchange_chunks(const Facts& facts, Check& check) {
  const char* path = "moe.comp_comm_parallel_degree";
  const std::int64_t degree = facts.config.moe.comp_comm_parallel_degree;
  const bool shares = resolve_exchange(facts.config, facts.mesh).takes_share();
  const std::int64_t tokens = micro_batch_tokens(facts) / (shares ? facts.mesh.tp : 1);
  if (degree <= tokens || tokens < 1 ||
      !check.clean(
          {path, "model.seq_length", "train.micro_batch_size", "train.global_batch_size"})) {
    return;
  }
  check.error("expert-chunks", path,
              named("comp_comm_parallel_degree", degree) +
                  " must be at most the tokens of a micro-batch that a rank sends (" +
                  std::to_string(tokens) +
                  "): a rank cannot cut what it sends to an expert into "
                  "more chunks",
              "set comp_comm_parallel_degree to 2, or to at most " + std::to_string(tokens));
}

/// Tensor-parallel ranks that have the same tokens send a slice of them each.
void check_token_slices(const Facts& facts, Check& check) {
  const std::int64_t tokens = micro_batch_tokens(facts);
  const std::int64_t ranks = facts.mesh.tp;
  if (tokens % ranks == 0 ||
      !check.clean({"model.seq_length", "train.micro_batch_size", "train.global_batch_size"})) {
    return;
  }
  const bool cut = !cuts_experts_alike(facts.mesh);
  check.error(
      "expert-slices", cut ? "parallel.expert_tensor_parallel" : "moe.group_wise_a2a",
      indivisible("the tokens of a micro-batch on a rank (" + std::to_string(tokens) + ")",
                  named("tensor_parallel", ranks)) +
          ": each rank sends an equal slice of them to experts",
      std::string("set micro_batch_size to ") +
          multiples_near(ranks, facts.batch.micro_batch_size) + ", or " +
          (cut ? "expert_tensor_parallel to " + std::to_string(ranks) : "group_wise_a2a to false"));
}

void remark_exchange(const Facts& facts, Check& check) {
  const MoeConfig& moe = facts.config.moe;
  if (!facts.mesh_is_clean(check) || facts.mesh.cp < 1) return;
  const Mesh& mesh = facts.mesh;
  const ExchangeRule rule = resolve_exchange(facts.config, mesh);
  if (mesh.tp == 1 || mesh.ep == 1) {
    check.no_effect("moe.group_wise_a2a", moe.group_wise_a2a,
                    "it needs tensor_parallel and expert_parallel above 1; they are " +
                        std::to_string(mesh.tp) + " and " + std::to_string(mesh.ep));
  } else if (!cuts_experts_alike(mesh)) {
    check.no_effect("moe.group_wise_a2a", moe.group_wise_a2a,
                    "experts are not cut over the ranks that cut dense layers, so that each rank "
                    "sends its share of the tokens anyway");
  }
  if (rule.by_slice) check_token_slices(facts, check);
  if (mesh.ep * rule.parts == 1) {
    check.no_effect("moe.comp_comm_parallel", moe.comp_comm_parallel,
                    "expert_parallel is 1, so no tokens are exchanged");
  } else if (moe.comp_comm_parallel_degree == 1) {
    check.no_effect("moe.comp_comm_parallel", moe.comp_comm_parallel,
                    "comp_comm_parallel_degree is 1, and one chunk has no other beside it");
  } else if (moe.comp_comm_parallel) {
    check_exchange_chunks(facts, check);
  }
  if (mesh.tp > 1 && mesh.ep > 1 && !facts.parallel().sequence_parallel) {
    check.warning("moe-sequence-parallel", "parallel.expert_parallel",
                  "without sequence_parallel, all tensor-parallel ranks route the same tokens (" +
                      named("expert_parallel", mesh.ep) + ", " + named("tensor_parallel", mesh.tp) +
                      ")",
                  "set sequence_parallel to true");
  }
}

void check_ranges(const MoeConfig& moe, Check& check) {
  constexpr std::int64_t most_experts = std::int64_t{1} << 20;
  check.range("moe.num_experts", moe.num_experts, 1, most_experts);
  check.range("moe.router_topk", moe.router_topk, 1, most_experts);
  check.range("moe.expert_group_size", moe.expert_group_size.value_or(1), 1, std::int64_t{1} << 40);
  check.range("moe.ffn_hidden_size", moe.ffn_hidden_size.value_or(1), 1, std::int64_t{1} << 24);
  check.range("moe.comp_comm_parallel_degree", moe.comp_comm_parallel_degree, 1, 1 << 16);
  check.range("moe.first_dense_layers", moe.first_dense_layers, 0, 10'000);
  check.range("moe.layer_frequency", moe.layer_frequency, 1, 10'000);
  const double capacity = moe.capacity_factor.value_or(1);
  check.rule("moe.capacity_factor", capacity >= 1, capacity, "at least 1");
  check.range("moe.router_num_groups", moe.router_num_groups, 1, most_experts);
  check.range("moe.router_group_topk", moe.router_group_topk, 1, most_experts);
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
  if (!facts.has_experts()) return;
  check_group_size(facts, check);
  check_routing_groups(facts, check);
  check_router_softmax(facts, check);
  check_expert_bias(facts, check);
  check_expert_groups(facts, check);
  check_shared_experts(facts, check);
  remark_router(facts, check);
  check_expert_layers(facts, check);
  check.no_effect(
      "moe.overflow",
      facts.config.moe.overflow != MoeConfig{}.overflow && !facts.config.moe.capacity_factor,
      "without capacity_factor no expert is ever full");
  remark_exchange(facts, check);
}

}  // namespace trainctl
