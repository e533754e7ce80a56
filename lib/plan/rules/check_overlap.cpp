// Work beside other work: communication that overlaps computation, graphs of the device:
// tensor-parallel collectives, the exchange between experts, delayed weight gradients.
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
    check.no_effect(path, true, "a gradient is sent only between pipeline stages");
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
  if (!facts.parallel().cuda_graphs || !facts.mesh_is_clean(check)) return;
  const std::string reason = why_no_graphs(facts.config, facts.site, facts.mesh);
  check.no_effect(path, !reason.empty(), reason);
}

}  // namespace

void check_overlap(const Facts& facts, Check& check) {
  check_tensor_overlap(facts, check);
  check_late_weights(facts, check);
  check_expert_overlap(facts, check);
  check_graphs(facts, check);
}

}  // namespace trainctl
