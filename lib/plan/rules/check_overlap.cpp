// Work beside other work: communication that overlaps computation, graphs of the device:
// tensor-parallel collectives, the exchange between experts, delayed weight gradients.
#include "config/schema/words.h"
#include "plan/rules/check.h"

namespace trainctl {

namespace {

void check_tensor_overlap(const Facts& facts, Check& check) {
  const TpCommOverlapConfig& overlap = facts.parallel().tp_comm_overlap;
  const char* path = "parallel.tp_comm_overlap.enable";
  if (!overlap.enable) return;
  if (facts.unsplit) {
    check.no_effect(path, true, "this parallel_mode has no tensor-parallel ranks");
  } else if (!facts.parallel().sequence_parallel && facts.mesh_is_clean(check) &&
             check.clean({path, "parallel.sequence_parallel"})) {
    check.error("tp-overlap-sequence", path,
                "tp_comm_overlap overlaps the gathers and scatters of sequence_parallel, which is "
                "false" +
                    check.place_of("parallel.sequence_parallel"),
                std::string("set sequence_parallel to true") +
                    (facts.mesh.tp > 1 ? "" : " and tensor_parallel to 2 or more") +
                    ", or tp_comm_overlap.enable to false");
  } else if (facts.mesh_is_clean(check)) {
    const OperatorSplits& splits = facts.operators;
    check.no_effect(
        path,
        !splits.any_attention(SplitBy::features) && !splits.any_feed_forward(SplitBy::features),
        "no operator of a layer is split by features");
  }
}

void check_late_weights(const Facts& facts, Check& check) {
  const char* path = "parallel.delay_wgrad_compute";
  if (!facts.parallel().delay_wgrad_compute || !facts.mesh_is_clean(check)) return;
  const ScheduleTraits& schedule = traits_of(facts.parallel().pipeline.scheduler);
  if (facts.mesh.pp == 1) {
    check.no_effect(path, true,
                    facts.config.moe.overlap_expert_parallel_comm
                        ? "with one stage the exchange of experts overlaps other passes, not "
                          "weight gradients; with stages both overlap"
                        : "a gradient is sent only between pipeline stages");
  } else if (schedule.places_weights) {
    check.no_effect(path, true,
                    "scheduler " + std::string(schedule.word) + " places weight gradients itself");
  }
}

/// Rows of one micro-batch are on their way while a pass of another runs: a forward must be
/// next to a backward.
void check_expert_overlap(const Facts& facts, Check& check) {
  const char* path = "moe.overlap_expert_parallel_comm";
  if (!facts.config.moe.overlap_expert_parallel_comm || !check.clean({path}) ||
      !facts.mesh_is_clean(check)) {
    return;
  }
  const ScheduleTraits& schedule = traits_of(facts.parallel().pipeline.scheduler);
  if (facts.unsplit) {
    check.no_effect(path, true, "this parallel_mode has no expert-parallel ranks");
  } else if (facts.mesh.ep == 1) {
    check.no_effect(path, true, "expert_parallel is 1, so no tokens are exchanged");
  } else if (facts.mesh.pp > 1 && schedule.value != PipelineScheduler::one_f_one_b) {
    check.error(
        "expert-overlap", path,
        "overlap_expert_parallel_comm runs the forward of a micro-batch beside the backward "
        "of another, which scheduler " +
            std::string(schedule.word) + check.place_of("parallel.pipeline.scheduler") +
            " does not put side by side",
        "set scheduler to 1f1b, or overlap_expert_parallel_comm to false");
  } else if (facts.batch.microbatches == 1 && facts.batch.ramp.size() <= 1) {
    check.no_effect(path, true, "a step has one micro-batch, and no other runs beside it");
  }
}

void check_graphs(const Facts& facts, Check& check) {
  const char* path = "parallel.cuda_graphs";
  if (facts.parallel().cuda_graphs != GraphChoice::yes || !facts.mesh_is_clean(check)) return;
  const std::string reason = why_no_graphs(facts.config, facts.site, facts.mesh);
  check.no_effect(path, !reason.empty(), reason);
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

/// The exchange of rows with the ranks of their experts.
void check_exchange(const Facts& facts, Check& check) {
  const MoeConfig& moe = facts.config.moe;
  if (!facts.has_experts() || !facts.mesh_is_clean(check) || facts.mesh.cp < 1) return;
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

}  // namespace

void check_overlap(const Facts& facts, Check& check) {
  check_tensor_overlap(facts, check);
  check_late_weights(facts, check);
  check_expert_overlap(facts, check);
  check_exchange(facts, check);
  check_graphs(facts, check);
}

}  // namespace trainctl
