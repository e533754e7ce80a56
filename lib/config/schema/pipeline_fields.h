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
        field("account_for_embedding", "Count the embedding as a layer when dividing the layers"));
  visit(pipeline.account_for_loss,
        field("account_for_loss", "Count the loss as a layer when dividing the layers"));
  visit(pipeline.layout,
        field("layout",
              "Stages as text: E embedding, t layer, L loss, | between stages; auto: so "
              "that the most expensive chunk is cheapest")
            .from(1)
            .unset("layers are divided by count"));
  visit(pipeline.offset, field("offset", "Layers added to the even share, one number per stage")
                             .from(-10'000)
                             .to(10'000)
                             .unset("none"));
}

template <class Visitor>
void fields(Visitor& visit, Is<PipelineConfig> auto& pipeline) {
  visit(pipeline.scheduler,
        field("scheduler", "Order of forward and backward passes on each stage"));
  visit(pipeline.interleave, field("interleave", "Several chunks of layers per stage")
                                 .unset("virtual_pipeline_stages > 1"));
  visit(pipeline.microbatch_group_size_per_vp_stage,
        field("microbatch_group_size_per_vp_stage",
              "Micro-batches that run on one chunk before the next chunk starts")
            .from(1)
            .to(1 << 24)
            .unset("pipeline_stages"));
  pipeline_placement_fields(visit, pipeline);
  visit(pipeline.dtype, field("dtype", "Type of the messages").unset("precision.compute"));
  visit(pipeline.comm_backend, field("comm_backend", "Library for the messages between stages")
                                   .unset("the default of the device"));
  visit(pipeline.variable_seq_lengths,
        field("variable_seq_lengths",
              "A micro-batch is as long as its longest document, not seq_length"));
  visit(pipeline.overlap_p2p_comm,
        field("overlap_p2p_comm", "Post receives one pass ahead (needs chunks or gpipe)"));
  visit(pipeline.batch_p2p_comm,
        field("batch_p2p_comm", "Post adjacent messages as one batch")
            .unset("not overlap_p2p_comm; false for zb-v, and for zb-h1 with several chunks"));
  visit(pipeline.batch_p2p_sync,
        field("batch_p2p_sync", "Wait for the device after each batch of messages"));
  visit(pipeline.use_ring_exchange_p2p,
        field("use_ring_exchange_p2p", "Exchange with both neighbours in one call"));
  visit(pipeline.overlap_p2p_comm_warmup_flush,
        field("overlap_p2p_comm_warmup_flush", "Overlap in warm-up and cool-down too"));
  visit(pipeline.deallocate_outputs,
        field("deallocate_outputs", "Free a chunk's output after it is sent"));
  visit(pipeline.result_broadcast,
        field("result_broadcast",
              "Send the last stage's validation and generation results to every stage"));
  visit(pipeline.defer_embedding_wgrad_compute,
        field("defer_embedding_wgrad_compute",
              "Compute the head's weight gradients while the pipeline drains"));
  visit(pipeline.wgrad_deferral_limit,
        field("wgrad_deferral_limit", "Number of micro-batches to defer; 0: all").from(0));
}

template <class Visitor>
void fields(Visitor& visit, Is<OperatorSplitsConfig> auto& splits) {
  constexpr const char* vocabulary = "features; with vocab_emb_dp tokens or whole";
  visit(splits.embedding, field("embedding", "Split of the token table").unset(vocabulary));
  visit(splits.attention,
        field("attention",
              "Split of attention and its products: features, tokens or whole, or one "
              "for each layer as in features*2, tokens*2")
            .unset("features"));
  visit(splits.feed_forward,
        field("feed_forward", "The same of the MLP, in layers without experts").unset("features"));
  visit(splits.head, field("head", "Split of the logits and the loss").unset(vocabulary));
}

template <class Visitor>
void fields(Visitor& visit, Is<TpCommOverlapConfig> auto& overlap) {
  visit(overlap.enable,
        field("enable", "Run tensor-parallel collectives at the same time as the products"));
  visit(overlap.ag, field("ag", "Pipeline the all-gather with the product"));
  visit(overlap.rs, field("rs", "Pipeline the reduce-scatter with the product"));
  visit(overlap.rs_dgrad,
        field("rs_dgrad", "Pipeline the reduce-scatter with the input gradient's product"));
  visit(overlap.bulk_dgrad,
        field("bulk_dgrad", "Run the all-gather at the same time as the input gradient"));
  visit(overlap.bulk_wgrad,
        field("bulk_wgrad", "Run the reduce-scatter at the same time as the weight gradient"));
  visit(overlap.disable_qkv, field("disable_qkv", "No overlap for q, k and v"));
  visit(overlap.disable_fc1, field("disable_fc1", "No overlap for the MLP's first product"));
  visit(overlap.bootstrap_backend,
        field("bootstrap_backend", "Library that exchanges the buffer handles"));
  visit(overlap.split_ag, field("split_ag", "Deprecated, has no effect: use ag"));
  visit(overlap.atomic_ag, field("atomic_ag", "Deprecated, has no effect: use ag"));
  visit(overlap.split_rs, field("split_rs", "Deprecated, has no effect: use rs"));
  visit(overlap.atomic_rs, field("atomic_rs", "Deprecated, has no effect: use rs"));
  visit(overlap.async_allreduce, field("async_allreduce", "Deprecated, has no effect: use enable"));
}

template <class Visitor>
void fields(Visitor& visit, Is<StrategyFileConfig> auto& files) {
  visit(files.load_file, field("load_file", "Strategy file to read; .json or protobuf"));
  visit(files.save_file, field("save_file", "Strategy file to write; .json or protobuf"));
  visit(files.only_trainable_params,
        field("only_trainable_params", "Write only parameters that are trained"));
}

}  // namespace trainctl
