// The codes about sharded state, fused collectives, overlap, recomputation and modes.
#include "config/report/codes.h"

namespace trainctl {

namespace {

constexpr CodeNote options_notes[] = {
    {"deterministic-timed", "Timed algorithms in a deterministic run",
     "product_algorithms timed lets a run choose the fastest algorithm of a product by its time, "
     "which can differ between runs; deterministic_mode true asks for bit-identical runs.",
     "train: {deterministic_mode: true}, parallel: {device: cuda, product_algorithms: timed}",
     "parallel: {device: cuda, product_algorithms: proposed}"},
    {"share-devices", "Threads cannot share a device over NCCL",
     "NCCL refuses two ranks of one host on one device unless it is told otherwise, once for each "
     "process. Ranks that are threads share a device without it.",
     "train --local-ranks 2, parallel: {device: cuda, share_devices: nccl}",
     "train --local-ranks 2, parallel: {device: cuda, share_devices: true}"},
    {"dealt-memory", "Freeing parameters costs memory in data_parallel mode",
     "There each rank owns whole parameters, so that gathered ones need a buffer beside them. In "
     "fp32 that is more than what is freed.",
     "parallel: {parallel_mode: data_parallel, parallel_optimizer: {enable: true, "
     "optimizer_level: level3}}",
     "parallel: {parallel_mode: hybrid_parallel, parallel_optimizer: {enable: true, "
     "optimizer_level: level3}}"},
    {"weight-shard-size", "weight_shard_size is outside its range",
     "-1 shards the optimizer state of each parameter among all its replicas. Otherwise the size "
     "must be from 1 to the number of ranks per stage (MindSpore: (0, device_num / stage]).",
     "8 ranks: parallel: {parallel_optimizer: {enable: true, weight_shard_size: 16}}",
     "8 ranks: parallel: {parallel_optimizer: {enable: true, weight_shard_size: 4}}"},
    {"weight-shard-divides", "The number of replicas is not divisible by weight_shard_size",
     "weight_shard_size has no effect on a parameter whose replicas do not form whole groups of "
     "that "
     "size (MindSpore ignores it without a message; here it is a warning).",
     "8 ranks: parallel: {parallel_optimizer: {enable: true, weight_shard_size: 3}}",
     "8 ranks: parallel: {parallel_optimizer: {enable: true, weight_shard_size: 4}}"},
    {"gradient-sums", "Gradients in bf16 make ranks sum them after each micro-batch",
     "Gradients are summed over ranks in fp32 before they are added to those of earlier "
     "micro-batches. Where gradients are divided among the ranks that is so anyway.",
     "8 ranks: optimizer: {main_grads_dtype: bf16}",
     "8 ranks: optimizer: {main_grads_dtype: bf16}, parallel: {parallel_optimizer: "
     "{enable: true, optimizer_level: level2}}"},
    {"optimizer-level", "optimizer_level contradicts gradient_accumulation_shard",
     "level1 keeps gradients whole, level2 and level3 divide them; gradient_accumulation_shard "
     "says "
     "the same of gradients alone (MindSpore refuses the contradiction too).",
     "parallel: {parallel_optimizer: {enable: true, optimizer_level: level3, "
     "gradient_accumulation_shard: false}}",
     "parallel: {parallel_optimizer: {enable: true, optimizer_level: level3}}"},
    {"fusion-mode", "mode index for a collective other than the all-reduce",
     "The indices count gradients, so only comm_fusion.allreduce has mode index (MindSpore).",
     "parallel: {comm_fusion: {allgather: {mode: index, config: [4]}}}",
     "parallel: {comm_fusion: {allgather: {mode: size, config: 64}}}"},
    {"fusion-config", "config does not match the mode of comm_fusion",
     "auto has no config, size has a number of MB, index an ascending list of indices, each the "
     "last "
     "gradient of its block (MindSpore: comm_fusion, all_reduce_fusion_config).",
     "parallel: {comm_fusion: {allreduce: {mode: size}}}",
     "parallel: {comm_fusion: {allreduce: {mode: size, config: 64}}}"},
    {"tp-overlap-sequence", "tp_comm_overlap without sequence_parallel",
     "tp_comm_overlap overlaps the gathers and scatters of sequence_parallel with matrix products "
     "(Megatron: validate_args).",
     "parallel: {tensor_parallel: 2, tp_comm_overlap: {enable: true}}",
     "parallel: {tensor_parallel: 2, sequence_parallel: true, tp_comm_overlap: {enable: true}}"},
    {"expert-overlap", "The schedule puts no forward beside a backward",
     "With overlap_expert_parallel_comm the rows of one micro-batch are on their way to experts "
     "while a pass of another runs. gpipe runs all forwards first, and zb-h1 and zb-v fill their "
     "gaps with weight gradients.",
     "parallel: {pipeline_stages: 2, expert_parallel: 2, pipeline: {scheduler: zb-h1}}, "
     "moe: {num_experts: 4, overlap_expert_parallel_comm: true}",
     "parallel: {pipeline_stages: 2, expert_parallel: 2}, "
     "moe: {num_experts: 4, overlap_expert_parallel_comm: true}"},
    {"expert-chunks", "comp_comm_parallel_degree is larger than the tokens of a micro-batch",
     "The tokens that a rank sends to an expert are cut into so many chunks, each with a token or "
     "more.",
     "model: {seq_length: 4}, train: {global_batch_size: 2}, parallel: {expert_parallel: 2}, "
     "moe: {num_experts: 4, comp_comm_parallel: true, comp_comm_parallel_degree: 8}",
     "model: {seq_length: 4}, train: {global_batch_size: 2}, parallel: {expert_parallel: 2}, "
     "moe: {num_experts: 4, comp_comm_parallel: true, comp_comm_parallel_degree: 2}"},
    {"expert-slices", "Tensor-parallel ranks cannot send equal slices of a micro-batch to experts",
     "With group_wise_a2a, or where experts are cut otherwise than dense layers, each "
     "tensor-parallel rank sends its share of the tokens. Without sequence_parallel that is a "
     "slice "
     "of those that all of them have.",
     "model: {seq_length: 8, num_attention_heads: 3, hidden_size: 48, vocab_size: 96}, train: "
     "{micro_batch_size: 1}, parallel: {tensor_parallel: 3, expert_tensor_parallel: 1}, moe: "
     "{num_experts: 2}",
     "model: {seq_length: 9, num_attention_heads: 3, hidden_size: 48, vocab_size: 96}, train: "
     "{micro_batch_size: 1}, parallel: {tensor_parallel: 3, expert_tensor_parallel: 1}, moe: "
     "{num_experts: 2}"},
    {"recompute-layers", "layers_per_stage does not match the stages",
     "layers_per_stage has one number for each pipeline stage, each from 0 to num_layers, and "
     "excludes layers. "
     "MindFormers also accepts shorter lists without defining their meaning; they are refused "
     "here.",
     "parallel: {pipeline_stages: 2}, recompute: {enable: true, layers_per_stage: [1, 1, 1]}",
     "parallel: {pipeline_stages: 2}, recompute: {enable: true, layers_per_stage: [1, 1]}"},
    {"recompute-select", "Which parts of a layer are recomputed cannot be read",
     "select is full, auto, or words joined by +: norms, qkv, attention, projection, mlp, "
     "activations. layers has such a form, or none, for each layer, with commas between them; *n "
     "repeats one.",
     "recompute: {enable: true, select: norm}", "recompute: {enable: true, select: norms}"},
    {"recompute-auto", "Requirements of select: auto are not met",
     "With select: auto the plan picks the parts for each layer. It needs a memory_limit and the "
     "rates of section cluster, and no other choice of layers.",
     "recompute: {enable: true, select: auto}",
     "recompute: {enable: true, select: auto, memory_limit: 8}, cluster: {matmul_flops: 1e12, "
     "memory_bandwidth: 1e11, latency: 1e-5, bandwidth: 1e10}"},
    {"recompute-memory", "No form of recomputation fits the memory limit",
     "With select: auto some stage needs more than memory_limit even where its layers keep as "
     "little as possible. The message shows what it needs at least.",
     "recompute: {enable: true, select: auto, memory_limit: 0.001}, cluster: {matmul_flops: 1e12, "
     "memory_bandwidth: 1e11, latency: 1e-5, bandwidth: 1e10}",
     "recompute: {enable: true, select: auto, memory_limit: 8}, cluster: {matmul_flops: 1e12, "
     "memory_bandwidth: 1e11, latency: 1e-5, bandwidth: 1e10}"},
    {"recompute-slice", "slice_activation cannot split the input of a layer",
     "slice_activation splits the saved input of a block evenly among tensor-parallel ranks; with "
     "sequence_parallel it is already split (Megatron: distribute_saved_activations).",
     "parallel: {tensor_parallel: 2, sequence_parallel: true}, "
     "recompute: {enable: true, slice_activation: true}",
     "parallel: {tensor_parallel: 2}, recompute: {enable: true, slice_activation: true}"},
    {"offload-layers", "offload.num_layers is too large",
     "offload.num_layers must be at least 0 and below model.num_layers (Megatron: "
     "TransformerConfig).",
     "model: {num_layers: 4}, offload: {enable: true, num_layers: 4}",
     "model: {num_layers: 4}, offload: {enable: true, num_layers: 3}"},
    {"offload-weights", "Weights that cannot be on the host",
     "offload.weights keeps the copies of weights in 16 bits on the host, of which the masters "
     "stay on the device. In fp32, and with main_params_dtype bf16, there are no copies; with a "
     "parallel optimizer other ranks send them.",
     "model: {num_layers: 4}, offload: {enable: true, num_layers: 3, weights: true}",
     "model: {num_layers: 4}, precision: {compute: bf16}, "
     "offload: {enable: true, num_layers: 3, weights: true}"},
    {"search-pipeline", "dynamic_programming with several stages",
     "With pipeline_stages above 1, auto_parallel supports the search modes recursive_programming "
     "and "
     "sharding_propagation (MindSpore).",
     "parallel: {parallel_mode: auto_parallel, search_mode: dynamic_programming, "
     "pipeline_stages: 2}",
     "parallel: {parallel_mode: auto_parallel, search_mode: sharding_propagation, "
     "pipeline_stages: 2}"},
    {"search-operator", "A search lacks a configured operator",
     "sharding_propagation spreads the splits of configured operators: operator_splits with "
     "tensor_parallel, or a strategy file. In the other search modes splits that are given also "
     "need "
     "tensor_parallel, since they say how, and not over how many ranks.",
     "parallel: {parallel_mode: auto_parallel, search_mode: sharding_propagation}",
     "parallel: {parallel_mode: auto_parallel, search_mode: sharding_propagation, "
     "tensor_parallel: 2, operator_splits: {feed_forward: features}}"},
    {"search-load-file", "A strategy file in a search by rounds",
     "The operators of the file keep their splits, and the others are searched. MindSpore 2.10 "
     "ignores the file with recursive_programming, and what .shard says too.",
     "parallel: {parallel_mode: auto_parallel, strategy_ckpt_config: {load_file: s.json}}",
     "parallel: {parallel_mode: semi_auto_parallel, strategy_ckpt_config: {load_file: s.json}}"},
    {"search-default-device", "A search by seconds without a device",
     "dynamic_programming compares planned seconds. Without cluster.device, and with four rates, "
     "which price all products alike, it takes the prices of h100-sxm for a GPU and of cpu-avx2 "
     "for a CPU: every host must find the same.",
     "parallel: {parallel_mode: auto_parallel, search_mode: dynamic_programming}",
     "parallel: {parallel_mode: auto_parallel, search_mode: dynamic_programming}, "
     "cluster: {device: h100-sxm}"},
    {"search-space-empty", "No layout of a search fits into memory",
     "dynamic_programming found no split of operators with which the fullest rank stays within "
     "cluster.device_memory, or the device's memory without 4 GiB, and with recompute.select auto "
     "within recompute.memory_limit. The message names the layout that needs least, and the help "
     "the key that must be larger.",
     "parallel: {parallel_mode: auto_parallel, search_mode: dynamic_programming}, "
     "cluster: {device: h100-sxm, device_memory: 0.001}",
     "the same with device_memory: 80"},
    {"layout-stale", "The answer of an earlier search is not for this configuration",
     "layout.yaml in the run's directory holds what auto_parallel found, with each value that the "
     "search read. The file was edited, or one of these values is another now. --search-again "
     "searches again.",
     "a run with model.vocab_size 256 that goes on with 512", "the same with --search-again"},
    {"dataset-strategy", "The split of an input does not match the ranks",
     "For each input, dataset_strategy lists the number of parts of each dimension. At most one "
     "dimension may be split, the first must have data_parallel parts, and the number of parts "
     "must "
     "divide the ranks of a stage (MindSpore: dataset_strategy; MindFormers: "
     "dataset_strategy[0][0] == data_parallel).",
     "4 ranks: parallel: {parallel_mode: semi_auto_parallel, dataset_strategy: [[2, 2]]}",
     "4 ranks: parallel: {parallel_mode: semi_auto_parallel, dataset_strategy: [[4, 1]]}"},
    {"strategy-file", "The strategy file cannot be read",
     "strategy_ckpt_config.load_file names a file in MindSpore's format: JSON if the name ends in "
     ".json, else ProtoBuf.",
     "parallel: {strategy_ckpt_config: {load_file: absent.json}}",
     "parallel: {strategy_ckpt_config: {load_file: strategy.json}}"},
    {"strategy-differs", "The strategy file splits parameters differently",
     "A loaded strategy is compared with the strategy that follows from the parallel degrees; the "
     "message names the first parameter that differs.",
     "a file written with tensor_parallel 2, loaded with tensor_parallel 4",
     "a file written with the same sizes"},
    {"strategy-operators", "The strategy file's splits of operators do not fit together",
     "With semi_auto_parallel the file decides how tensor-parallel ranks share each operator. The "
     "products of attention, and those of the MLP, are split alike, since the tensors between them "
     "stay on their ranks; what operator_splits says must agree.",
     "a file in which layers.0.mlp.up is split by tokens and layers.0.mlp.down by features",
     "a file that save_file wrote with operator_splits: {feed_forward: tokens}"},
    {"strategy-unknown", "The strategy file has parameters that are not in the model",
     "They are ignored.", "a file written for a larger model", "a file of this model"},
    {"no-effect", "An option has no effect",
     "The value differs from the default, but it is not used because of another option or the "
     "mode; "
     "the message names the reason. Upstream ignores such options without a message.",
     "optimizer: {type: adamw, momentum: 0.5}", "optimizer: {type: sgd, momentum: 0.5}"},
    {"not-built", "A legal option that a run cannot carry out yet",
     "plan shows every legal value, with a warning. train, validate and the others refuse what is "
     "not built. `trainctl schema --upstream` shows the state of every key.",
     "parallel: {pipeline_stages: 2, pipeline: {comm_backend: ucc}} in train", "the same in plan"},
};

}  // namespace

std::span<const CodeNote> codes_of_options() { return options_notes; }

}  // namespace trainctl
