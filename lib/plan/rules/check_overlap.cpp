// Communication that overlaps computation: tensor-parallel collectives, the exchange between
// experts, delayed weight gradients.
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

/// The unmet requirements of overlap_expert_parallel_comm, each with its value.
std::vector<std::string> unmet_needs(const Facts& facts) {
  const Config& config = facts.config;
  std::vector<std::string> unmet;
  if (facts.mesh.ep <= 1) unmet.emplace_back("expert_parallel above 1 (it is 1)");
  if (facts.mesh.pp > 1 && facts.chunks == 1) {
    unmet.push_back("virtual_pipeline_stages above 1 with pipeline_stages " +
                    std::to_string(facts.mesh.pp) + " (it is 1)");
  }
  if (resolve_compute(config.precision) == ComputeType::fp32) {
    unmet.emplace_back("precision.compute bf16 or fp16 (it is fp32)");
  }
  if (config.recompute.enable) unmet.emplace_back("recompute.enable false (it is true)");
  if (const auto& partial = config.recompute.num_microbatches_with_partial_activation_checkpoints) {
    unmet.push_back(
        "recompute.num_microbatches_with_partial_activation_checkpoints left out (it is " +
        std::to_string(*partial) + ")");
  }
  return unmet;
}

void check_expert_overlap(const Facts& facts, Check& check) {
  const char* path = "moe.overlap_expert_parallel_comm";
  if (!facts.config.moe.overlap_expert_parallel_comm || !check.clean({path}) ||
      !facts.mesh_is_clean(check) ||
      !check.clean({"precision.compute", "parallel.virtual_pipeline_stages", "moe.num_experts"})) {
    return;
  }
  if (facts.unsplit) {
    check.no_effect(path, true, "this parallel_mode has no expert-parallel ranks");
    return;
  }
  std::string list;
  for (const std::string& need : unmet_needs(facts)) list += (list.empty() ? "" : ", ") + need;
  if (list.empty()) return;
  check.error("expert-overlap", path, "overlap_expert_parallel_comm needs " + list,
              "change the listed values, or set overlap_expert_parallel_comm to false");
}

}  // namespace

void check_overlap(const Facts& facts, Check& check) {
  check_tensor_overlap(facts, check);
  check_late_weights(facts, check);
  check_expert_overlap(facts, check);
}

}  // namespace trainctl
