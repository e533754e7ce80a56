// Megatron-LM's theoretical memory footprint (megatron/training/theoretical_memory_usage.py), kept
// to its terms so that its numbers can be compared: it assumes 16-bit training with Adam, counts
// the most loaded shard, and knows nothing of context parallelism or of this program's buffers.
#pragma once

#include <cstdint>

#include "config/schema/config.h"
#include "plan/plan.h"

namespace trainctl {

enum class MegatronVersion : std::uint8_t { core_0_15_3, head };

/// The arguments that the formulas read.
struct MegatronMemoryInput {
  double layers = 0, hidden = 0, ffn = 0, heads = 0, groups = 0, head_size = 0;
  double vocab = 0;  // padded, see megatron_padded_vocab
  bool untied = false;
  bool gated = false;                  // SwiGLU: an MLP of three matrices
  bool rms_norm = false;               // weights only; LayerNorm has biases as well
  double experts = 1, expert_ffn = 0;  // experts 1: no expert layers, else all layers are
  bool linear_bias = false;            // head: the router's counts, those of other products do not
  double sequence = 0, micro_batch = 0, microbatches = 1;
  double tp = 1, pp = 1, dp = 1, etp = 1, ep = 1, edp = 1;
  double chunks = 1;  // per stage; 1: not interleaved
  bool sequence_parallel = false;
  bool selective_recompute = false;
  bool distributed_optimizer = false;
};
/// Megatron recomputes the core of attention only where it is told to (selective); our attention
/// never stores scores, so only `recompute.select: full` counts as full.
/// `padding`: model.make_vocab_size_divisible_by.
MegatronMemoryInput megatron_memory_input(const Plan& plan, std::int64_t padding,
                                          const RecomputeConfig& recompute,
                                          const ParallelOptimizerConfig& optimizer);

/// Rows of the vocabulary as Megatron pads them: up to a multiple of divisible_by x tp.
std::int64_t megatron_padded_vocab(std::int64_t vocab, std::int64_t divisible_by, std::int64_t tp);

struct MegatronMemory {
  double parameters = 0;   // their number on the most loaded shard, experts included
  double experts = 0;      // the number of these that are in routed experts
  double model = 0;        // their number in the whole model
  double weights = 0;      // bytes of weights, gradients and optimizer state
  double layer = 0;        // bytes of one layer's activations, before they are divided by tp
  double activations = 0;  // bytes, of the first stage
  double total() const { return weights + activations; }
};

/// Weights: 18 bytes per parameter (2 weight, 4 gradient, 4 master, 8 Adam), with the distributed
/// optimizer 6 + 12 / dp. core_0_15_3 divides every parameter by tp, counts both norms with biases
/// and has no router; head keeps norms and routers whole and divides routed experts by etp and ep
/// (6 + 12 / edp bytes each). Both spread the final norm over the pipeline stages.
/// Activations with sequence parallelism and selective recomputation: s b h (18 + 4 f / h) per
/// layer, all divided by tp; else s b h (10 + 24 / tp), and 5 % on top.
MegatronMemory megatron_memory(const MegatronMemoryInput& input, MegatronVersion version);

}  // namespace trainctl
