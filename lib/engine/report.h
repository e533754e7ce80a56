// The report of a training step, and the state that a run needs to continue after it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace trainctl {

/// Figures of the routers of a model with experts (ops/router.h).
struct RouterReport {
  double balance_loss = 0;  // mean over layers and routing groups; 1 if even
  double z_loss = 0;        // mean over layers and real tokens, like entropy
  double entropy = 0;       // mean entropy of the router's probabilities, nats
  double load = 0;          // choices of the busiest expert over the mean, of the worst layer
  double dropped = 0;       // choices that found their expert full, all layers
  // Choices of each expert divided by the mean of its layer, [layers with experts, experts]; valid
  // until the next step.
  std::span<const float> loads{};
  std::int64_t experts = 0;
};

struct StepReport {
  std::int64_t step = 0;   // 1 for the first
  std::int64_t steps = 0;  // steps of the whole run
  double loss = 0;         // weighted mean over the global batch, nats per token
  double grad_norm = 0;    // before clipping
  double lr = 0;           // the learning rate applied, rounded to fp32
  /// The largest logsumexp of a query's scores over all layers and heads, without sinks: an upper
  /// bound of all scores, at most log(seq_length) above the largest. Computed with
  /// EngineInput::max_attention_logit.
  std::optional<double> max_attention_logit{};
  // Counts since the start of the run over all ranks: real positions (data/batch.h), all positions,
  // and labels with a weight above 0.
  std::int64_t tokens = 0, positions = 0, labels = 0;
  std::optional<std::int64_t> batch_size{};  // sequences of this step, in a run with a ramp
  double tokens_per_second = 0;              // real tokens
  double step_seconds = 0;
  double flops_per_second = 0;  // FLOPs of the model (causal attention, real positions), all ranks
  std::optional<double> val_loss;
  std::optional<double> loss_scale;  // loss scale of this step's backward, if there is loss scaling
  bool skipped = false;  // a loss or gradient was not finite; a bad gradient updates nothing
  int request = 0;       // the greatest answer of EngineInput::request
  std::optional<RouterReport> router{};
};

// Values that a run needs besides parameters and optimizer values to continue after a step: small
// ones that are the same on every rank.

struct TrainState {
  std::int64_t step = 0;     // completed steps
  std::int64_t samples = 0;  // samples seen, so the index of the next one
  // Counts so far: real positions, all positions, labels with a weight above 0 (StepReport).
  std::int64_t tokens = 0, positions = 0, labels = 0;
  std::int64_t updates = 0;  // steps that changed the parameters
  double loss_scale = 1;     // loss scale of the next backward
  std::int64_t good_steps = 0;
  std::int64_t hysteresis = 1;
  std::int64_t skipped_in_row = 0;
  friend bool operator==(const TrainState&, const TrainState&) = default;
};

}  // namespace trainctl
