// Messages between pipeline stages, and weight gradients deferred until the pipeline drains.

#include "config/schema/words.h"
#include "plan/rules/check.h"

namespace trainctl {

namespace {

const char* overlap_path = "parallel.pipeline.overlap_p2p_comm";
const char* batch_path = "parallel.pipeline.batch_p2p_comm";
const char* ring_path = "parallel.pipeline.use_ring_exchange_p2p";

/// A ring exchange is a batch with both neighbours.
void check_batches(const Facts& facts, Check& check) {
  const PipelineConfig& pipeline = facts.parallel().pipeline;
  const ScheduleTraits& traits = traits_of(pipeline.scheduler);
  if (traits.batches || facts.mesh.pp == 1 || facts.unsplit) return;
  const auto refuse = [&](const char* path, const std::string& key) {
    check.error("scheduler-batches", path,
                "scheduler " + std::string(traits.word) +
                    " exchanges its messages one by one, but " + key + " is true",
                "set " + key + " to false or leave it out, or set scheduler to 1f1b");
  };
  if (pipeline.use_ring_exchange_p2p) {
    refuse(ring_path, "use_ring_exchange_p2p");
  } else if (pipeline.batch_p2p_comm == true) {
    refuse(batch_path, "batch_p2p_comm");
  }
}

void check_overlapped(const Facts& facts, Check& check) {
  const PipelineConfig& pipeline = facts.parallel().pipeline;
  if (!check.clean({overlap_path, batch_path, ring_path})) return;
  check_batches(facts, check);
  if (pipeline.use_ring_exchange_p2p) return;
  if (pipeline.overlap_p2p_comm && pipeline.batch_p2p_comm == true) {
    check.error("overlap-batch", batch_path,
                "batch_p2p_comm and overlap_p2p_comm must not both be true: a batch of messages "
                "completes as a whole",
                "set batch_p2p_comm to false or leave it out, or set overlap_p2p_comm to false");
    return;
  }
  if (pipeline.overlap_p2p_comm_warmup_flush && !pipeline.overlap_p2p_comm) {
    check.error("warmup-flush", "parallel.pipeline.overlap_p2p_comm_warmup_flush",
                "overlap_p2p_comm_warmup_flush needs overlap_p2p_comm, which is false",
                "set overlap_p2p_comm to true, or overlap_p2p_comm_warmup_flush to false");
    return;
  }
  const bool known = facts.mesh_is_clean(check) &&
                     check.clean({"parallel.virtual_pipeline_stages", "parallel.pipeline"});
  // Megatron's rule for its schedule without chunks; it has no GPipe.
  const bool overlaps = traits_of(pipeline.scheduler).overlaps;
  if (pipeline.overlap_p2p_comm && known && !overlaps && facts.mesh.pp > 1 && facts.chunks == 1) {
    check.error("overlap-chunks", overlap_path,
                "overlap_p2p_comm needs several chunks per stage, but virtual_pipeline_stages is 1",
                "set virtual_pipeline_stages to 2, scheduler to gpipe, or overlap_p2p_comm to "
                "false");
  }
}

void remark_ways(const Facts& facts, Check& check) {
  const PipelineConfig& pipeline = facts.parallel().pipeline;
  if (pipeline.use_ring_exchange_p2p) {
    const char* reason = "use_ring_exchange_p2p replaces single messages";
    check.no_effect(batch_path, pipeline.batch_p2p_comm.has_value(), reason);
    check.no_effect(overlap_path, pipeline.overlap_p2p_comm, reason);
  }
  check.no_effect("parallel.pipeline.comm_backend",
                  pipeline.comm_backend == PipelineCommBackend::nccl && facts.mesh.pp > 1 &&
                      resolve_device(facts.parallel(), facts.site) == DeviceKind::cpu,
                  "NCCL carries messages between devices, and device is cpu");
  const auto compute = resolve_compute(facts.config.precision);
  if (pipeline.dtype && *pipeline.dtype != compute && facts.mesh.pp > 1 &&
      check.clean({"parallel.pipeline.dtype", "precision.compute"})) {
    check.warning("pipeline-dtype", "parallel.pipeline.dtype",
                  "messages between stages are rounded to " +
                      std::string(word_of(*pipeline.dtype)) + ", but precision.compute is " +
                      std::string(word_of(compute)),
                  "set dtype to " + std::string(word_of(compute)) + " or leave it out");
  }
}

/// Why gradients are summed after each micro-batch, and what changes that; "" if they are not.
std::pair<std::string, std::string> summed_for_each(const Config& config) {
  if (config.hooks.no_sync == NoSync::never) {
    return {"hooks.no_sync is never", "set hooks.no_sync to last_microbatch"};
  }
  if (resolve_optimizer_level(config.parallel) != OptimizerLevel::level1) {
    return {"the parallel optimizer's level sums them after each micro-batch",
            "set optimizer_level to level1"};
  }
  if (type_of_gradients(config.optimizer) == DType::f32) return {};
  return {"main_grads_dtype (bf16) adds them up after each micro-batch",
          "set main_grads_dtype to fp32"};
}

void check_deferral(const Facts& facts, Check& check) {
  const PipelineConfig& pipeline = facts.parallel().pipeline;
  const char* path = "parallel.pipeline.defer_embedding_wgrad_compute";
  const char* limit = "parallel.pipeline.wgrad_deferral_limit";
  check.range(limit, pipeline.wgrad_deferral_limit, 0, std::int64_t{1} << 40);
  if (!pipeline.defer_embedding_wgrad_compute || facts.unsplit || !check.clean({path}) ||
      !facts.mesh_is_clean(check))
    return;
  if (facts.mesh.pp == 1) {
    check.error("defer-wgrad", path,
                "defer_embedding_wgrad_compute uses the time while a pipeline drains, but "
                "pipeline_stages is 1",
                "set pipeline_stages to 2 or more, or defer_embedding_wgrad_compute to false");
  } else if (!facts.parallel().gradient_accumulation_fusion.value_or(false) &&
             check.clean({"parallel.gradient_accumulation_fusion"})) {
    check.error("defer-wgrad", path,
                "defer_embedding_wgrad_compute needs gradient_accumulation_fusion, which is not "
                "true",
                "set gradient_accumulation_fusion to true, or defer_embedding_wgrad_compute "
                "to false");
  } else if (const auto [why, hint] = summed_for_each(facts.config); !why.empty()) {
    check.error(
        "defer-wgrad", path,
        "defer_embedding_wgrad_compute needs gradients that are summed once in a step, but " + why,
        hint + ", or defer_embedding_wgrad_compute to false");
  }
}

/// Micro-batches as long as their longest document: with or without stages.
void check_lengths(const Facts& facts, Check& check) {
  const char* path = "parallel.pipeline.variable_seq_lengths";
  const bool varies = facts.parallel().pipeline.variable_seq_lengths;
  check.no_effect(path, varies && facts.config.data.packing,
                  "data.packing is true, so that every sequence has seq_length tokens");
  if (!varies || facts.config.data.packing || facts.model.experts == 1) return;
  const std::int64_t sequence = facts.model.seq_length;
  const auto check_group = [&](const std::string& key, std::int64_t group) {
    const std::string place = "moe." + key;
    if (group < 1 || sequence < 1 || !check.clean({place.c_str(), "model.seq_length"})) return;
    if (group % sequence == 0 || sequence % group == 0) return;
    check.error("variable-lengths", place,
                "with variable_seq_lengths a group must have whole sequences, or divide one: " +
                    indivisible(named("seq_length", sequence), named(key, group)),
                "set " + key + " to " + divisors_near(sequence, group) + ", or to a multiple of " +
                    std::to_string(sequence));
  };
  const std::optional<std::int64_t> apart = facts.config.moe.capacity_group_size;
  check_group("expert_group_size", facts.model.routing_group);
  if (apart) check_group("capacity_group_size", facts.model.capacity_group);
}

/// Keys of the pipeline section that have no effect with one stage.
void remark_one_stage(const Facts& facts, Check& check) {
  const PipelineConfig& pipeline = facts.parallel().pipeline;
  const std::string reason = "pipeline_stages is 1";
  const auto idle = [&](const char* key, bool differs) {
    check.no_effect("parallel.pipeline." + std::string(key), differs, reason);
  };
  idle("dtype", pipeline.dtype.has_value());
  idle("comm_backend", pipeline.comm_backend.has_value());
  idle("overlap_p2p_comm", pipeline.overlap_p2p_comm);
  idle("batch_p2p_comm", pipeline.batch_p2p_comm == false);
  idle("use_ring_exchange_p2p", pipeline.use_ring_exchange_p2p);
  idle("overlap_p2p_comm_warmup_flush", pipeline.overlap_p2p_comm_warmup_flush);
  idle("deallocate_outputs", pipeline.deallocate_outputs);
  idle("result_broadcast", pipeline.result_broadcast);
}

}  // namespace

void check_messages(const Facts& facts, Check& check) {
  check_overlapped(facts, check);
  check_deferral(facts, check);
  check_lengths(facts, check);
  if (!facts.mesh_is_clean(check) || facts.unsplit) return;
  if (facts.mesh.pp == 1) remark_one_stage(facts, check);
  remark_ways(facts, check);
}

}  // namespace trainctl
