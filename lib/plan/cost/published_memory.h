// The memory of a rank by two published models, for comparison only: the plan's own estimate counts
// what is allocated.
#pragma once

#include <cstdint>
#include <string_view>

#include "config/schema/config.h"
#include "plan/plan.h"

namespace trainctl {

/// The arguments of the formulas of Korthikanti et al. and Megatron.
struct MemoryModelInput {
  double layers = 0, hidden = 0, ffn = 0, heads = 0, groups = 0, head_size = 0;
  double vocab = 0;  // padded vocabulary; the two models pad differently
  bool untied = false;
  bool gated = false;                  // SwiGLU: the MLP has three matrices
  bool rms_norm = false;               // RMSNorm has no bias, unlike LayerNorm
  double experts = 1, expert_ffn = 0;  // `experts` 1 = no experts, else all layers have them
  bool linear_bias = false;            // version head: only the router's bias counts
  double sequence = 0, micro_batch = 0, microbatches = 1;
  double tp = 1, pp = 1, dp = 1, etp = 1, ep = 1, edp = 1;
  double chunks = 1;  // number per stage; 1 = not interleaved
  bool sequence_parallel = false;
  bool selective_recompute = false;
  bool distributed_optimizer = false;
};

// Activation memory of a transformer by Korthikanti et al. 2022, "Reducing Activation Recomputation
// in Large Transformer Models" (arXiv 2205.05198), table 2 and section 4.3: 16-bit activations, an
// MLP of 4 h, dropout everywhere and attention scores that are stored.

/// The rows of table 2, in its order.
///   none                       s b h (34 + 5 a s / h)
///   tensor                     s b h (10 + 24 / t + 5 a s / (h t))
///   tensor_sequence            s b h / t (34 + 5 a s / h)
///   tensor_selective           s b h (10 + 24 / t)
///   tensor_sequence_selective  s b h / t 34
///   full                       s b h 2
using Technique =
    OneOf<"none|tensor|tensor_sequence|tensor_selective|tensor_sequence_selective|full">;
/// The name in output: "tensor and sequence".
std::string_view name_of(Technique technique);

/// Only what the formulas of the paper read is set.
MemoryModelInput korthikanti_input(const Plan& plan);
/// The row of the table that is nearest to a plan. Attention scores are never stored here, as with
/// selective recomputation; `recompute.select: full` is full recomputation.
Technique technique_of(const Plan& plan, const RecomputeConfig& recompute);

/// Bytes of one layer and micro-batch on one rank.
double korthikanti_layer(const MemoryModelInput& input, Technique technique);
/// Bytes on the first stage (equation 5): activations of L layers, since pp micro-batches of L / pp
/// layers are in flight, times 1 + (pp - 1) / (pp chunks) if interleaved; the dropout after the
/// embedding, s b h pp / t; with one stage 4 s b h / t (1 + v / h) for norm, output and loss.
double korthikanti_total(const MemoryModelInput& input, Technique technique);

// Megatron-LM's theoretical memory footprint (megatron/training/theoretical_memory_usage.py), with
// the same terms so that numbers can be compared. It assumes 16-bit training with Adam, counts the
// most loaded shard, and ignores context parallelism and buffers.

/// Megatron recomputes only the core of attention if recomputation is selective. Attention here
/// never stores scores, so only `recompute.select: full` counts as full recomputation. `padding` is
/// model.make_vocab_size_divisible_by.
MemoryModelInput megatron_memory_input(const Plan& plan, std::int64_t padding,
                                       const RecomputeConfig& recompute,
                                       const ParallelOptimizerConfig& optimizer);

/// The vocabulary padded as in Megatron: to a multiple of divisible_by x tp.
std::int64_t megatron_padded_vocab(std::int64_t vocab, std::int64_t divisible_by, std::int64_t tp);

struct MegatronMemory {
  double parameters = 0;   // number of parameters on the most loaded shard
  double experts = 0;      // number of parameters of routed experts among them
  double model = 0;        // number of parameters in the whole model
  double weights = 0;      // bytes of weights, gradients and optimizer state
  double layer = 0;        // bytes of one layer's activations, before the division by tp
  double activations = 0;  // bytes of the first stage's activations
  double total() const { return weights + activations; }
};

/// Weights: 18 bytes per parameter (2 weight, 4 gradient, 4 master, 8 Adam), with the distributed
/// optimizer 6 + 12 / dp. Version core_0.15.3 divides every parameter by tp, counts both norms with
/// biases and has no router; the main branch (`head`) keeps norms and routers whole and divides
/// routed experts by etp and ep (6 + 12 / edp bytes each). Both spread the final norm over the
/// pipeline stages.
/// Activations with sequence parallelism and selective recomputation: s b h (18 + 4 f / h) per
/// layer, all divided by tp; else s b h (10 + 24 / tp), and 5 % on top.
MegatronMemory megatron_memory(const MemoryModelInput& input, bool head);

}  // namespace trainctl
