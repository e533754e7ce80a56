// The configuration as typed values: one aggregate per YAML section, with defaults. Code that uses
// a section receives that struct, never the whole Config. No code handles YAML after
// read_config().
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
  std::optional<std::string> path;  // its own data instead of a part of `train`
  double fraction = 0.0;
  // tail: the last part; blocks: every (1/fraction)th 1024 tokens
  SplitStyle split = "tail";
  std::int64_t max_sequences = 0;  // 0: all non-overlapping windows
  bool operator==(const ValidationConfig&) const = default;
};

struct DataConfig {
  std::vector<DataSource> train;   // YAML: a path, a list of paths, or a list of {path, weight}
  std::string tokenizer = "byte";  // byte | sentencepiece:MODEL | hf:DIR; also for generate
  ValidationConfig validation;
  bool shuffle = true;
  bool packing = true;  // documents are joined; false: each row has tokens of one document
  bool reset_attention_mask = false;  // attention stays within a document
  bool reset_position_ids = false;    // positions restart at each document
  bool eod_mask_loss = false;         // the end-of-document token has no loss
  // where documents end; default: the tokenizer's, or the file's documents
  std::optional<std::int64_t> eod_token;
  ChangedData changed = "refuse";  // of a source since the checkpoint
  std::string cache_dir;           // tokenised text; default: the user's cache folder
  std::int64_t prefetch = 2;       // batches prepared ahead
  bool operator==(const DataConfig&) const = default;
};

struct TrainConfig {
  std::int64_t steps = 0;              // required unless tokens or epochs gives it
  std::optional<std::int64_t> tokens;  // of the whole run; gives steps, or must agree with it
  std::optional<double> epochs;        // passes over the training data; gives steps likewise
  // sequences per step over all ranks; required unless micro_batch_size and micro_batch_num give it
  std::int64_t global_batch_size = 0;
  std::optional<std::int64_t> micro_batch_size;  // default: global_batch_size / data_parallel
  std::optional<std::int64_t> micro_batch_num;   // per rank and step; default: what the sizes leave
  std::optional<IntList> rampup_batch_size;      // first batch, increment, samples of the ramp
  bool decrease_batch_size_if_needed = false;    // to whole micro-batches of all replicas
  std::uint64_t seed = 1234;
  std::int64_t validate_every = 0;  // 0: only after the last step
  OnBadLoss on_bad_loss = "stop";
  std::int64_t max_bad_steps = 10;        // in a row that are skipped
  std::int64_t check_replicas_every = 0;  // hash the parameters over data-parallel ranks; 0: never
  bool deterministic_mode = true;
  bool operator==(const TrainConfig&) const = default;
};

/// Settings for those parameters whose first matching entry in the list is this one.
struct OptimizerGroup {
  std::vector<std::string> match;       // patterns over names: * any characters, ? one
  std::optional<OptimizerType> type{};  // default: that of the optimizer
  double lr_mult = 1;                   // times the scheduled rate; 0: frozen
  std::optional<double> wd_mult{};  // times the scheduled decay; default: 1 for matrices, else 0
  bool operator==(const OptimizerGroup&) const = default;
};

inline constexpr std::size_t max_optimizer_groups = 64;

using OptimizerGroups = std::vector<OptimizerGroup>;

/// optimizers.h says which keys an optimizer reads.
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
  ComputeType main_grads_dtype = ComputeType::fp32;   // of summed gradients: fp32 or bf16
  ComputeType main_params_dtype = ComputeType::fp32;  // of matrices between steps: fp32 or bf16
  ComputeType exp_avg_dtype = ComputeType::fp32;      // of moments: fp32 or bf16
  ComputeType exp_avg_sq_dtype = ComputeType::fp32;
  double clip_grad_norm = 1.0;              // 0: off
  double ema_decay = 0;                     // of the average of weights; 0: none is kept
  std::optional<double> qk_clip_threshold;  // of the largest score of a head; none: no clipping
  double qk_clip_alpha = 0.5;               // of the factor, the queries' share
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
  std::optional<double> warmup_ratio;           // of the steps; gives warmup_steps
  std::optional<std::int64_t> decay_steps;      // default: train.steps
  std::optional<std::int64_t> wsd_decay_steps;  // required with wsd
  DecayStyle wsd_decay_style = DecayStyle::exponential;
  bool operator==(const LrScheduleConfig&) const = default;
};

