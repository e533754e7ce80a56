// The codes about sharded state, fused collectives, overlap, recomputation and modes.
#include "config/report/codes.h"

namespace trainctl {

namespace {

constexpr CodeNote notes[] = {
    {"weight-shard-size", "weight_shard_size is not a number of ranks of a stage",
     "-1 shares each parameter's state over all its replicas; otherwise the size is from 1 to the "
     "number of ranks, divided by pipeline_stages (MindSpore: (0, device_num / stage]).",
     "8 ranks: parallel: {parallel_optimizer: {enable: true, weight_shard_size: 16}}",
     "8 ranks: parallel: {parallel_optimizer: {enable: true, weight_shard_size: 4}}"},
    {"weight-shard-divides", "weight_shard_size does not divide the replicas",
     "Where the replicas of a parameter do not divide into groups of weight_shard_size, the size "
     "is not applied to it (MindSpore does so in silence; here it is a warning).",
     "8 ranks: parallel: {parallel_optimizer: {enable: true, weight_shard_size: 3}}",
     "8 ranks: parallel: {parallel_optimizer: {enable: true, weight_shard_size: 4}}"},
    {"fusion-mode", "mode index for another collective than the all-reduce",
     "The indices count gradients, so only comm_fusion.allreduce has mode index (MindSpore).",
     "parallel: {comm_fusion: {allgather: {mode: index, config: [4]}}}",
     "parallel: {comm_fusion: {allgather: {mode: size, config: 64}}}"},
    {"fusion-config", "comm_fusion's config is not what its mode takes",
     "auto takes nothing, size a number of MB, index an ascending list of indices, each the last "
     "gradient of its block (MindSpore: comm_fusion, all_reduce_fusion_config).",
     "parallel: {comm_fusion: {allreduce: {mode: size}}}",
     "parallel: {comm_fusion: {allreduce: {mode: size, config: 64}}}"},
    {"tp-overlap-sequence", "tp_comm_overlap without sequence_parallel",
     "tp_comm_overlap runs the gathers and scatters of sequence_parallel beside the products "
     "(Megatron: validate_args).",
     "parallel: {tensor_parallel: 2, tp_comm_overlap: {enable: true}}",
     "parallel: {tensor_parallel: 2, sequence_parallel: true, tp_comm_overlap: {enable: true}}"},
    {"delay-wgrad", "delay_wgrad_compute without the experts' overlap",
     "delay_wgrad_compute puts weight gradients off to run beside the experts' exchange, so it "
     "needs moe.overlap_expert_parallel_comm (Megatron: TransformerConfig).",
     "parallel: {delay_wgrad_compute: true}",
     "parallel: {delay_wgrad_compute: true, ...}, moe: {overlap_expert_parallel_comm: true, ...}"},
    {"expert-overlap", "overlap_expert_parallel_comm lacks what it needs",
     "It needs expert_parallel above 1, virtual_pipeline_stages above 1 where there are several "
     "stages, bf16 or fp16, no recomputation, and no "
     "num_microbatches_with_partial_activation_checkpoints (Megatron: TransformerConfig). The "
     "message lists what is missing.",
     "moe: {num_experts: 4, overlap_expert_parallel_comm: true}",
     "precision: {compute: bf16}, parallel: {expert_parallel: 2}, "
     "moe: {num_experts: 4, overlap_expert_parallel_comm: true}"},
    {"recompute-layers", "layers_per_stage does not fit the stages",
     "layers_per_stage has one number for each pipeline stage, each from 0 to num_layers. "
     "MindFormers takes shorter lists too; what they mean is not said, so they are refused.",
     "parallel: {pipeline_stages: 2}, recompute: {enable: true, layers_per_stage: [1, 1, 1]}",
     "parallel: {pipeline_stages: 2}, recompute: {enable: true, layers_per_stage: [1, 1]}"},
    {"recompute-slice", "slice_activation with sequence_parallel",
     "slice_activation keeps a block's input in slices over the tensor-parallel ranks; with "
     "sequence_parallel it is sliced already (Megatron: distribute_saved_activations).",
     "parallel: {tensor_parallel: 2, sequence_parallel: true}, "
     "recompute: {enable: true, slice_activation: true}",
     "parallel: {tensor_parallel: 2}, recompute: {enable: true, slice_activation: true}"},
    {"offload-layers", "More layers are offloaded than the model can spare",
     "offload.num_layers is at least 0 and below model.num_layers (Megatron: TransformerConfig).",
     "model: {num_layers: 4}, offload: {enable: true, num_layers: 4}",
     "model: {num_layers: 4}, offload: {enable: true, num_layers: 3}"},
    {"offload-stages", "Offloading with several pipeline stages",
     "Offloading counts layers from the model's start and does not go with pipeline_stages above "
     "1 (Megatron: TransformerConfig).",
     "parallel: {pipeline_stages: 2}, offload: {enable: true, num_layers: 1}",
     "parallel: {tensor_parallel: 2}, offload: {enable: true, num_layers: 1}"},
    {"offload-recompute", "Offloading and recomputation together",
     "What is computed again is kept neither on the device nor on the host (Megatron: "
     "TransformerConfig).",
     "offload: {enable: true, num_layers: 1}, recompute: {enable: true}",
     "offload: {enable: true, num_layers: 1}"},
    {"search-pipeline", "dynamic_programming with several stages",
     "With pipeline_stages above 1, auto_parallel searches by recursive_programming or "
     "sharding_propagation (MindSpore).",
     "parallel: {parallel_mode: auto_parallel, search_mode: dynamic_programming, "
     "pipeline_stages: 2}",
     "parallel: {parallel_mode: auto_parallel, search_mode: sharding_propagation, "
     "pipeline_stages: 2}"},
    {"dataset-strategy", "The split of an input does not fit the ranks",
     "For each input dataset_strategy lists the slices of each dim. At most one dim is split; the "
     "first has data_parallel slices; the slices divide the ranks of a stage (MindSpore: "
     "dataset_strategy; MindFormers: dataset_strategy[0][0] == data_parallel).",
     "4 ranks: parallel: {parallel_mode: semi_auto_parallel, dataset_strategy: [[2, 2]]}",
     "4 ranks: parallel: {parallel_mode: semi_auto_parallel, dataset_strategy: [[4, 1]]}"},
    {"strategy-file", "The strategy file cannot be read",
     "strategy_ckpt_config.load_file names a file in MindSpore's format: JSON where it ends in "
     ".json, else ProtoBuf.",
     "parallel: {strategy_ckpt_config: {load_file: absent.json}}",
     "parallel: {strategy_ckpt_config: {load_file: strategy.json}}"},
    {"strategy-differs", "The strategy file splits parameters in another way",
     "A loaded strategy is compared with what the sizes lead to; the message names the first "
     "parameter that differs.",
     "a file written with tensor_parallel 2, loaded with tensor_parallel 4",
     "a file written with the same sizes"},
    {"strategy-unknown", "The strategy file has parameters that the model has not",
     "They are left alone.", "a file written for a larger model", "a file of this model"},
    {"no-effect", "An option that changes nothing here",
     "The value differs from the default, but another option or the mode keeps it from being "
     "looked at; the message says which. Upstream ignores such options in silence.",
     "optimizer: {type: adamw, momentum: 0.5}", "optimizer: {type: sgd, momentum: 0.5}"},
    {"not-built", "A legal option that a run cannot carry out yet",
     "validate and plan take every legal value; train refuses what it cannot do yet rather than "
     "ignoring it. `trainctl schema --upstream` shows the state of every key.",
     "parallel: {use_ring_exchange_p2p: true} in train", "the same in plan"},
};

}  // namespace

std::span<const CodeNote> codes_of_options() { return notes; }

}  // namespace trainctl
