// The comparison of what ranks hold with what a single rank computed: where they depart.
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

/// The kinds of numbers, in the order in which a step computes them; then those of a free run.
enum class Phase : std::uint8_t {
  initial,
  loaded,  // from a checkpoint: the master, then the optimizer's values
  loaded_state1,
  loaded_state2,
  loaded_average,  // of weights
  activation,
  router,  // its logits
  router_report,
  scalar,  // of a step, known before its passes
  loss,
  gradient,
  sum,  // of what ranks gave: of gradients, and in a collective
  grad_norm,
  clip,
  scaler,  // the loss scale, how many updates, and the counters that move the scale
  parameter,
  state1,
  state2,
  average,
  update,  // of a parameter and what the optimizer keeps of it
  dropout,
  slope,  // of the loss along a direction
  batch,  // of the loader, compared with the data read without it
  free_scalar,
  free_loss,
  free_gradient,
  free_norm,
  free_scale,
  compute_copy,  // what layers read of a parameter
  calls,         // of one operation of one group in a step
  bytes,
  validation,
  exported,
  owned,     // a master, compared with the exported one
  resident,  // a weight that stays on the rank, compared with the exported one
  // Figures of a run that resumed from a checkpoint, compared with the same run that did not stop:
  same_figure,
  same_master,
  same_state1,
  same_state2,
  same_average
};

/// The phase of value number `kind` that is held of a parameter, of which `first` is the master's:
/// then come the `updated` values that the update reads, and the average of weights.
constexpr Phase phase_of(Phase first, int kind, int updated) {
  const int average = static_cast<int>(Phase::average) - static_cast<int>(Phase::parameter);
  return static_cast<Phase>(static_cast<int>(first) + (kind > updated ? average : kind));
}

/// The comparisons of one rank, or of all when merged.
class Findings {
 public:
  Findings(const Mesh& mesh, int rank) : mesh_(mesh), rank_(rank) {}

  struct Subject {
    Phase phase = Phase::loss;
    std::int64_t step = 0;  // 1 for the first
    double min_scale = 0;   // where the tensor's largest value, or the number, is smaller
    double bound = 0;       // 0: the same bits
    // The bound of the difference itself. Where it is larger than the other bound it holds, up to
    // an error of a quarter.
    double min_bound = 0;
    // The row of the tensor in the table of the rank's stage; for a stream its unit or layer.
    std::int64_t row = 0;
    const char* beside = single_rank_has;
  };
  /// Error: the largest difference over the largest value of the whole tensor, or over min_scale.
  void compare(const Subject& subject, const ParamSpec& spec, const std::vector<float>& whole,
               const HeldPart& held);
  /// Compares the elements [begin, ..) of a stream, which are `part`.
  void compare(const Subject& subject, const RecordedStream& whole, std::int64_t begin,
               const Tensor& part);
  /// `tensor`: what the number is of, or empty.
  void compare(const Subject& subject, double found, double expected,
               const std::string& tensor = {});
  /// Error: the mean difference over `scale`. min_bound is that of the mean difference, without
  /// a limit.
  void compare_mean(const Subject& subject, const ParamSpec& spec, const std::vector<float>& whole,
                    const HeldPart& held, double scale);
  /// Compares the elements of a rank's part of `name` with `expected`, which has the same length.
  /// Error: the largest difference over `scale`.
  void compare_part(const Subject& subject, const ParamSpec& spec, const std::string& name,
                    const HeldPart& held, const std::vector<double>& expected, double scale);
  /// Error: `error` itself.
  void compare_error(const Subject& subject, const std::string& name, double found, double expected,
                     double error);
  /// Takes in those of another rank; of the first departures the one that a step makes first stays.
  void merge(const Findings& other);
  /// Takes the findings of another process, which its bytes() gave.
  void take_bytes(const std::string& bytes);
  std::string bytes() const;

  const std::optional<Departure>& first() const { return first_; }
  const Departure& largest() const { return largest_; }

 private:
  struct Whole;     // a tensor that a rank has a part of
  struct Farthest;  // the element of that part with the largest difference
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

// The numbers of a step that the whole model shares, except those that verify computes for itself
// (own/step_numbers.h).

/// A scalar's error is relative; what engine and verify compute apart is at most so far apart, as
/// the engine keeps numbers of fp32.
inline constexpr double scalar_bound = 1e-6;

/// The labels of all micro-batches of a step, added up here.
own::Labels labels_of(const std::vector<Batch>& batches);
/// Before the first step of a run that begins with this loss scale.
own::Counters first_counters(const Config& config, double loss_scale);
/// Adds the numbers that follow from the gradients of a step, which are summed and have the loss
/// scale.
void add_gradients(const Config& config, const WholeTensors& gradients, own::StepNumbers& numbers);
/// Adds these numbers where only the norm of the gradients is known, without loss scale.
void add_norm(const Config& config, double norm, bool finite, own::StepNumbers& numbers);

/// `found`: as a rank's step left it, as number `step`. `factor`: see own::gradient_factor.
struct FoundScalars {
  const StepState& state;
  std::int64_t step = 0;
  double factor = 1;
};
/// Compares the numbers known before the passes, in the order in which the state has them.
void compare_scalars(Findings& findings, Phase phase, const FoundScalars& found,
                     const own::StepNumbers& expected);
/// In a step that has the recorded gradients: what norm and clipping came to, and the counters
/// after it.
void compare_verdict(Findings& findings, const OptimizerConfig& optimizer,
                     const FoundScalars& found, const own::StepNumbers& expected);
/// In a step that has gradients of its own, which may be a little other ones: scalars, clipping by
/// the norm that was found, and the counters after it.
void compare_free_scalars(Findings& findings, const OptimizerConfig& optimizer,
                          const FoundScalars& found, const own::StepNumbers& expected);
/// Compares the report on the routers of a step.
void compare_router(Findings& findings, const RouterReport& found, std::int64_t step,
                    const RecordedStep& expected);
/// The largest score of each head, [layers, heads] of Engine::largest_scores, by which queries and
/// keys are clipped. The error is the difference over the largest score of the layer, because the
/// score of a head may be smaller than the rounding of the products that it is summed from.
void compare_scores(Findings& findings, std::int64_t step, double bound,
                    std::span<const float> found, std::span<const float> expected,
                    std::int64_t heads);
/// The loss scale, updates, good steps and hysteresis.
void compare_counters(Findings& findings, Phase phase, const FoundScalars& found,
                      const own::Counters& expected);

}  // namespace trainctl