struct PrecisionConfig {
  ComputeType compute = ComputeType::fp32;
  bool enable_autocast = false;
  std::optional<ComputeType> autocast_dtype;  // default: compute
  std::optional<double> loss_scale;           // constant
  std::optional<bool> dynamic_loss_scale;     // default: in fp16, unless loss_scale is given
  double initial_loss_scale = 0x1p32;
  double min_loss_scale = 1;
  double loss_scale_growth = 2;
  double loss_scale_backoff = 0.5;
  std::int64_t loss_scale_window = 1000;  // updates without an overflow before it grows
  std::int64_t loss_scale_hysteresis = 2;
  bool operator==(const PrecisionConfig&) const = default;
};

/// One level of the network. The first joins neighbouring ranks, each further one what the level
/// before it joins.
struct NetworkLevel {
  std::string name;
  std::int64_t ranks = 0;             // that the level joins; 0: all, only in the last one
  std::optional<double> bandwidth;    // bytes/s of a link in one direction; none: the device's
  std::optional<double> latency;      // seconds; none: the device's
  double oversubscription = 1;        // share of the bandwidth that is missing above the links
  std::optional<std::int64_t> links;  // of one host; none: the device's
  bool operator==(const NetworkLevel&) const = default;
};

using NetworkLevels = std::vector<NetworkLevel>;

/// A device with its software and network, or the rates of one rank while all are busy: all four or
/// none.
struct ClusterConfig {
  std::optional<double> matmul_flops;      // FLOP/s of products in precision.compute
  std::optional<double> memory_bandwidth;  // bytes/s, read and written
  std::optional<double> latency;           // seconds of a message between ranks
  std::optional<double> bandwidth;         // bytes/s of a rank's messages
  std::optional<double> device_memory{};   // GiB of a CUDA device; not one of the four
  std::optional<std::string> device{};     // a name of config/devices/figures.h, or a file
  std::string software = "trainctl";       // the same
  NetworkLevels levels{};                  // empty: the ranks of a host, then the device's network
  std::optional<double> price_per_hour{};  // of one device
  // The texts of `device` and `software` where these are files, read with the configuration.
  std::string device_text{}, software_text{};
  bool operator==(const ClusterConfig&) const = default;
};

struct LogConfig {
  LogLevel level = LogLevel::info;
  std::int64_t every = 10;  // steps between plain lines when stderr is not a terminal
  bool color = true;
  std::int64_t timer_level = 2;      // of hooks.timers, 0 to 2
  bool barrier_with_timers = true;   // all ranks meet before a phase of level 1 is timed
  std::string trace;                 // file that the executed rows are written to; empty: none
  std::int64_t trace_steps = 1;      // the last ones of the run
  bool max_attention_logit = false;  // reported of each step
  bool operator==(const LogConfig&) const = default;
};

struct OutputConfig {
  std::string dir = "runs/default";
  bool overwrite = false;  // replace the files of an earlier run there
  bool save_weights = true;
  bool tensorboard = false;  // also an event file for TensorBoard
  bool operator==(const OutputConfig&) const = default;
};

struct CheckpointConfig {
  std::int64_t every = 0;    // steps between checkpoints; 0: none between first and last step
  double every_minutes = 0;  // 0: not by the clock
  bool at_end = true;
  std::int64_t keep = 2;        // newest ones; 0: all
  std::int64_t keep_every = 0;  // also those whose step is a multiple; 0: none
  bool keep_best = false;       // also that with the lowest validation loss
  bool asynchronous = true;     // written in the background while training continues
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
