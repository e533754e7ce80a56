// The configuration as typed values: a struct per YAML section, with defaults. Code that uses a
// section receives that struct, never the whole Config, and never handles YAML.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "config/schema/choices.h"
#include "config/schema/model_config.h"
#include "config/schema/muon_config.h"
#include "config/schema/parallel_config.h"

namespace trainctl {

struct DataSource {
  std::string path;  // a text file or folder, a .bin/.idx prefix, or a .bin file
  double weight = 1.0;
  bool operator==(const DataSource&) const = default;
};

struct ValidationConfig {
  std::optional<std::string> path;  // separate validation data instead of a part of `train`
  double fraction = 0.0;
  // tail: the last part of the data; blocks: every (1/fraction)-th block of 1024 tokens
  SplitStyle split = "tail";
  std::int64_t max_sequences = 0;  // all non-overlapping windows if 0
  bool operator==(const ValidationConfig&) const = default;
};

struct DataConfig {
  std::vector<DataSource> train;   // YAML: a path, a list of paths, or a list of {path, weight}
  std::string tokenizer = "byte";  // byte | sentencepiece:MODEL | hf:DIR; also for generate
  ValidationConfig validation;
  bool shuffle = true;
  bool packing = true;  // whether documents are joined; otherwise a row has tokens of one document
  bool reset_attention_mask = false;  // attention stays within a document
  bool reset_position_ids = false;    // positions restart at each document
  bool eod_mask_loss = false;         // the end-of-document token has no loss
  // token that ends documents; default: the tokenizer's, or the file's boundaries of documents
  std::optional<std::int64_t> eod_token;
  ChangedData changed = "refuse";  // whether sources may differ from the checkpoint's
  std::string cache_dir;           // folder for tokenised text; default: the user's cache
  std::int64_t prefetch = 2;       // batches prepared ahead
  bool operator==(const DataConfig&) const = default;
};

struct TrainConfig {
  std::int64_t steps = 0;              // required unless `tokens` or `epochs` is given
  std::optional<std::int64_t> tokens;  // tokens of the whole run; determines `steps` or must agree
  std::optional<double> epochs;        // passes over the training data; determines `steps` likewise
  // sequences per step over all ranks; required unless the next two are given
  std::int64_t global_batch_size = 0;
  std::optional<std::int64_t> micro_batch_size;  // default: global_batch_size / data_parallel
  std::optional<std::int64_t> micro_batch_num;   // per rank and step; default: from the batch sizes
  std::optional<IntList> rampup_batch_size;      // [first batch, increment, samples of the ramp]
  bool decrease_batch_size_if_needed = false;    // round a batch down to whole micro-batches
  std::uint64_t seed = 1234;
  std::int64_t validate_every = 0;  // steps; only after the last step if 0
  OnBadLoss on_bad_loss = "stop";
  std::int64_t max_bad_steps = 10;        // most successive steps that may be skipped
  std::int64_t check_replicas_every = 0;  // steps between comparisons of the replicas; never if 0
  bool deterministic_mode = true;
  bool operator==(const TrainConfig&) const = default;
};

/// Settings for the parameters whose first matching entry in the list is this one.
struct OptimizerGroup {
  std::vector<std::string> match;       // patterns of names: * matches any text, ? one character
  std::optional<OptimizerType> type{};  // default: the optimizer's type
  double lr_mult = 1;                   // multiplies the scheduled rate; frozen if 0
  std::optional<double> wd_mult{};  // multiplies scheduled decay; default: 1 for matrices, else 0
  bool operator==(const OptimizerGroup&) const = default;
};

inline constexpr std::size_t max_optimizer_groups = 64;

using OptimizerGroups = std::vector<OptimizerGroup>;

/// The section optimizer. optimizers.h lists the keys that each optimizer reads.
struct OptimizerConfig {
  OptimizerType type = OptimizerType::adamw;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
  WeightDecayForm weight_decay_form = "decoupled";
  std::optional<double> start_weight_decay;  // with weight_decay_incr_style; default: weight_decay
  std::optional<double> end_weight_decay;
  WeightDecayStyle weight_decay_incr_style = "constant";
  std::optional<std::int64_t> weight_decay_incr_steps;  // default: train.steps
  double momentum = 0.9;
  ComputeType main_grads_dtype = ComputeType::fp32;   // type of summed gradients: fp32 or bf16
  ComputeType main_params_dtype = ComputeType::fp32;  // type of matrices between steps: fp32, bf16
  ComputeType exp_avg_dtype = ComputeType::fp32;      // type of moments: fp32 or bf16
  ComputeType exp_avg_sq_dtype = ComputeType::fp32;
  double clip_grad_norm = 1.0;              // no clipping if 0
  double ema_decay = 0;                     // decay of the average of weights; no average if 0
  std::optional<double> qk_clip_threshold;  // largest score of a head; no clipping if unset
  double qk_clip_alpha = 0.5;               // exponent of the clipping factor for queries
  OptimizerGroups groups;
  MuonConfig muon;
  bool operator==(const OptimizerConfig&) const = default;
};

struct LrScheduleConfig {
  LrStyle style = LrStyle::constant;
  double max_lr = 0.0;  // required
  double min_lr = 0.0;
  double init_lr = 0.0;
  std::int64_t warmup_steps = 0;
  std::optional<double> warmup_ratio;           // share of the steps; determines warmup_steps
  std::optional<std::int64_t> decay_steps;      // default: train.steps
  std::optional<std::int64_t> wsd_decay_steps;  // required with wsd
  DecayStyle wsd_decay_style = "exponential";
  bool operator==(const LrScheduleConfig&) const = default;
};

struct PrecisionConfig {
  ComputeType compute = ComputeType::fp32;
  bool enable_autocast = false;
  std::optional<ComputeType> autocast_dtype;  // default: compute
  std::optional<double> loss_scale;           // constant scale
  std::optional<bool> dynamic_loss_scale;     // default: true in fp16 without loss_scale
  double initial_loss_scale = 0x1p32;
  double min_loss_scale = 1;
  double loss_scale_growth = 2;
  double loss_scale_backoff = 0.5;
  std::int64_t loss_scale_window = 1000;  // updates without an overflow before the scale grows
  std::int64_t loss_scale_hysteresis = 2;
  bool operator==(const PrecisionConfig&) const = default;
};

/// A level of the network. The first level joins neighbouring ranks; each further level joins
/// groups of the level before.
struct NetworkLevel {
  std::string name;
  std::int64_t ranks = 0;             // ranks that the level joins; 0 in the last level: all ranks
  std::optional<double> bandwidth;    // bytes/s of a link in one direction; the device's if unset
  std::optional<double> latency;      // seconds; the device's if unset
  double oversubscription = 1;        // ratio of the bandwidth of the links to that above them
  std::optional<std::int64_t> links;  // links per host; the device's if unset
  bool operator==(const NetworkLevel&) const = default;
};

using NetworkLevels = std::vector<NetworkLevel>;

/// A device with its software and network, or four measured rates of one rank while all ranks are
/// busy: none or all four.
struct ClusterConfig {
  std::optional<double> matmul_flops;      // FLOP/s of matrix products in precision.compute
  std::optional<double> memory_bandwidth;  // bytes/s, read and written
  std::optional<double> latency;           // seconds of a message between ranks
  std::optional<double> bandwidth;         // bytes/s of a rank's messages
  std::optional<double> device_memory{};   // GiB of a CUDA device; independent of the four rates
  std::optional<std::string> device{};     // a known name (config/devices/figures.h) or a file
  std::string software = "trainctl";       // a known name or a file
  NetworkLevels levels{};  // if empty, the ranks of a host, then the device's network
  std::optional<double> price_per_hour{};  // price of one device for an hour
  // Contents of the files that `device` and `software` name, read with the configuration.
  std::string device_text{}, software_text{};
  bool operator==(const ClusterConfig&) const = default;
};

struct LogConfig {
  LogLevel level = LogLevel::info;
  std::int64_t every = 10;  // steps between plain lines when stderr is not a terminal
  bool color = true;
  std::int64_t timer_level = 2;      // level of hooks.timers, 0 to 2
  bool barrier_with_timers = true;   // synchronise all ranks before timing a phase of level 1
  std::string trace;                 // file for the executed rows of the plan; not written if empty
  std::int64_t trace_steps = 1;      // last steps of the run to write to it
  bool max_attention_logit = false;  // report the largest logsumexp of scores per step
  bool operator==(const LogConfig&) const = default;
};

struct OutputConfig {
  std::string dir = "runs/default";
  bool overwrite = false;  // replace files of an earlier run in `dir`
  bool save_weights = true;
  bool tensorboard = false;  // also write an event file for TensorBoard
  bool operator==(const OutputConfig&) const = default;
};

struct CheckpointConfig {
  std::int64_t every = 0;    // steps between checkpoints; 0 for none before the last step
  double every_minutes = 0;  // minutes between checkpoints; ignored if 0
  bool at_end = true;
  std::int64_t keep = 2;        // number of newest checkpoints to keep; all if 0
  std::int64_t keep_every = 0;  // also keep checkpoints of steps divisible by it; none if 0
  bool keep_best = false;       // also keep the checkpoint with the lowest validation loss
  bool asynchronous = true;     // write in the background while training continues
  bool operator==(const CheckpointConfig&) const = default;
};

struct Config {
  ModelConfig model;
  DataConfig data;
  TrainConfig train;
  OptimizerConfig optimizer;
  LrScheduleConfig lr_schedule;
  PrecisionConfig precision;
  ParallelConfig parallel;
  MoeConfig moe;
  RecomputeConfig recompute;
  OffloadConfig offload;
  HooksConfig hooks;
  ClusterConfig cluster;
  LogConfig log;
  OutputConfig output;
  CheckpointConfig checkpoint;
  bool operator==(const Config&) const = default;
};

}  // namespace trainctl
