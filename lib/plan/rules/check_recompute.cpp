// Activations that are recomputed, or offloaded to the host.
#include "plan/rules/check.h"

namespace trainctl {

namespace {

const char* partial_path = "recompute.num_microbatches_with_partial_activation_checkpoints";

std::string text_of(std::int64_t value) { return std::to_string(value); }

void check_layers(const Facts& facts, Check& check) {
  const auto& layers = facts.config.recompute.layers_per_stage;
  const char* path = "recompute.layers_per_stage";
  if (!layers || !check.clean({path})) return;
  const auto count = static_cast<std::int64_t>(layers->size());
  if (count != facts.mesh.pp) {
    check.error("recompute-layers", path,
                "expected one number for each of " + named("pipeline_stages", facts.mesh.pp) +
                    ", found " + text_of(count),
                "give " + counted(facts.mesh.pp, "number") +
                    ", or leave the list out to recompute all layers");
    return;
  }
  for (const std::int64_t held : *layers) {
    if (held >= 0 && held <= facts.config.model.num_layers) continue;
    check.error("recompute-layers", path,
                "each number must be from 0 to " +
                    named("model.num_layers", facts.config.model.num_layers) + ", found " +
                    text_of(held),
                "set each number to at most " + text_of(facts.config.model.num_layers));
    return;
  }
}

void check_slices(const Facts& facts, Check& check) {
  const RecomputeConfig& recompute = facts.config.recompute;
  const char* path = "recompute.slice_activation";
  if (recompute.slice_activation && facts.parallel().sequence_parallel && facts.mesh.tp > 1 &&
      check.clean({path, "parallel.sequence_parallel"})) {
    check.error("recompute-slice", path,
                "slice_activation splits saved activations among tensor-parallel ranks, but "
                "sequence_parallel has already split them",
                "set slice_activation or sequence_parallel to false");
  }
  if (facts.mesh.tp > 1) return;
  check.no_effect(path, recompute.slice_activation, "tensor_parallel is 1");
  check.no_effect("recompute.mp_comm_recompute", !recompute.mp_comm_recompute,
                  "tensor_parallel is 1");
}

void check_offload(const Facts& facts, Check& check) {
  const OffloadConfig& offload = facts.config.offload;
  if (!offload.enable || !check.clean({"offload.enable", "offload.num_layers", "model.num_layers"}))
    return;
  const std::int64_t layers = facts.config.model.num_layers;
  if (offload.num_layers < 0 || offload.num_layers >= layers) {
    check.error("offload-layers", "offload.num_layers",
                named("offload.num_layers", offload.num_layers) + " must be from 0 to " +
                    text_of(layers - 1) + ", below " + named("model.num_layers", layers),
                "set offload.num_layers to at most " + text_of(layers - 1));
  } else if (facts.mesh_is_clean(check) && facts.mesh.pp > 1) {
    check.error("offload-stages", "offload.enable",
                "offloading counts layers from the start of the model, but pipeline_stages is " +
                    text_of(facts.mesh.pp),
                "set pipeline_stages to 1, or offload.enable to false");
  } else if (facts.config.recompute.enable && check.clean({"recompute.enable"})) {
    check.error("offload-recompute", "offload.enable",
                "offload.enable and recompute.enable must not both be true: recomputed "
                "activations are not kept",
                "set offload.enable or recompute.enable to false");
  } else if (offload.num_layers == 0) {
    check.no_effect("offload.enable", true, "offload.num_layers is 0");
  } else if (!offload.activations && !offload.weights) {
    check.no_effect("offload.enable", true, "neither activations nor weights are offloaded");
  }
}

}  // namespace

void check_recompute(const Facts& facts, Check& check) {
  const RecomputeConfig& recompute = facts.config.recompute;
  check_offload(facts, check);
  if (!recompute.enable || !facts.mesh_is_clean(check) || !check.clean({"recompute.enable"}))
    return;
  check_layers(facts, check);
  check_slices(facts, check);
  if (!facts.parallel().parallel_optimizer.enable) {
    check.no_effect("recompute.parallel_optimizer_comm_recompute",
                    recompute.parallel_optimizer_comm_recompute,
                    "parallel_optimizer.enable is false");
  }
  if (facts.mesh.pp == 1) {
    check.no_effect(partial_path,
                    recompute.num_microbatches_with_partial_activation_checkpoints.has_value(),
                    "pipeline_stages is 1");
  }
}

}  // namespace trainctl
