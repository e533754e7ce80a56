// The fixed choices of the configuration. words.h has their spelling in YAML.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/device_sharing.h"
#include "base/kinds.h"
#include "base/norm_form.h"

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

}  // namespace trainctl
