// The codes about the model, the data, the optimizer and batches.
#include "config/report/codes.h"

namespace trainctl {

namespace {

constexpr CodeNote notes[] = {
    {"heads-divide", "The width does not divide into heads",
     "The head size is hidden_size / num_attention_heads unless kv_channels gives it.",
     "model: {hidden_size: 128, num_attention_heads: 5}",
     "model: {hidden_size: 128, num_attention_heads: 4}"},
    {"groups-divide", "Attention heads do not divide into query groups",
     "Each of num_query_groups key and value heads serves num_attention_heads / num_query_groups "
     "query heads.",
     "model: {num_attention_heads: 4, num_query_groups: 3}",
     "model: {num_attention_heads: 4, num_query_groups: 2}"},
    {"head-size-even", "The head size is odd",
     "Attention and rotary positions work on pairs of features.", "model: {kv_channels: 33}",
     "model: {kv_channels: 32}"},
    {"head-size-limit", "The head size is larger than attention is built for", "The limit is 256.",
     "model: {kv_channels: 512}", "model: {kv_channels: 128}"},
    {"positions-cover", "The sequence is longer than the model's positions",
     "seq_length is at most max_position_embeddings.",
     "model: {seq_length: 2048, max_position_embeddings: 1024}",
     "model: {seq_length: 1024, max_position_embeddings: 1024}"},
    {"rope-scaling", "The factors of rope_scaling are the wrong way round",
     "low_freq_factor is below high_freq_factor; wavelengths between the two are blended.",
     "model: {rope_scaling: {low_freq_factor: 4, high_freq_factor: 1}}",
     "model: {rope_scaling: {low_freq_factor: 1, high_freq_factor: 4}}"},
    {"qk-norm-family", "q/k norms in a family that has none",
     "Only llama models have qk_layernorm.", "model: {family: gpt2, qk_layernorm: true}",
     "model: {family: llama, qk_layernorm: true}"},
    {"bias-family", "Biases in a family that has none",
     "llama's output and MLP products have no biases; add_qkv_bias gives them to q, k and v.",
     "model: {family: llama, add_bias_linear: true}", "model: {family: llama, add_qkv_bias: true}"},
    {"cluster-rates", "Only some of the rates of a rank are given",
     "The time of a step follows from all four rates of section cluster. `train` measures them "
     "where none is given, and writes them to measured.json.",
     "cluster: {matmul_flops: 1e12}",
     "cluster: {matmul_flops: 1e12, memory_bandwidth: 1e11, latency: 2e-6, bandwidth: 1e10}"},
    {"model-too-large", "The model has more parameters than can be counted",
     "Above 1e15 parameters byte counts would leave 64 bits; usually a digit too many.",
     "model: {num_layers: 10000, hidden_size: 1000000}",
     "model: {num_layers: 100, hidden_size: 10000}"},
    {"eod-token-range", "eod_token is no token of the vocabulary",
     "Token ids are from 0 to vocab_size - 1.", "model: {vocab_size: 256}, data: {eod_token: 256}",
     "model: {vocab_size: 256}, data: {eod_token: 255}"},
    {"data-weights", "The weights of the data sources add up to nothing",
     "Each source's share is its weight over the sum of all.",
     "data: {train: [{path: a.txt, weight: 0}]}", "data: {train: [{path: a.txt, weight: 1}]}"},
    {"fraction-rounded", "The held-out fraction cannot be met in whole blocks",
     "split: blocks holds out every (1 / fraction)th block, rounded; an error where that is every "
     "block, else a warning.",
     "data: {validation: {split: blocks, fraction: 0.15}}",
     "data: {validation: {split: blocks, fraction: 0.1}}"},
    {"lr-range", "The learning rates are out of order",
     "0 <= min_lr <= max_lr and 0 <= init_lr <= max_lr (Megatron: OptimizerParamScheduler).",
     "lr_schedule: {max_lr: 1.0e-3, min_lr: 1.0e-2}",
     "lr_schedule: {max_lr: 1.0e-3, min_lr: 1.0e-4}"},
    {"loss-scale-range", "The least loss scale is above the first",
     "0 < min_loss_scale <= initial_loss_scale (Megatron: DynamicGradScaler).",
     "precision: {compute: fp16, initial_loss_scale: 1, min_loss_scale: 2}",
     "precision: {compute: fp16, initial_loss_scale: 1024, min_loss_scale: 1}"},
    {"loss-scale-twice", "A loss scale that is both constant and dynamic",
     "loss_scale keeps the scale as it is; dynamic_loss_scale moves it.",
     "precision: {compute: fp16, loss_scale: 1024, dynamic_loss_scale: true}",
     "precision: {compute: fp16, initial_loss_scale: 1024}"},
    {"warmup-below-decay", "The warm-up is not shorter than the schedule",
     "warmup_steps is below decay_steps, or train.steps where that is not given (Megatron).",
     "train: {steps: 10}, lr_schedule: {warmup_steps: 10}",
     "train: {steps: 10}, lr_schedule: {warmup_steps: 1}"},
    {"wsd-decay-steps", "WSD without the length of its last phase",
     "wsd_decay_steps is given with style WSD and is at most decay_steps (Megatron).",
     "lr_schedule: {style: WSD}", "lr_schedule: {style: WSD, wsd_decay_steps: 100}"},
    {"decay-beyond-steps", "The run ends before the decay does",
     "decay_steps is above train.steps, so min_lr is not reached.",
     "train: {steps: 10}, lr_schedule: {style: cosine, decay_steps: 20}",
     "train: {steps: 10}, lr_schedule: {style: cosine, decay_steps: 10}"},
    {"weight-decay-range", "Weight decay falls, or changes under a constant style",
     "0 <= start_weight_decay <= end_weight_decay, equal with weight_decay_incr_style constant "
     "(Megatron).",
     "optimizer: {start_weight_decay: 0.1, end_weight_decay: 0.01}",
     "optimizer: {start_weight_decay: 0.01, end_weight_decay: 0.1, "
     "weight_decay_incr_style: linear}"},
    {"batch-divides", "The batch does not divide over the replicas",
     "Every replica gets global_batch_size / data_parallel sequences (Megatron, MindFormers).",
     "8 ranks: train: {global_batch_size: 12}", "8 ranks: train: {global_batch_size: 16}"},
    {"micro-batch-divides", "A replica's share does not divide into micro-batches",
     "global_batch_size / (micro_batch_size x data_parallel) is whole (Megatron). The same holds "
     "with micro_batch_num in place of micro_batch_size.",
     "2 ranks: train: {global_batch_size: 12, micro_batch_size: 5}",
     "2 ranks: train: {global_batch_size: 12, micro_batch_size: 3}"},
    {"micro-batch-product", "Size, number and replicas do not multiply to the batch",
     "global_batch_size = micro_batch_size x micro_batch_num x data_parallel. Two of the first "
     "three are enough (MindFormers: batch_size x data_parallel x micro_batch_num).",
     "2 ranks: train: {global_batch_size: 12, micro_batch_size: 2, micro_batch_num: 4}",
     "2 ranks: train: {global_batch_size: 16, micro_batch_size: 2, micro_batch_num: 4}"},
    {"micro-batch-too-large", "One micro-batch is too large to be counted",
     "Tokens of a micro-batch fit in 31 bits, bytes of its activations in 60.",
     "train: {micro_batch_size: 1000000}", "train: {micro_batch_size: 8}"},
    {"schedule-too-long", "A step has too many rows",
     "Micro-batches x (layers + 2) are at most 4,000,000.",
     "train: {global_batch_size: 1000000, micro_batch_size: 1}",
     "train: {global_batch_size: 1000000, micro_batch_size: 1000}"},
    {"threads-oversubscribe", "More threads than the host has cores",
     "Ranks on the host x threads_per_rank is more than the host's cores; they wait for each "
     "other.",
     "2 cores: parallel: {threads_per_rank: 4}", "2 cores: parallel: {threads_per_rank: 2}"},
    {"device", "The device is unknown", "parallel.device is cpu or cuda.",
     "parallel: {device: tpu}", "parallel: {device: cpu}"},
};

}  // namespace

std::span<const CodeNote> codes_of_training() { return notes; }

}  // namespace trainctl
