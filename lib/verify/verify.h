// Tests whether a layout equals a single rank. Both train the same few steps from the same weights
// on the same generated tokens; the layout's ranks are threads. Each step of the layout starts from
// the single rank's parameters and optimizer state, and each update from the single rank's
// gradients, so that rounding errors do not grow. The single rank rounds where the layout's
// messages round. Every rank compares all values that it holds.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/world.h"
#include "config/schema/config.h"
#include "data/batch.h"
#include "engine/parameters/param_store.h"
#include "plan/plan.h"

namespace trainctl {

/// The bounds of an error. Parameters, optimizer state and the norm are fp32 in every precision and
/// follow from given gradients, so fp32_bound always applies to them.
inline constexpr double fp32_bound = 2e-5;
inline constexpr double half_bound = 2e-2;  // bound of activations, loss and gradients in 16 bits
/// The bound for randomly rounded values: mean difference over mean value. Different random bits
/// alone give 2e-3.
inline constexpr double random_bound = 1e-3;

/// Whether nothing is rounded to 16 bits in computation, messages and sums of gradients.
inline bool in_fp32(const Plan& plan) {
  return plan.compute == DType::f32 && plan.message_dtype == DType::f32 &&
         plan.gradient.kept == DType::f32;
}

inline constexpr const char* single_rank_has = "a single rank has";

/// One element of a tensor that differs beyond its bound.
struct Departure {
  std::int64_t step = 0;            // number of the step, from 1
  std::string what;                 // "activation", "gradient", "parameter", "loss", ...
  std::string tensor;               // for an activation, its unit; empty for loss and grad norm
  int rank = 0;                     // rank that holds the element
  std::vector<std::int64_t> index;  // index in the whole tensor
  double found = 0;
  std::string beside = single_rank_has;  // source of `expected`
  double expected = 0;
  double error = 0;  // difference between `found` and `expected` (docs/verify.md)
  double bound = 0;
  /// Names the place, such as "gradient layers.0.mlp.up.weight[3, 7], step 2".
  std::string place() const;
  /// The place, rank, both values, error and bound.
  std::string text() const;
};

struct LayoutVerdict {
  bool equal = false;
  Departure largest;               // the departure that is largest relative to its bound
  std::optional<Departure> first;  // the departure that a step computes first
  std::string failure;             // why the layout did not run to its end; else empty
  double seconds = 0;

  /// Adds the verdict of a later part of the run.
  void add(const LayoutVerdict& later);
};

/// Deliberate faults for tests of the comparison; each function may change the inputs of one rank.
/// Called on the thread of `rank`.
struct Faults {
  /// Makes the world in which the rank runs, instead of the given one.
  std::function<std::unique_ptr<World>(World&)> world{};
  std::function<void(int rank, Config&)> config{};
  std::function<void(int rank, Plan&)> plan{};
  std::function<void(int rank, std::int64_t step, std::vector<Batch>&)> batches{};
  /// Called when gradients are summed, and when the step is complete.
  std::function<void(int rank, std::int64_t step, ParamStore&)> gradients{};
  std::function<void(int rank, std::int64_t step, ParamStore&)> parameters{};
  /// Called when a checkpoint is loaded, or in a free run when the parameters are initialised.
  std::function<void(int rank, ParamStore&)> loaded{};
  /// Change a free run: the order of the loader; the number of windows of an evaluation (0 for
  /// all); the plan for the export of parameters.
  std::function<void(int rank, BatchLoader::Order&)> order{};
  std::function<void(int rank, std::int64_t& windows)> windows{};
  std::function<void(int rank, Plan&)> exported{};
};

/// A layout to compare. `plan` was made from `config`, whose model, data and training are those of
/// the comparison.
struct VerifiedLayout {
  const Config& config;
  const Plan& plan;
  double deadline_seconds = 300;  // longest wait of a rank for another
  /// The processes of mpirun, whose first ranks run the layout; all processes must make the same
  /// calls. Null if the layout's ranks are threads of this process.
  World* job = nullptr;
};

/// Memory in bytes for comparing `plan`: `records` records of `steps` steps of a single rank, and
/// the values of all ranks. With `freely`, also the records of free runs.
std::int64_t verification_bytes(const Config& config, const Plan& plan, std::int64_t steps,
                                std::int64_t records, bool freely = true);

class Verification {
 public:
  /// Records `steps` steps of a single rank, otherwise as configured by `config`. Throws
  /// Error{config} if one rank cannot run it.
  Verification(const Config& config, std::int64_t steps);
  ~Verification();
  Verification(const Verification&) = delete;
  Verification& operator=(const Verification&) = delete;

  /// Compares the layout step by step. The first layout with a message_rounding() of its own also
  /// runs the single rank with that rounding; later ones reuse the record.
  LayoutVerdict compare(const VerifiedLayout& layout, const Faults& faults = {}) const;

  /// Runs the layout as `train` does, without corrections between steps: no hooks, batches from the
  /// loader, each step continues from the last; evaluation and checkpoint half way, evaluation and
  /// export at the end. Ignores the batches of `faults`.
  LayoutVerdict run_freely(const VerifiedLayout& layout, const Faults& faults = {}) const;

  /// `saves` runs the first half of the steps and saves a checkpoint in the folder `run`, which
  /// must be empty. `loads` loads it and runs the other half. Both are compared with a single rank
  /// that runs all steps. `faults` affect `loads`.
  LayoutVerdict compare_through_checkpoint(const VerifiedLayout& saves, const VerifiedLayout& loads,
                                           const std::filesystem::path& run,
                                           const Faults& faults = {}) const;

  /// Runs the free run of `saves`, then `loads` from its checkpoint in folder `run`, resumed as by
  /// `train`. Both are compared with the single rank. If the layouts are the same, the second is
  /// also compared with the first, bit for bit. `faults` affect `loads`.
  LayoutVerdict go_on_freely(const VerifiedLayout& saves, const VerifiedLayout& loads,
                             const std::filesystem::path& run, const Faults& faults = {}) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trainctl
