// The configuration as typed values: one aggregate per YAML section, defaults in place. Whoever
// uses a section receives that struct, never the whole Config. Nobody sees YAML after
// read_config().
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trainctl {

enum class Family { gpt2, llama };
enum class ParallelMode {
  stand_alone,
  data_parallel,
  semi_auto_parallel,
  auto_parallel,
  hybrid_parallel
};
enum class OptimizerType { adamw, sgd };
enum class LrStyle { constant, linear, cosine, inverse_square_root, wsd };
enum class DecayStyle { linear, cosine, exponential, minus_sqrt };
enum class WeightDecayStyle { constant, linear, cosine };
enum class ComputeType { fp32, bf16, fp16 };
enum class SplitStyle { tail, blocks };
enum class OnBadLoss { stop, skip };
enum class LogLevelName { debug, info, warning, error };

struct RopeScalingConfig {  // Llama 3's frequency scaling; factor 1 is none
  double factor = 1.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  std::int64_t original_max_position_embeddings = 8192;
};

struct ModelConfig {
  std::optional<std::string> preset;  // fills every field below that is not given itself
  Family family = Family::gpt2;
  std::int64_t num_layers =
      0;  // required unless a preset gives them, as the next three and vocab_size
  std::int64_t hidden_size = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t seq_length = 0;
  std::int64_t vocab_size = 0;
  std::optional<std::int64_t>
      ffn_hidden_size;  // default: 4 x hidden (gpt2), 8/3 x hidden up to 256s (llama)
  std::optional<std::int64_t> num_query_groups;         // KV heads; default: num_attention_heads
  std::optional<std::int64_t> kv_channels;              // head size; default: hidden / heads
  std::optional<std::int64_t> max_position_embeddings;  // default: seq_length
  std::optional<bool> tie_word_embeddings;              // default: true for gpt2, false for llama
  std::optional<bool> add_bias_linear;                  // default: true for gpt2, false for llama
  std::optional<bool> add_qkv_bias;                     // default: add_bias_linear
  bool qk_layernorm = false;  // RMSNorm on q and k per head, before RoPE (llama)
  double norm_epsilon = 1e-5;
  double rotary_base = 10000.0;
  RopeScalingConfig rope_scaling;
  double hidden_dropout = 0.0;
  double attention_dropout = 0.0;
  double embedding_dropout = 0.0;
  double init_method_std = 0.02;
  std::int64_t make_vocab_size_divisible_by = 128;
};

struct DataSource {
  std::string path;  // a text file or folder, a .bin/.idx prefix, or a .bin file
  double weight = 1.0;
};

struct ValidationConfig {
  std::optional<std::string> path;  // its own data instead of a part of `train`
  double fraction = 0.0;
  SplitStyle split =
      SplitStyle::tail;            // tail: the last part; blocks: every (1/fraction)th 1024 tokens
  std::int64_t max_sequences = 0;  // 0: all non-overlapping windows
};

struct DataConfig {
  std::vector<DataSource> train;   // YAML: a path, a list of paths, or a list of {path, weight}
  std::string tokenizer = "byte";  // byte | sentencepiece:MODEL; for text input, and for generate
  ValidationConfig validation;
  bool shuffle = true;
  bool reset_attention_mask = false;  // attention stays within a document
  bool reset_position_ids = false;    // positions restart at each document
  bool eod_mask_loss = false;         // the end-of-document token has no loss
  std::optional<std::int64_t>
      eod_token;          // where documents end; default: the tokenizer's, or the file's documents
  std::string cache_dir;  // tokenised text; default: the user's cache folder
  std::int64_t prefetch = 2;  // batches prepared ahead
};

struct TrainConfig {
  std::int64_t steps = 0;                        // required
  std::int64_t global_batch_size = 0;            // required; sequences per step over all ranks
  std::optional<std::int64_t> micro_batch_size;  // default: global_batch_size / data_parallel
  std::uint64_t seed = 1234;
  std::int64_t validate_every = 0;  // 0: only after the last step
  OnBadLoss on_bad_loss = OnBadLoss::stop;
  std::int64_t check_replicas_every = 0;  // hash the parameters over data-parallel ranks; 0: never
};

struct OptimizerConfig {
  OptimizerType type = OptimizerType::adamw;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
  std::optional<double> start_weight_decay;  // with weight_decay_incr_style; default: weight_decay
  std::optional<double> end_weight_decay;
  WeightDecayStyle weight_decay_incr_style = WeightDecayStyle::constant;
  double momentum = 0.9;        // sgd
  double clip_grad_norm = 1.0;  // 0: off
};

struct LrScheduleConfig {
  LrStyle style = LrStyle::constant;
  double max_lr = 0.0;  // required
  double min_lr = 0.0;
  double init_lr = 0.0;
  std::int64_t warmup_steps = 0;
  std::optional<std::int64_t> decay_steps;      // default: train.steps
  std::optional<std::int64_t> wsd_decay_steps;  // required with wsd
  DecayStyle wsd_decay_style = DecayStyle::exponential;
};

struct PrecisionConfig {
  ComputeType compute = ComputeType::fp32;
};

struct ParallelConfig {
  std::optional<ParallelMode>
      parallel_mode;  // default: data_parallel when there is more than one rank
  std::optional<std::int64_t> device_num;        // must equal the world size
  std::optional<std::int64_t> data_parallel;     // default: what the world size leaves
  std::int64_t bucket_size = 4'000'000;          // gradient elements reduced together
  std::optional<std::int64_t> threads_per_rank;  // default: cores / ranks on the host
  double deadline_seconds = 300;                 // longest wait for another rank
  std::string device = "cpu";                    // cpu | cuda
};

struct LogConfig {
  LogLevelName level = LogLevelName::info;
  std::int64_t every = 10;  // steps between plain lines when stderr is not a terminal
  bool color = true;
};

struct OutputConfig {
  std::string dir = "runs/default";
  bool overwrite = true;  // replace the files of an earlier run there
  bool save_weights = true;
};

struct Config {
  ModelConfig model;
  DataConfig data;
  TrainConfig train;
  OptimizerConfig optimizer;
  LrScheduleConfig lr_schedule;
  PrecisionConfig precision;
  ParallelConfig parallel;
  LogConfig log;
  OutputConfig output;
};

}  // namespace trainctl
