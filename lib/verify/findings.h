// The comparison of values on ranks with those of a single rank: departures beyond the bounds.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/batch.h"
#include "engine/report.h"
#include "ops/context.h"
#include "plan/tables/mesh.h"
#include "verify/own/step_numbers.h"
#include "verify/record.h"
#include "verify/verify.h"

namespace trainctl {

/// The kinds of compared numbers, in the order in which a step computes them; then of a free run.
enum class Phase : std::uint8_t {
  initial,
  loaded,  // loaded from a checkpoint: the master, then optimizer states
  loaded_state1,
  loaded_state2,
  loaded_average,  // average of weights
  activation,
  router,  // logits of a router
  router_report,
  scalar,  // number of a step, known before its passes
  loss,
  gradient,
  sum,  // sum over ranks: of gradients, and in a collective
  grad_norm,
  clip,
  scaler,  // loss scale, number of updates, and the counters that move the scale
  parameter,
  state1,
  state2,
  average,
  update,  // change of a parameter and of its optimizer states
  dropout,
  slope,  // slope of the loss along a direction
  batch,  // batch of the loader, compared with data read without the loader
  free_scalar,
  free_loss,
  free_gradient,
  free_norm,
  free_scale,
  compute_copy,  // a parameter's copy that layers read
  calls,         // number of calls of an operation of a group in a step
  bytes,
  validation,
  exported,
  owned,     // master, compared with the exported parameter
  resident,  // weight that stays on the rank, compared with the exported parameter
  // Figures of a run resumed from a checkpoint, compared with those of the uninterrupted run:
  same_figure,
  same_master,
  same_state1,
  same_state2,
  same_average
};

/// The phase of the value with index `kind` among those of a parameter: the master has phase
/// `first`, then come the `updated` states that the update reads, then the average of weights.
constexpr Phase phase_of(Phase first, int kind, int updated) {
  const int average = static_cast<int>(Phase::average) - static_cast<int>(Phase::parameter);
  return static_cast<Phase>(static_cast<int>(first) + (kind > updated ? average : kind));
}

/// The comparisons of one rank, or after merge() of several ranks.
class Findings {
 public:
  Findings(const Mesh& mesh, int rank) : mesh_(mesh), rank_(rank) {}

  struct Subject {
    Phase phase = Phase::loss;
    std::int64_t step = 0;  // number of the step, from 1
    double min_scale = 0;   // least divisor of the error, for small tensors and numbers
    double bound = 0;       // bound of the error; if 0, values must be bit-identical
    // A bound of the absolute difference, used if it allows more than `bound`, up to a relative
    // error of 1/4.
    double min_bound = 0;
    // The row of the tensor in the table of the rank's stage; the unit or layer of a stream.
    std::int64_t row = 0;
    const char* beside = single_rank_has;
  };
  /// Compares `held`; the error is the largest difference over max(largest of `whole`, min_scale).
  void compare(const Subject& subject, const ParamSpec& spec, const std::vector<float>& whole,
               const HeldPart& held);
  /// Compares `part` with the elements of `whole` from `begin` on.
  void compare(const Subject& subject, const RecordedStream& whole, std::int64_t begin,
               const Tensor& part);
  /// `tensor` names the tensor to which the number belongs; may be empty.
  void compare(const Subject& subject, double found, double expected,
               const std::string& tensor = {});
  /// The error is the mean difference over `scale`. min_bound bounds the mean difference, without
  /// the limit of 1/4.
  void compare_mean(const Subject& subject, const ParamSpec& spec, const std::vector<float>& whole,
                    const HeldPart& held, double scale);
  /// Compares a rank's part of a tensor, called `name` in the report, with `expected` of equal
  /// length. The error is the largest difference over `scale`.
  void compare_part(const Subject& subject, const ParamSpec& spec, const std::string& name,
                    const HeldPart& held, const std::vector<double>& expected, double scale);
  /// Like compare_part, with an error that is already computed.
  void compare_error(const Subject& subject, const std::string& name, double found, double expected,
                     double error);
  /// Adds the findings of another rank. first() stays the departure that a step computes first.
  void merge(const Findings& other);
  /// Adds the findings of another process, from its bytes().
  void take_bytes(const std::string& bytes);
  std::string bytes() const;

  const std::optional<Departure>& first() const { return first_; }
  const Departure& largest() const { return largest_; }

 private:
  struct Whole;     // a tensor, part of which this rank holds
  struct Farthest;  // the element with the largest difference in that part
  Farthest farthest_of(const ParamSpec& spec, const std::vector<float>& whole,
                       const HeldPart& held) const;
  Departure departure(const Subject& subject, double found, double expected) const;
  void take(const Subject& subject, const Whole& whole, const Farthest& element);
  using Order = std::array<std::int64_t, 4>;  // step, phase, place in the phase, rank
  void take(const Departure& found, const Order& order);
  void keep_larger(const Departure& found);

  const Mesh& mesh_;
  int rank_;
  Order first_order_{};
  std::optional<Departure> first_;
  Departure largest_;
};

// Comparisons of a step's numbers that all ranks share with those that verify computes itself
// (own/step_numbers.h).

/// The bound of a scalar's relative error. Engine and verify may differ this much, because the
/// engine computes in fp32.
inline constexpr double scalar_bound = 1e-6;

/// Adds the factors that follow from the labels of all micro-batches of a step.
void add_labels(const std::vector<Batch>& batches, own::StepNumbers& numbers);
/// Adds the numbers that follow from the gradients of a step, which are summed and have the loss
/// scale.
void add_gradients(const Config& config, const WholeTensors& gradients, own::StepNumbers& numbers);
/// Adds the numbers that follow from the norm of the gradients alone (without loss scale).
void add_norm(const Config& config, double norm, bool finite, own::StepNumbers& numbers);

/// A rank's state after step number `step`. `factor` is own::gradient_factor.
struct FoundScalars {
  const StepState& state;
  std::int64_t step = 0;
  double factor = 1;
};
/// Compares the numbers that are known before the passes, in the order of StepState.
void compare_scalars(Findings& findings, Phase phase, const FoundScalars& found,
                     const own::StepNumbers& expected);
/// For a step with the recorded gradients: compares norm, clipping and the counters after the step.
void compare_verdict(Findings& findings, const OptimizerConfig& optimizer,
                     const FoundScalars& found, const own::StepNumbers& expected);
/// For a step with its own gradients, which may differ slightly: compares scalars, clipping by its
/// own norm, and the counters after the step.
void compare_free_scalars(Findings& findings, const OptimizerConfig& optimizer,
                          const FoundScalars& found, const own::StepNumbers& expected);
/// Compares the report about the routers in a step.
void compare_router(Findings& findings, const RouterReport& found, std::int64_t step,
                    const RecordedStep& expected);
/// Compares the largest score of each head, [layers, heads] of Engine::largest_scores, by which
/// queries and keys are clipped. The error is relative to the layer's largest score, because a
/// head's score may be smaller than the rounding of the products summed in it.
void compare_scores(Findings& findings, std::int64_t step, double bound,
                    std::span<const float> found, std::span<const float> expected,
                    std::int64_t heads);
/// Compares loss scale, updates, good steps and hysteresis.
void compare_counters(Findings& findings, Phase phase, const FoundScalars& found,
                      const own::Counters& expected);

}  // namespace trainctl
