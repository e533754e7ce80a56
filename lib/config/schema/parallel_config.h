// The parallel section: how ranks and threads share the work. lib/config/upstream: upstream names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/schema/choices.h"

namespace trainctl {

/// The largest number of ranks in a file or on a command line.
inline constexpr std::int64_t max_ranks = 1'000'000;

using IntList = std::vector<std::int64_t>;

/// MindSpore's dataset_strategy: a word, or for each input the number of parts per dimension.
struct DatasetSplit {
  std::string word = "data_parallel";  // data_parallel | full_batch; if empty, `splits` applies
  std::vector<IntList> splits;
  bool operator==(const DatasetSplit&) const = default;
};

/// The value of a fusion mode: none (auto), a size in MB, or ascending indices.
struct FusionValue {
  std::optional<std::int64_t> size;
  std::optional<IntList> index;
  bool operator==(const FusionValue&) const = default;
};

struct FusionConfig {              // fusion of one kind of collective
  std::optional<FusionMode> mode;  // default: no fusion by this rule
  FusionValue config;
  bool operator==(const FusionConfig&) const = default;
};

struct CommFusionConfig {
  bool openstate = true;
  FusionConfig allreduce;
  FusionConfig allgather;
  FusionConfig reducescatter;
  bool operator==(const CommFusionConfig&) const = default;
};

struct ParallelOptimizerConfig {  // optimizer state sharded among data-parallel ranks
  bool enable = false;
  bool gradient_accumulation_shard = true;
  std::int64_t threshold = 64;          // KB; smaller parameters are not sharded
  std::int64_t weight_shard_size = -1;  // ranks that share a parameter's state; all replicas if -1
  // Default: level2 with gradient_accumulation_shard, else level1.
  std::optional<OptimizerLevel> optimizer_level;
  std::int64_t prefetch = 1;  // level3: blocks gathered ahead of the one in use
  bool operator==(const ParallelOptimizerConfig&) const = default;
};

struct PipelineConfig {
  PipelineScheduler scheduler = PipelineScheduler::one_f_one_b;
  std::optional<bool> interleave;  // default: virtual_pipeline_stages > 1
  std::optional<std::int64_t> microbatch_group_size_per_vp_stage;  // default: pipeline_stages
  std::optional<std::int64_t> first_stage_layers;
  std::optional<std::int64_t> last_stage_layers;
  bool account_for_embedding = false;
  bool account_for_loss = false;
  std::optional<std::string> layout;  // such as "Et*3|t*4|tL": see docs/pipeline.md
  std::optional<IntList> offset;      // MindFormers: layers added to the even share, per stage
  std::optional<ComputeType> dtype;   // type of messages; default: precision.compute
  std::optional<PipelineCommBackend> comm_backend;
  bool variable_seq_lengths = false;
  bool overlap_p2p_comm = false;
  std::optional<bool> batch_p2p_comm;  // default: see pipeline_fields.h
  bool batch_p2p_sync = true;
  bool use_ring_exchange_p2p = false;
  bool overlap_p2p_comm_warmup_flush = false;
  bool deallocate_outputs = false, result_broadcast = false;
  bool defer_embedding_wgrad_compute = false;
  std::int64_t wgrad_deferral_limit = 0;
  bool operator==(const PipelineConfig&) const = default;
};

struct TpCommOverlapConfig {  // overlap of tensor-parallel collectives with matrix products
  bool enable = false;
  bool ag = true, rs = true, rs_dgrad = false, bulk_dgrad = true, bulk_wgrad = true;
  bool disable_qkv = false, disable_fc1 = false;
  BootstrapBackend bootstrap_backend = "nccl";
  bool split_ag = true, atomic_ag = false, split_rs = true, atomic_rs = false;  // deprecated
  bool async_allreduce = false;                                                 // deprecated
  bool operator==(const TpCommOverlapConfig&) const = default;
};

struct OperatorSplitsConfig {  // semi_auto_parallel: how tensor-parallel ranks share each operator
  std::optional<SplitBy> embedding, head;              // default: by vocab_emb_dp
  std::optional<std::string> attention, feed_forward;  // a word, or "features*2, tokens*2"
  bool operator==(const OperatorSplitsConfig&) const = default;
};

struct StrategyFileConfig {
  std::string load_file;
  std::string save_file;
  bool only_trainable_params = true;
  bool operator==(const StrategyFileConfig&) const = default;
};

struct ParallelConfig {
  std::optional<ParallelMode> parallel_mode;  // default: derived from the sizes below
  std::optional<std::int64_t> device_num;     // must equal the world size
  std::int64_t global_rank = 0;
  std::optional<std::int64_t> data_parallel;  // default: the world size divided by the other sizes
  std::int64_t tensor_parallel = 1;
  bool sequence_parallel = false;
  std::int64_t context_parallel = 1;
  CpCommTypes cp_comm_type;
  std::optional<IntList> hierarchical_context_parallel_sizes;
  std::int64_t expert_parallel = 1;
  std::optional<std::int64_t> expert_tensor_parallel;  // default: tensor_parallel
  std::int64_t pipeline_stages = 1;
  std::int64_t virtual_pipeline_stages = 1;   // model chunks per rank
  std::string rank_order = "tp-cp-ep-dp-pp";  // the leftmost axis has the smallest stride
  PipelineConfig pipeline;
  ParallelOptimizerConfig parallel_optimizer;
  TpCommOverlapConfig tp_comm_overlap;
  OperatorSplitsConfig operator_splits;
  std::optional<BucketRule> bucket_rule;    // default: derived from the keys below, else size
  std::optional<std::int64_t> bucket_size;  // gradient elements reduced together
  CommFusionConfig comm_fusion;
  std::optional<std::int64_t> gradient_aggregation_group;
  std::optional<bool> gradients_mean;  // default: the loss is a mean over the global batch
  bool gradient_fp32_sync = true;
  bool loss_repeated_mean = true;
  bool force_fp32_communication = false;
  bool parameter_broadcast = false;
  bool enable_alltoall = false;
  std::optional<bool> gradient_accumulation_fusion;  // default: true
  bool delay_wgrad_compute = false;
  std::optional<bool> vocab_emb_dp;  // default: tensor_parallel is 1
  DatasetSplit dataset_strategy;
  SearchMode search_mode = "recursive_programming";
  StrategyFileConfig strategy_ckpt_config;
  std::string group_ckpt_save_file;
  std::optional<std::int64_t> threads_per_rank;  // default: cores / ranks on the host
  double deadline_seconds = 300;                 // longest wait for another rank [s]
  bool check_collectives = false;                // over MPI; ranks that are threads always compare
  std::string device = "cpu";                    // auto | cpu | cuda
  AttentionBackend attention_backend = "auto";
  ProductChoice product_algorithms = "proposed";
  std::int64_t product_sm_margin = 0;  // multiprocessors left free by matrix products
  GraphChoice cuda_graphs = "auto";
  std::optional<std::int64_t> head_chunk;  // tokens; default: 8,192 on a device, by bytes on a CPU
  DeviceSharing share_devices = DeviceSharing::none;
  bool operator==(const ParallelConfig&) const = default;
};

}  // namespace trainctl
