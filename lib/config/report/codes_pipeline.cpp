// The codes about pipeline stages, their schedule and their messages.
#include "config/report/codes.h"

namespace trainctl {

namespace {

constexpr CodeNote notes[] = {
    {"stage-layers", "The layers cannot be cut into the stages",
     "Without other wishes every stage has num_layers / pipeline_stages layers. With "
     "first_stage_layers or last_stage_layers the others share the rest evenly; with "
     "account_for_embedding or account_for_loss these count as layers (Megatron). In "
     "semi_auto_parallel and auto_parallel the last stage takes the remainder (MindSpore).",
     "model: {num_layers: 10}, parallel: {pipeline_stages: 4}",
     "model: {num_layers: 12}, parallel: {pipeline_stages: 4}"},
    {"chunk-layers", "A stage's layers cannot be cut into its chunks",
     "The layers of each stage divide by virtual_pipeline_stages (Megatron).",
     "model: {num_layers: 12}, parallel: {pipeline_stages: 4, virtual_pipeline_stages: 2}",
     "model: {num_layers: 16}, parallel: {pipeline_stages: 4, virtual_pipeline_stages: 2}"},
    {"pipeline-offset", "pipeline.offset does not fit the stages",
     "offset says how many layers more or less than num_layers / pipeline_stages each stage (and "
     "chunk) has, so there is a number for each and together they make num_layers (MindFormers).",
     "model: {num_layers: 8}, parallel: {pipeline_stages: 2, pipeline: {offset: [1, 0]}}",
     "model: {num_layers: 8}, parallel: {pipeline_stages: 2, pipeline: {offset: [1, -1]}}"},
    {"layout-syntax", "pipeline.layout cannot be read",
     "E is the embedding, t a layer, L the loss, | stands between stages; x*n and (..)*n repeat "
     "(Megatron: PipelineParallelLayerLayout).",
     "parallel: {pipeline_stages: 2, pipeline: {layout: Ett|ttX}}",
     "parallel: {pipeline_stages: 2, pipeline: {layout: Ett|ttL}}"},
    {"layout-stages", "pipeline.layout does not fit the model or the stages",
     "It starts with E and ends with L, has each once, t as often as there are layers, and a "
     "multiple of pipeline_stages stages (Megatron).",
     "model: {num_layers: 4}, parallel: {pipeline_stages: 2, pipeline: {layout: Et|ttL}}",
     "model: {num_layers: 4}, parallel: {pipeline_stages: 2, pipeline: {layout: Ett|ttL}}"},
    {"layout-chunks", "pipeline.layout and virtual_pipeline_stages disagree",
     "The layout's stages / pipeline_stages are the chunks of each stage (Megatron).",
     "parallel: {pipeline_stages: 2, virtual_pipeline_stages: 2, pipeline: {layout: Ett|ttL}}",
     "parallel: {pipeline_stages: 2, virtual_pipeline_stages: 2, pipeline: {layout: Et|t|t|tL, "
     "overlap_p2p_comm: true}}"},
    {"placement-conflict", "Two rules say where the layers go",
     "layout, offset, first_stage_layers or last_stage_layers, and account_for_embedding or "
     "account_for_loss exclude each other (Megatron).",
     "parallel: {pipeline: {account_for_loss: true, first_stage_layers: 3}}",
     "parallel: {pipeline: {first_stage_layers: 3}}"},
    {"virtual-stages", "Chunks without a pipeline",
     "virtual_pipeline_stages are chunks of layers on each pipeline stage, so pipeline_stages is "
     "above 1 (Megatron: initialize_model_parallel).",
     "parallel: {virtual_pipeline_stages: 2}",
     "parallel: {pipeline_stages: 4, virtual_pipeline_stages: 2}"},
    {"virtual-stages-two", "Chunks on two stages without overlapped messages",
     "With two stages a rank's neighbours before and after it are the same rank, so Megatron "
     "refuses "
     "chunks whose messages are told not to overlap (Megatron: validate_args, where overlapping is "
     "the default).",
     "parallel: {pipeline_stages: 2, virtual_pipeline_stages: 2, "
     "pipeline: {overlap_p2p_comm: false}}",
     "parallel: {pipeline_stages: 2, virtual_pipeline_stages: 2}"},
    {"microbatch-group", "Micro-batches do not form groups for the interleaved schedule",
     "microbatch_group_size_per_vp_stage (default: pipeline_stages) is from pipeline_stages to the "
     "number of micro-batches, and the last group is whole or has at least pipeline_stages "
     "micro-batches (Megatron: the interleaved schedule).",
     "6 micro-batches: parallel: {pipeline_stages: 4, virtual_pipeline_stages: 2}",
     "8 micro-batches: parallel: {pipeline_stages: 4, virtual_pipeline_stages: 2}"},
    {"micro-batches-stages", "Fewer micro-batches than stages",
     "micro_batch_num is at least pipeline_stages (MindFormers: TransformerOpParallelConfig). The "
     "rule holds in semi_auto_parallel and auto_parallel, and wherever micro_batch_num is given "
     "unless the mode is hybrid_parallel; Megatron's schedules take fewer.",
     "train: {micro_batch_num: 2}, parallel: {pipeline_stages: 4}",
     "train: {micro_batch_num: 4}, parallel: {pipeline_stages: 4}"},
    {"interleave-micro-batches", "Too few micro-batches for MindSpore's interleaving",
     "In semi_auto_parallel and auto_parallel, chunks need a multiple of pipeline_stages "
     "micro-batches, at least twice as many (MindSpore's scheduler).",
     "4 micro-batches: parallel: {parallel_mode: semi_auto_parallel, pipeline_stages: 4, "
     "virtual_pipeline_stages: 2}",
     "8 micro-batches: the same"},
    {"interleave-chunks", "interleave is false, but there are chunks",
     "pipeline.interleave follows from virtual_pipeline_stages and may be left out; false with "
     "several chunks contradicts itself. gpipe needs no interleave, unlike in MindSpore.",
     "parallel: {pipeline_stages: 4, virtual_pipeline_stages: 2, pipeline: {interleave: false}}",
     "parallel: {pipeline_stages: 4, virtual_pipeline_stages: 2, pipeline: {interleave: true}}"},
    {"zero-bubble-chunks", "zb-h1 with several chunks per stage",
     "ZB-H1 (Qi et al. 2024) has one chunk of layers on each stage.",
     "parallel: {pipeline_stages: 4, virtual_pipeline_stages: 2, pipeline: {scheduler: zb-h1}}",
     "parallel: {pipeline_stages: 4, pipeline: {scheduler: zb-h1}}"},
    {"overlap-batch", "Messages both overlapped and batched",
     "overlap_p2p_comm waits for each message on its own, batch_p2p_comm for all at once "
     "(Megatron's interleaved schedule). batch_p2p_comm may be left out.",
     "parallel: {pipeline: {overlap_p2p_comm: true, batch_p2p_comm: true}}",
     "parallel: {pipeline: {overlap_p2p_comm: true}}"},
    {"overlap-chunks", "overlap_p2p_comm without chunks",
     "Megatron raises in 1F1B without chunks, where little is left to do while a message travels. "
     "GPipe, which it lacks, overlaps without chunks too.",
     "parallel: {pipeline_stages: 4, pipeline: {overlap_p2p_comm: true}}",
     "parallel: {pipeline_stages: 4, virtual_pipeline_stages: 2, "
     "pipeline: {overlap_p2p_comm: true}}"},
    {"warmup-flush", "overlap_p2p_comm_warmup_flush without overlap_p2p_comm",
     "It extends the overlap of messages to warm-up and cool-down (Megatron: "
     "ModelParallelConfig).",
     "parallel: {pipeline: {overlap_p2p_comm_warmup_flush: true}}",
     "parallel: {pipeline: {overlap_p2p_comm: true, overlap_p2p_comm_warmup_flush: true}}"},
    {"defer-wgrad", "defer_embedding_wgrad_compute lacks what it needs",
     "The head's weight gradients are put off to the time in which the pipeline drains. That needs "
     "several stages and gradient_accumulation_fusion (Megatron: ModelParallelConfig).",
     "parallel: {pipeline: {defer_embedding_wgrad_compute: true}}",
     "parallel: {pipeline_stages: 2, gradient_accumulation_fusion: true, "
     "pipeline: {defer_embedding_wgrad_compute: true}}"},
    {"pipeline-dtype", "Stages send another type than they compute in",
     "pipeline.dtype is the type of what is sent; it need not be given (Megatron requires it). "
     "Another type than precision.compute rounds activations between stages.",
     "precision: {compute: fp32}, parallel: {pipeline_stages: 2, pipeline: {dtype: bf16}}",
     "precision: {compute: bf16}, parallel: {pipeline_stages: 2, pipeline: {dtype: bf16}}"},
};

}  // namespace

std::span<const CodeNote> codes_of_pipeline() { return notes; }

}  // namespace trainctl
