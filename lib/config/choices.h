// The fixed choices of the configuration. How each is spelt in YAML: words.h.
#pragma once

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

}  // namespace trainctl
