// The fixed choices of the configuration. words.h has their spelling in YAML.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/kinds.h"

namespace trainctl {

enum class Family { gpt2, llama };
enum class ParallelMode {
  stand_alone,
  data_parallel,
  semi_auto_parallel,
  auto_parallel,
  hybrid_parallel
};
enum class LrStyle { constant, linear, cosine, inverse_square_root, wsd };
enum class DecayStyle { linear, cosine, exponential, minus_sqrt };
enum class WeightDecayStyle { constant, linear, cosine };
enum class WeightDecayForm { decoupled, coupled };
enum class ComputeType { fp32, bf16, fp16 };
enum class SplitStyle { tail, blocks };
enum class OnBadLoss { stop, skip };
enum class ChangedData { refuse, allow };
enum class SearchMode { recursive_programming, sharding_propagation, dynamic_programming };
enum class AttentionBackend { automatic, own, cudnn };
enum class ProductChoice { proposed, timed };
enum class GraphChoice { automatic, yes, no };
enum class FusionMode { automatic, size, index };
enum class BucketRule { size, megatron, comm_fusion, layers };
enum class SplitBy { features, tokens, whole };
enum class CpCommType { p2p, all_gather, a2a, a2a_p2p };
enum class EntropyFusion { native, te };
enum class BootstrapBackend { nccl, mpi, gloo };
enum class PipelineCommBackend { nccl, ucc };
enum class GradSyncStart { overlap, after_backward };
enum class ParamSyncStart { overlap, before_forward };
enum class NoSync { last_microbatch, never };
enum class OptimizerLevel { level1, level2, level3 };
enum class GradScale { loss_scale, none };
enum class Overflow { position, probability, token };
enum class ScoreFunction { softmax, sigmoid };
enum class LoadBalancing { aux_loss, round_aux_loss, none };
enum class ExpertChoice { topk, rounds };
enum class ExpertWeights { all, chosen, kept };
enum class BalanceCounts { chosen, free };
enum class SoftmaxType { vanilla, learnable };
enum class ExpertGroup { sequence, micro_batch };
enum class LogLevelName { debug, info, warning, error };

/// How context-parallel ranks share attention: one word for all layers, or one for each.
struct CpCommTypes {
  std::vector<CpCommType> layers{CpCommType::p2p};

  CpCommTypes() = default;
  CpCommTypes(CpCommType all) : layers{all} {}
  CpCommType of(std::int64_t layer) const {
    return layers[layers.size() == 1 ? 0 : static_cast<std::size_t>(layer)];
  }
  bool has(CpCommType type) const { return std::ranges::find(layers, type) != layers.end(); }
  bool operator==(const CpCommTypes&) const = default;
};

// The pipeline schedules: their names and what each of them allows. The rules, the generators'
// dispatch, `trainctl verify` and the tests read this table.

enum class PipelineScheduler : std::uint8_t { one_f_one_b, gpipe, zb_h1, zb_v };

/// On which stage each chunk of the model lies, in the order in which data passes them.
enum class ChunkRoute : std::uint8_t {
  round_robin,  // from the first stage to the last, then again from the first
  down_and_up,  // from the first stage to the last, then back to the first
};

struct ScheduleTraits {
  PipelineScheduler value = PipelineScheduler::one_f_one_b;
  std::string_view word;          // in YAML
  std::string_view name;          // in a plan; YAML accepts it too
  std::string_view chunked_name;  // in a plan with several chunks per stage
  int min_chunks = 1;             // per stage
  int max_chunks = 1 << 20;
  ChunkRoute route = ChunkRoute::round_robin;
  bool groups = false;          // several chunks are run in groups of micro-batches
  bool overlaps = true;         // messages may overlap with one chunk per stage
  bool batches = true;          // messages may be exchanged in batches
  bool apart = false;           // those of several chunks are by default exchanged one by one
  bool places_weights = false;  // W comes where it fills a gap, apart from its B
};

/// In the order of the enumerators.
inline constexpr ScheduleTraits schedules[] = {
    {.value = PipelineScheduler::one_f_one_b,
     .word = "1f1b",
     .name = "1f1b",
     .chunked_name = "interleaved_1f1b",
     .groups = true,
     .overlaps = false},
    {.value = PipelineScheduler::gpipe, .word = "gpipe", .name = "gpipe", .chunked_name = "gpipe"},
    {.value = PipelineScheduler::zb_h1,
     .word = "zb-h1",
     .name = "zb_h1",
     .chunked_name = "interleaved_zb_h1",
     .groups = true,
     .overlaps = false,
     .apart = true,
     .places_weights = true},
    {.value = PipelineScheduler::zb_v,
     .word = "zb-v",
     .name = "zb_v",
     .chunked_name = "zb_v",
     .min_chunks = 2,
     .max_chunks = 2,
     .route = ChunkRoute::down_and_up,
     .batches = false,
     .places_weights = true},
};

constexpr const ScheduleTraits& traits_of(PipelineScheduler scheduler) {
  return schedules[static_cast<int>(scheduler)];
}

}  // namespace trainctl
