// The codes about the model, the data, the optimizer and batches.
#include "config/report/codes.h"

namespace trainctl {

namespace {

constexpr CodeNote training_notes[] = {
    {"zero-weights", "A model whose weights are all 0",
     "perform_initialization false leaves the weights at 0, to be loaded; without model.from only "
     "a run that goes on loads some.",
     "model: {perform_initialization: false}",
     "model: {perform_initialization: false, from: models/llama}"},
    {"state-type", "Gradients, AdamW's moments or matrices kept in a type that does not suit them",
     "They can be kept in fp32 or in bf16, which has the range of fp32; matrices in bf16 only if "
     "products read that type.",
     "optimizer: {exp_avg_sq_dtype: fp16}", "optimizer: {exp_avg_sq_dtype: bf16}"},
    {"group-empty", "A pattern of optimizer.groups takes no parameter",
     "Each pattern must take a parameter: one whose whole name it matches and that no earlier "
     "entry "
     "takes. `*` stands for any characters, `?` for one; `trainctl plan` lists the names.",
     "optimizer: {groups: [{match: lm_head, lr_mult: 0.1}]}",
     "optimizer: {groups: [{match: head.weight, lr_mult: 0.1}]}"},
    {"group-type", "optimizer.groups gives a parameter an optimizer that it cannot have",
     "Muon is for matrices between features: also of routers, gates of shared experts and learned "
     "positions, but not for the embedding of tokens, the head, norms and biases.",
     "optimizer: {groups: [{match: head.weight, type: muon}]}",
     "optimizer: {groups: [{match: head.weight, type: adamw}]}"},
    {"muon-items", "Words of optimizer.muon.items exclude each other, or one is not built",
     "qkv stacks q, k and v into one matrix, heads cuts each of them by heads.",
     "optimizer: {type: muon, muon: {items: [qkv, heads]}}",
     "optimizer: {type: muon, muon: {items: [qkv]}}"},
    {"qk-clip", "Queries and keys cannot be clipped by the largest score of a head",
     "qk_clip_threshold scales the rows that make a head's queries and keys. Norms of queries and "
     "keys undo that, and kernels must give the largest score.",
     "{model: {family: llama, qk_layernorm: true}, optimizer: {qk_clip_threshold: 100}}",
     "{model: {family: llama, qk_layernorm: true}, optimizer: {type: muon}}"},
    {"heads-divide", "hidden_size is not divisible by num_attention_heads",
     "The head size is hidden_size / num_attention_heads, unless kv_channels gives it.",
     "model: {hidden_size: 128, num_attention_heads: 5}",
     "model: {hidden_size: 128, num_attention_heads: 4}"},
    {"groups-divide", "num_attention_heads is not divisible by num_query_groups",
     "Each of num_query_groups key and value heads serves num_attention_heads / num_query_groups "
     "query heads.",
     "model: {num_attention_heads: 4, num_query_groups: 3}",
     "model: {num_attention_heads: 4, num_query_groups: 2}"},
    {"head-size-even", "The head size is odd",
     "Attention and rotary positions work on pairs of features.", "model: {kv_channels: 33}",
     "model: {kv_channels: 32}"},
    {"head-size-limit", "The head size is too large for the attention kernels", "The limit is 256.",
     "model: {kv_channels: 512}", "model: {kv_channels: 128}"},
    {"positions-cover", "seq_length is larger than max_position_embeddings",
     "seq_length must be at most max_position_embeddings.",
     "model: {seq_length: 2048, max_position_embeddings: 1024}",
     "model: {seq_length: 1024, max_position_embeddings: 1024}"},
    {"model-directory", "The directory of model.from cannot be used",
     "The directory must be a run or a checkpoint of trainctl, or hold a config.json of type gpt2, "
     "llama, mistral, qwen2 or qwen3 that asks for nothing that changes the numbers and is not "
     "built. docs/huggingface.md lists what is read.",
     "model: {from: a directory without config.json}", "model: {from: models/gpt2}"},
    {"model-differs", "A key contradicts the model that training starts from",
     "A key beside model.from must say what the model's own file says. seq_length, dropout and "
     "init_method_std belong to training and may differ.",
     "model: {from: models/gpt2, hidden_size: 64}", "model: {from: models/gpt2, seq_length: 256}"},
    {"model-twice", "model.preset and model.from are both given", "Each of them gives every size.",
     "model: {preset: gpt2-124m, from: models/gpt2}", "model: {from: models/gpt2}"},
    {"layer-kinds", "A kind of layers in model.layers is wrong",
     "Each kind has a name of its own, of letters, digits and _; experts needs moe.num_experts, "
     "and "
     "does not go with moe.first_dense_layers or moe.layer_frequency.",
     "model: {layers: [{name: a-b}]}", "model: {layers: [{name: a_b}]}"},
    {"layer-pattern", "model.layer_pattern cannot be read, or does not go with model.layers",
     "The pattern names kinds of model.layers in the order of the layers, as in `local*5, global`; "
     "it is repeated until there are num_layers. With it no kind has a count.",
     "model: {layers: [{name: local}], layer_pattern: \"local, globl\"}",
     "model: {layers: [{name: local}, {name: global}], layer_pattern: \"local, global\"}"},
    {"rope-scaling", "The factors of rope_scaling are in the wrong order",
     "low_freq_factor must be below high_freq_factor, and beta_slow below beta_fast; wavelengths "
     "between the two are blended.",
     "model: {rope_scaling: {low_freq_factor: 4, high_freq_factor: 1}}",
     "model: {rope_scaling: {low_freq_factor: 1, high_freq_factor: 4}}"},
    {"rope-family", "The model family has no rotary positions",
     "Only llama models have RoPE; gpt2, which is also the family of a file that names none, has "
     "learned positions.",
     "model: {rotary_base: 500000.0}", "model: {family: llama, rotary_base: 500000.0}"},
    {"qk-norm-family", "The model family has no q/k norms", "Only llama models have qk_layernorm.",
     "model: {family: gpt2, qk_layernorm: true}", "model: {family: llama, qk_layernorm: true}"},
    {"rope-pair-factors", "A list of rope_scaling does not have one number for each pair",
     "Type longrope divides each pair's frequency by a number of its own; a head of d features has "
     "rotary_percent d / 2 pairs.",
     "model: {family: llama, kv_channels: 4, rope_scaling: {type: longrope, short_factor: [1], "
     "long_factor: [1]}}",
     "model: {family: llama, kv_channels: 4, rope_scaling: {type: longrope, short_factor: [1, 1], "
     "long_factor: [1, 2]}}"},
    {"rotary-size", "RoPE would turn an odd number of features",
     "It turns pairs of the first rotary_percent of each head's features.",
     "model: {family: llama, kv_channels: 32, rotary_percent: 0.1}",
     "model: {family: llama, kv_channels: 32, rotary_percent: 0.5}"},
    {"window-and-chunk", "sliding_window and attention_chunk_size are both given",
     "A query sees the last keys up to its own, or those of its chunk.",
     "model: {sliding_window: 64, attention_chunk_size: 64}", "model: {sliding_window: 64}"},
    {"cluster-rates", "Some rates of section cluster are missing",
     "The estimate of the step time needs all four rates of section cluster. `train` measures them "
     "if none is given, and writes them to measured.json.",
     "cluster: {matmul_flops: 1e12}",
     "cluster: {matmul_flops: 1e12, memory_bandwidth: 1e11, latency: 2e-6, bandwidth: 1e10}"},
    {"cluster-device", "A device and the rates of a rank are both given",
     "Times come from cluster.device, or from the four rates of section cluster.",
     "cluster: {device: h100-sxm, matmul_flops: 1e12, memory_bandwidth: 1e11, latency: 2e-6, "
     "bandwidth: 1e10}",
     "cluster: {device: h100-sxm}"},
    {"cluster-levels", "The levels of the network do not contain each other",
     "Each level of cluster.levels joins a whole number of the level before it, and the last one "
     "joins all ranks.",
     "cluster: {device: h100-sxm, levels: [{name: a, ranks: 8}, {name: b, ranks: 12}]}",
     "cluster: {device: h100-sxm, levels: [{name: a, ranks: 8}, {name: b}]}"},
    {"cluster-software", "A run with the prices of other software",
     "cluster.software other than trainctl is for plans, which compare; what runs is this program.",
     "cluster: {device: h100-sxm, software: nemo}", "cluster: {device: h100-sxm}"},
    {"device-file", "Figures of a device or of software are not known, or wrong",
     "cluster.device and cluster.software are names that `trainctl devices --known` lists, or "
     "files "
     "of the same form (docs/planning.md).",
     "cluster: {device: h100}", "cluster: {device: h100-sxm}"},
    {"device-guess", "A device's file has no figures of products in this precision",
     "Products are guessed from those of the other precision: on a GPU fp32 at a sixteenth of "
     "bf16, "
     "on a CPU at the same rate. Times that rest on a guess say so and expect an error of 30 %.",
     "cluster: {device: h100-sxm}, precision: {compute: fp32}",
     "cluster: {device: h100-sxm}, precision: {compute: bf16}"},
    {"device-memory", "The plan needs more memory than a CUDA device has",
     "cluster.device_memory says how much each device has. The plan counts the tensors of a rank "
     "and allows for the CUDA context and NCCL's buffers; `train` refuses it where the tensors "
     "alone do not fit into the device it finds.",
     "parallel: {device: cuda}, cluster: {device_memory: 0.01}",
     "parallel: {device: cuda}, cluster: {device_memory: 80}"},
    {"device-queues", "A rank has more streams than a CUDA device has queues",
     "Each line of messages (sender, receiver, tag) has a stream of its own, so that a message "
     "that waits for another rank holds up nothing else. A device has 32 hardware queues; streams "
     "beyond them share queues, and what is behind a waiting message in its queue waits, too.",
     "model: {num_layers: 32}, parallel: {device: cuda, pipeline_stages: 4, "
     "virtual_pipeline_stages: 8}",
     "model: {num_layers: 32}, parallel: {device: cuda, pipeline_stages: 4, "
     "virtual_pipeline_stages: 4}"},
    {"model-too-large", "The model has too many parameters",
     "Above 1e15 parameters, byte counts would exceed 64 bits; the cause is usually a digit too "
     "many.",
     "model: {num_layers: 10000, hidden_size: 1000000}",
     "model: {num_layers: 100, hidden_size: 10000}"},
    {"eod-token-range", "eod_token is outside the vocabulary",
     "Token ids are from 0 to vocab_size - 1.", "model: {vocab_size: 256}, data: {eod_token: 256}",
     "model: {vocab_size: 256}, data: {eod_token: 255}"},
    {"data-weights", "The weights of the data sources add up to 0",
     "The share of each source is its weight divided by the sum of all weights.",
     "data: {train: [{path: a.txt, weight: 0}]}", "data: {train: [{path: a.txt, weight: 1}]}"},
    {"fraction-rounded", "The held-out fraction is not a whole number of blocks",
     "split: blocks holds out one block in 1 / fraction, rounded; it is an error if that is every "
     "block, otherwise a warning.",
     "data: {validation: {split: blocks, fraction: 0.15}}",
     "data: {validation: {split: blocks, fraction: 0.1}}"},
    {"home-path", "A path begins with ~",
     "A shell replaces ~ before a program sees it, but not in quotes and not in a file. ${HOME} is "
     "the same folder and works here.",
     "output: {dir: ~/runs/a}", "output: {dir: \"${HOME}/runs/a\"}"},
    {"length-differs", "Two keys give different lengths",
     "train.tokens / (global_batch_size x seq_length), rounded up, and train.epochs x sequences / "
     "global_batch_size, rounded up, are train.steps; lr_schedule.warmup_ratio x train.steps, "
     "rounded "
     "up, is warmup_steps. Both forms may be given where they agree. --set wins over the file.",
     "train: {steps: 100, tokens: 1000, global_batch_size: 1}",
     "train: {steps: 100, global_batch_size: 1}"},
    {"lr-range", "The learning rates are out of order",
     "0 <= min_lr <= max_lr and 0 <= init_lr <= max_lr (Megatron: OptimizerParamScheduler).",
     "lr_schedule: {max_lr: 1.0e-3, min_lr: 1.0e-2}",
     "lr_schedule: {max_lr: 1.0e-3, min_lr: 1.0e-4}"},
    {"loss-scale-range", "min_loss_scale is above initial_loss_scale",
     "0 < min_loss_scale <= initial_loss_scale (Megatron: DynamicGradScaler).",
     "precision: {compute: fp16, initial_loss_scale: 1, min_loss_scale: 2}",
     "precision: {compute: fp16, initial_loss_scale: 1024, min_loss_scale: 1}"},
    {"loss-scale-twice", "The loss scale is both constant and dynamic",
     "loss_scale sets a constant scale; dynamic_loss_scale changes the scale during the run.",
     "precision: {compute: fp16, loss_scale: 1024, dynamic_loss_scale: true}",
     "precision: {compute: fp16, initial_loss_scale: 1024}"},
    {"autocast-compute", "autocast_dtype and compute name two 16-bit types",
     "Under enable_autocast the matrix products are computed in autocast_dtype instead of compute "
     "(Megatron: ModelParallelConfig). Master weights are fp32 with either key.",
     "precision: {compute: fp16, enable_autocast: true, autocast_dtype: bf16}",
     "precision: {enable_autocast: true, autocast_dtype: bf16}"},
    {"unscaled-fp16", "fp16 without a loss scale",
     "The smallest number of fp16 is 6e-8. Without a factor on the loss, smaller gradients become "
     "0. grad_scale: none is for losses that are scaled elsewhere.",
     "precision: {compute: fp16}, hooks: {grad_scale: none}",
     "precision: {compute: fp16}, hooks: {grad_scale: loss_scale}"},
    {"unfinished-gradients", "finalize_model_grads is false, but gradients are shared",
     "Each step sums gradients over replicas, over tensor-parallel ranks with the same parameters "
     "and over both ends of a pipeline with a tied embedding (Megatron: "
     "finalize_model_grads_func). Without the sums, ranks that share parameters would update them "
     "differently. false is for layouts that share none.",
     "2 ranks: hooks: {finalize_model_grads: false}",
     "1 rank: hooks: {finalize_model_grads: false}"},
    {"warmup-below-decay", "warmup_steps is not below decay_steps",
     "warmup_steps must be below decay_steps (Megatron). Where decay_steps is not given, "
     "train.steps "
     "counts, and a longer warm-up is shortened (short-run).",
     "train: {steps: 10}, lr_schedule: {style: cosine, decay_steps: 5, warmup_steps: 5}",
     "train: {steps: 10}, lr_schedule: {style: cosine, decay_steps: 10, warmup_steps: 1}"},
    {"short-run", "The run is shorter than a phase of its schedule",
     "Without decay_steps the schedule is as long as the run. A warm-up, or the last phase of "
     "style "
     "wsd, that does not fit in train.steps is shortened, so that a trial of a few steps runs.",
     "train: {steps: 10}, lr_schedule: {warmup_steps: 10}",
     "train: {steps: 10}, lr_schedule: {warmup_steps: 1}"},
    {"wsd-decay-steps", "WSD needs wsd_decay_steps",
     "Style WSD needs wsd_decay_steps, which must be at most decay_steps (Megatron).",
     "lr_schedule: {style: WSD}", "lr_schedule: {style: WSD, wsd_decay_steps: 100}"},
    {"decay-beyond-steps", "The run ends before the decay ends",
     "decay_steps is above train.steps, so min_lr is not reached.",
     "train: {steps: 10}, lr_schedule: {style: cosine, decay_steps: 20}",
     "train: {steps: 10}, lr_schedule: {style: cosine, decay_steps: 10}"},
    {"weight-decay-form", "A form of weight decay that the optimizer does not have",
     "SGD takes weight decay apart from the gradient (decoupled), or adds it to the gradient "
     "before "
     "the momentum (coupled: torch, Megatron, MindSpore). AdamW's is always decoupled.",
     "optimizer: {type: adamw, weight_decay_form: coupled}",
     "optimizer: {type: sgd, weight_decay_form: coupled}"},
    {"weight-decay-range", "Weight decay decreases, or changes with a constant style",
     "0 <= start_weight_decay <= end_weight_decay, equal with weight_decay_incr_style constant "
     "(Megatron).",
     "optimizer: {start_weight_decay: 0.1, end_weight_decay: 0.01}",
     "optimizer: {start_weight_decay: 0.01, end_weight_decay: 0.1, "
     "weight_decay_incr_style: linear}"},
    {"batch-divides", "global_batch_size is not divisible by data_parallel",
     "Every replica gets global_batch_size / data_parallel sequences (Megatron, MindFormers).",
     "8 ranks: train: {global_batch_size: 12}", "8 ranks: train: {global_batch_size: 16}"},
    {"batch-ramp", "The batches of rampup_batch_size do not fit",
     "rampup_batch_size is [start, increment, samples] (Megatron). global_batch_size - start must "
     "be divisible by increment, and every batch of the ramp by micro_batch_size x data_parallel, "
     "unless decrease_batch_size_if_needed is true. Rules about the number of micro-batches hold "
     "for each batch.",
     "train: {global_batch_size: 16, rampup_batch_size: [4, 5, 100]}",
     "train: {global_batch_size: 16, rampup_batch_size: [4, 4, 100]}"},
    {"batch-too-small", "A batch has less than one micro-batch for each replica",
     "decrease_batch_size_if_needed rounds a batch down to a multiple of micro_batch_size x "
     "data_parallel; at least one multiple must be left (Megatron).",
     "2 ranks: train: {global_batch_size: 12, micro_batch_size: 8, "
     "decrease_batch_size_if_needed: true}",
     "2 ranks: train: {global_batch_size: 12, micro_batch_size: 4, "
     "decrease_batch_size_if_needed: true}"},
    {"micro-batch-divides", "The sequences of a replica cannot be divided into micro-batches",
     "global_batch_size must be divisible by micro_batch_size x data_parallel (Megatron), or by "
     "micro_batch_num x data_parallel if micro_batch_num is given instead.",
     "2 ranks: train: {global_batch_size: 12, micro_batch_size: 5}",
     "2 ranks: train: {global_batch_size: 12, micro_batch_size: 3}"},
    {"micro-batch-product", "The sizes do not multiply to global_batch_size",
     "global_batch_size must equal micro_batch_size x micro_batch_num x data_parallel. Giving two "
     "of "
     "the first three is enough (MindFormers: batch_size x data_parallel x micro_batch_num).",
     "2 ranks: train: {global_batch_size: 12, micro_batch_size: 2, micro_batch_num: 4}",
     "2 ranks: train: {global_batch_size: 16, micro_batch_size: 2, micro_batch_num: 4}"},
    {"micro-batch-too-large", "A micro-batch is too large",
     "The number of tokens of a micro-batch must fit in 31 bits, the number of bytes of its "
     "activations in 60.",
     "train: {micro_batch_size: 1000000}", "train: {micro_batch_size: 8}"},
    {"schedule-too-long", "A step has too many schedule rows",
     "Micro-batches x (layers + 2) must be at most 4,000,000.",
     "train: {global_batch_size: 1000000, micro_batch_size: 1}",
     "train: {global_batch_size: 1000000, micro_batch_size: 1000}"},
    {"threads-oversubscribe", "More threads than the host has cores",
     "Ranks per host x threads_per_rank is more than the number of cores, so threads wait for each "
     "other.",
     "2 cores: parallel: {threads_per_rank: 4}", "2 cores: parallel: {threads_per_rank: 2}"},
    {"device", "The device is unknown", "parallel.device must be auto, cpu or cuda.",
     "parallel: {device: tpu}", "parallel: {device: cpu}"},
    {"attention-backend", "cuDNN does not do this attention",
     "cuDNN's attention is for CUDA devices, bf16 or fp16, heads of 64 or 128 features, a "
     "seq_length that is a multiple of 128, and neither attention dropout, separate documents nor "
     "context parallelism.",
     "precision: {compute: fp32}, parallel: {device: cuda, attention_backend: cudnn}",
     "precision: {compute: bf16}, parallel: {device: cuda, attention_backend: cudnn}"},
};

}  // namespace

std::span<const CodeNote> codes_of_training() { return training_notes; }

}  // namespace trainctl
