// One optimizer step for the part of each parameter that this rank owns.
#pragma once

#include <optional>
#include <vector>

#include "config/schema/config.h"
#include "engine/parameters/param_store.h"
#include "ops/optimizer.h"

namespace trainctl {

/// How the elements of an owned slice are rounded at random, whatever rank owns them.
RandomRounding rounding_of(const ParamSpec& spec, const Slice& owned, const Mesh& mesh,
                           std::int64_t rank);

/// Of the parameters that are updated element by element. The arguments of the op are built once; a
/// step only runs them.
class Optimizer {
 public:
  /// `store` has the parameters of `rank`. What a device needs is enqueued on `stream`.
  Optimizer(const OptimizerConfig& config, const ParamStore& store, const StepState* state,
            const Mesh& mesh, std::int64_t rank, Stream& stream);
  /// Reads learning rate, decay, bias corrections and clip coefficient from the step state.
  void step(const OpContext& context) const;
  /// Takes the parameters of this step, also those that others update, into the average of weights.
  /// Not the biases by which experts are chosen, which move later (expert_bias.h).
  void average(const OpContext& context) const;

 private:
  void add_averages(const OptimizerConfig& config, const ParamStore& store, const StepState* state,
                    Stream& stream);

  std::vector<Calls<Update>>
      updates_;  // by rule; those that no parameter of this rank has are not there
  std::optional<Calls<Update>> averages_;
};

}  // namespace trainctl
