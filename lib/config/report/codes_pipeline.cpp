// The codes about pipeline stages, their schedule and their messages.
#include "config/report/codes.h"

namespace trainctl {

namespace {

constexpr CodeNote pipeline_notes[] = {
    {"stage-layers", "The layers cannot be divided among the stages",
     "By default every stage has num_layers / pipeline_stages layers. With first_stage_layers or "
     "last_stage_layers the other stages share the rest evenly; with account_for_embedding or "
     "account_for_loss, the embedding or the loss counts as a layer (Megatron). In "
     "semi_auto_parallel and auto_parallel the last stage gets the remainder (MindSpore).",
     "model: {num_layers: 10}, parallel: {pipeline_stages: 4}",
     "model: {num_layers: 12}, parallel: {pipeline_stages: 4}"},
    {"chunk-layers", "The layers of a stage cannot be divided among its chunks",
     "The layers of each stage must be divisible by virtual_pipeline_stages (Megatron).",
     "model: {num_layers: 12}, parallel: {pipeline_stages: 4, virtual_pipeline_stages: 2}",
     "model: {num_layers: 16}, parallel: {pipeline_stages: 4, virtual_pipeline_stages: 2}"},
    {"pipeline-offset", "pipeline.offset does not match the stages",
     "offset gives for each stage (and chunk) how many layers more or fewer than num_layers / "
     "pipeline_stages it has. There is one number for each, and the resulting counts must add up "
     "to "
     "num_layers (MindFormers).",
     "model: {num_layers: 8}, parallel: {pipeline_stages: 2, pipeline: {offset: [1, 0]}}",
     "model: {num_layers: 8}, parallel: {pipeline_stages: 2, pipeline: {offset: [1, -1]}}"},
    {"layout-syntax", "pipeline.layout cannot be read",
     "E is the embedding, t a layer, L the loss, | separates stages; x*n and (..)*n repeat "
     "(Megatron: PipelineParallelLayerLayout).",
     "parallel: {pipeline_stages: 2, pipeline: {layout: Ett|ttX}}",
     "parallel: {pipeline_stages: 2, pipeline: {layout: Ett|ttL}}"},
    {"layout-stages", "pipeline.layout does not match the model or the stages",
     "It must start with E and end with L, contain each of them once and t once per layer, and "
     "have a "
     "multiple of pipeline_stages stages (Megatron).",
     "model: {num_layers: 4}, parallel: {pipeline_stages: 2, pipeline: {layout: Et|ttL}}",
     "model: {num_layers: 4}, parallel: {pipeline_stages: 2, pipeline: {layout: Ett|ttL}}"},
    {"layout-chunks", "pipeline.layout and virtual_pipeline_stages disagree",
     "The number of stages in the layout divided by pipeline_stages is the number of chunks per "
     "stage (Megatron).",
     "parallel: {pipeline_stages: 2, virtual_pipeline_stages: 2, pipeline: {layout: Ett|ttL}}",
     "parallel: {pipeline_stages: 2, virtual_pipeline_stages: 2, pipeline: {layout: Et|t|t|tL, "
     "overlap_p2p_comm: true}}"},
    {"placement-conflict", "Two options place the layers",
     "Only one of layout, offset, first_stage_layers with last_stage_layers, and "
     "account_for_embedding with account_for_loss may be given (Megatron).",
     "parallel: {pipeline: {account_for_loss: true, first_stage_layers: 3}}",
     "parallel: {pipeline: {first_stage_layers: 3}}"},
    {"virtual-stages", "Chunks without a pipeline",
     "virtual_pipeline_stages is the number of chunks of layers on each pipeline stage, so "
     "pipeline_stages must be above 1 (Megatron: initialize_model_parallel).",
     "parallel: {virtual_pipeline_stages: 2}",
     "parallel: {pipeline_stages: 4, virtual_pipeline_stages: 2}"},
    {"virtual-stages-two", "Chunks on two stages without overlapped messages",
     "With two stages the previous and the next rank are the same, so Megatron refuses several "
     "chunks per stage if overlap_p2p_comm is set to false (Megatron: validate_args, where true is "
     "the default).",
     "parallel: {pipeline_stages: 2, virtual_pipeline_stages: 2, "
     "pipeline: {overlap_p2p_comm: false}}",
     "parallel: {pipeline_stages: 2, virtual_pipeline_stages: 2}"},
    {"microbatch-group", "The micro-batches cannot be grouped for the interleaved schedule",
     "microbatch_group_size_per_vp_stage (default: pipeline_stages) must be from pipeline_stages "
     "to "
     "the number of micro-batches, and the last group must be full or have at least "
     "pipeline_stages "
     "micro-batches (Megatron: the interleaved schedule).",
     "6 micro-batches: parallel: {pipeline_stages: 4, virtual_pipeline_stages: 2}",
     "8 micro-batches: parallel: {pipeline_stages: 4, virtual_pipeline_stages: 2}"},
    {"micro-batches-stages", "Fewer micro-batches than stages",
     "micro_batch_num must be at least pipeline_stages (MindFormers: TransformerOpParallelConfig). "
     "The rule applies to semi_auto_parallel and auto_parallel, and to every mode except "
     "hybrid_parallel if micro_batch_num is given; Megatron's schedules accept fewer.",
     "train: {micro_batch_num: 2}, parallel: {pipeline_stages: 4}",
     "train: {micro_batch_num: 4}, parallel: {pipeline_stages: 4}"},
    {"interleave-micro-batches", "Too few micro-batches for MindSpore's interleaving",
     "In semi_auto_parallel and auto_parallel with several chunks per stage, the number of "
     "micro-batches must be a multiple of pipeline_stages and at least twice pipeline_stages "
     "(MindSpore's scheduler).",
     "4 micro-batches: parallel: {parallel_mode: semi_auto_parallel, pipeline_stages: 4, "
     "virtual_pipeline_stages: 2}",
     "8 micro-batches: the same"},
    {"interleave-chunks", "interleave is false, but there are chunks",
     "pipeline.interleave follows from virtual_pipeline_stages and may be left out; false "
     "contradicts "
     "several chunks per stage. Unlike in MindSpore, gpipe does not need interleave.",
     "parallel: {pipeline_stages: 4, virtual_pipeline_stages: 2, pipeline: {interleave: false}}",
     "parallel: {pipeline_stages: 4, virtual_pipeline_stages: 2, pipeline: {interleave: true}}"},
    {"scheduler-chunks", "A number of chunks per stage that the schedule does not have",
     "ZB-V (Qi et al. 2024) has two chunks of layers per stage: data passes the stages down and "
     "back up.",
     "parallel: {pipeline_stages: 4, pipeline: {scheduler: zb-v}}",
     "parallel: {pipeline_stages: 4, virtual_pipeline_stages: 2, pipeline: {scheduler: zb-v}}"},
    {"scheduler-batches", "batch_p2p_comm with a schedule that has no batches",
     "In ZB-V a stage exchanges messages with both neighbours in both directions at any time; in "
     "batches, stages would wait for each other.",
     "parallel: {pipeline_stages: 4, virtual_pipeline_stages: 2, pipeline: {scheduler: zb-v, "
     "batch_p2p_comm: true}}",
     "parallel: {pipeline_stages: 4, virtual_pipeline_stages: 2, pipeline: {scheduler: zb-v}}"},
    {"overlap-batch", "overlap_p2p_comm together with batch_p2p_comm",
     "overlap_p2p_comm waits for each message on its own, batch_p2p_comm for all at once "
     "(Megatron's interleaved schedule). batch_p2p_comm may be left out.",
     "parallel: {pipeline: {overlap_p2p_comm: true, batch_p2p_comm: true}}",
     "parallel: {pipeline: {overlap_p2p_comm: true}}"},
    {"overlap-chunks", "overlap_p2p_comm without chunks",
     "Megatron refuses it for 1F1B with one chunk per stage, where there is little work to overlap "
     "with a message. GPipe, which Megatron lacks, overlaps with one chunk too.",
     "parallel: {pipeline_stages: 4, pipeline: {overlap_p2p_comm: true}}",
     "parallel: {pipeline_stages: 4, virtual_pipeline_stages: 2, "
     "pipeline: {overlap_p2p_comm: true}}"},
    {"warmup-flush", "overlap_p2p_comm_warmup_flush without overlap_p2p_comm",
     "It extends the overlap of messages to warm-up and cool-down (Megatron: "
     "ModelParallelConfig).",
     "parallel: {pipeline: {overlap_p2p_comm_warmup_flush: true}}",
     "parallel: {pipeline: {overlap_p2p_comm: true, overlap_p2p_comm_warmup_flush: true}}"},
    {"defer-wgrad", "Requirements of defer_embedding_wgrad_compute are not met",
     "The weight gradients of the output layer are deferred until the pipeline drains. That needs "
     "several stages and gradient_accumulation_fusion (Megatron: ModelParallelConfig), and "
     "gradients that are summed once in a step.",
     "parallel: {pipeline: {defer_embedding_wgrad_compute: true}}",
     "parallel: {pipeline_stages: 2, gradient_accumulation_fusion: true, "
     "pipeline: {defer_embedding_wgrad_compute: true}}"},
    {"variable-lengths", "routing groups of parts of several sequences, which vary",
     "A micro-batch is as long as its longest document. What routers of experts count over, "
     "expert_group_size tokens, must be whole sequences, which get shorter with it, or a part of "
     "one.",
     "model: {add_bias_linear: false, seq_length: 16}, moe: {num_experts: 4, expert_group_size: "
     "24}, train: {micro_batch_size: 3, global_batch_size: 3}, data: {packing: false}, parallel: "
     "{pipeline: {variable_seq_lengths: true}}",
     "model: {add_bias_linear: false, seq_length: 16}, moe: {num_experts: 4, expert_group_size: "
     "8}, data: {packing: false}, parallel: {pipeline: {variable_seq_lengths: true}}"},
    {"pipeline-dtype", "pipeline.dtype differs from precision.compute",
     "pipeline.dtype is the type of the messages between stages; it may be left out (Megatron "
     "requires it). A type other than precision.compute rounds activations between stages.",
     "precision: {compute: fp32}, parallel: {pipeline_stages: 2, pipeline: {dtype: bf16}}",
     "precision: {compute: bf16}, parallel: {pipeline_stages: 2, pipeline: {dtype: bf16}}"},
};

}  // namespace

std::span<const CodeNote> codes_of_pipeline() { return pipeline_notes; }

}  // namespace trainctl
