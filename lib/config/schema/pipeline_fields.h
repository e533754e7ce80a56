// The field lists of parallel.pipeline, tp_comm_overlap and strategy_ckpt_config; see fields.h.
#pragma once

#include "config/schema/field.h"
#include "config/schema/model_fields.h"
#include "config/schema/parallel_config.h"

namespace trainctl {

template <class Visitor>
void pipeline_placement_fields(Visitor& visit, Is<PipelineConfig> auto& pipeline) {
  visit(pipeline.first_stage_layers,
        field("first_stage_layers", "Layers of the first stage").from(1).to(10'000).unset("even"));
  visit(pipeline.last_stage_layers,
        field("last_stage_layers", "Layers of the last stage").from(1).to(10'000).unset("even"));
  visit(pipeline.account_for_embedding,
        field("account_for_embedding", "The embedding counts as a layer when stages are cut"));
  visit(pipeline.account_for_loss,
        field("account_for_loss", "The loss counts as a layer when stages are cut"));
  visit(pipeline.layout,
        field("layout", "Stages in words: E embedding, t layer, L loss, | between stages")
            .from(1)
            .unset("layers are cut by count"));
  visit(pipeline.offset,
        field("offset", "Layers more or less than the even share, one number for each stage")
            .from(-10'000)
            .to(10'000)
            .unset("none"));
}

template <class Visitor>
void fields(Visitor& visit, Is<PipelineConfig> auto& pipeline) {
  visit(pipeline.scheduler, field("scheduler", "Order of forward and backward on each stage"));
  visit(pipeline.interleave, field("interleave", "Several chunks of layers per stage")
                                 .unset("virtual_pipeline_stages > 1"));
  visit(pipeline.microbatch_group_size_per_vp_stage,
        field("microbatch_group_size_per_vp_stage",
              "Micro-batches that run on one chunk before the next chunk's turn")
            .from(1)
            .to(1 << 24)
            .unset("pipeline_stages"));
  pipeline_placement_fields(visit, pipeline);
  visit(pipeline.dtype, field("dtype", "Type of what is sent").unset("precision.compute"));
  visit(pipeline.comm_backend,
        field("comm_backend", "Library of the pipeline's messages").unset("the device's own"));
  visit(pipeline.variable_seq_lengths,
        field("variable_seq_lengths", "Send the shape before each message"));
  visit(pipeline.overlap_p2p_comm,
        field("overlap_p2p_comm", "Receives are posted ahead (with chunks, or gpipe)"));
  visit(pipeline.batch_p2p_comm, field("batch_p2p_comm", "Neighbouring messages form one batch")
                                     .unset("not overlap_p2p_comm"));
  visit(pipeline.batch_p2p_sync,
        field("batch_p2p_sync", "Wait for the device after each batch of messages"));
  visit(pipeline.use_ring_exchange_p2p,
        field("use_ring_exchange_p2p", "One ring exchange instead of single messages"));
  visit(pipeline.overlap_p2p_comm_warmup_flush,
        field("overlap_p2p_comm_warmup_flush", "Overlap in warm-up and cool-down too"));
  visit(pipeline.deallocate_outputs,
        field("deallocate_outputs", "A chunk's output is not kept once it is sent"));
  visit(pipeline.result_broadcast,
        field("result_broadcast", "Every stage learns what the last one evaluates or generates"));
  visit(pipeline.defer_embedding_wgrad_compute,
        field("defer_embedding_wgrad_compute",
              "The head's weight gradients run while the pipeline drains"));
  visit(pipeline.wgrad_deferral_limit,
        field("wgrad_deferral_limit", "Micro-batches whose gradient is deferred; 0: all").from(0));
}

template <class Visitor>
void fields(Visitor& visit, Is<TpCommOverlapConfig> auto& overlap) {
  visit(overlap.enable, field("enable", "Tensor-parallel collectives run beside the products"));
  visit(overlap.ag, field("ag", "The all-gather is pipelined with the product"));
  visit(overlap.rs, field("rs", "The reduce-scatter is pipelined with the product"));
  visit(overlap.rs_dgrad, field("rs_dgrad", "The same for the input gradient's product"));
  visit(overlap.bulk_dgrad, field("bulk_dgrad", "The gather runs beside the input gradient"));
  visit(overlap.bulk_wgrad, field("bulk_wgrad", "The scatter runs beside the weight gradient"));
  visit(overlap.disable_qkv, field("disable_qkv", "Not for q, k and v"));
  visit(overlap.disable_fc1, field("disable_fc1", "Not for the MLP's first product"));
  visit(overlap.bootstrap_backend,
        field("bootstrap_backend", "Library that exchanges the buffers' handles"));
  visit(overlap.split_ag, field("split_ag", "Deprecated and without effect: use ag"));
  visit(overlap.atomic_ag, field("atomic_ag", "Deprecated and without effect: use ag"));
  visit(overlap.split_rs, field("split_rs", "Deprecated and without effect: use rs"));
  visit(overlap.atomic_rs, field("atomic_rs", "Deprecated and without effect: use rs"));
  visit(overlap.async_allreduce,
        field("async_allreduce", "Deprecated and without effect: use enable"));
}

template <class Visitor>
void fields(Visitor& visit, Is<StrategyFileConfig> auto& files) {
  visit(files.load_file, field("load_file", "Strategy file to read; .json or protobuf"));
  visit(files.save_file, field("save_file", "Strategy file to write; .json or protobuf"));
  visit(files.only_trainable_params,
        field("only_trainable_params", "Leave out parameters that are not trained"));
}

}  // namespace trainctl
