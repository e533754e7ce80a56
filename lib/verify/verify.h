// Proves a layout equal to a single rank. Both train the same few steps from the same weights on
// the same generated tokens, the layout over threads. Each of its steps starts from the single
// rank's parameters and optimizer state, and each of its updates from the single rank's gradients,
// so that rounding is never amplified. The single rank rounds what the layout's messages round.
// Every rank compares everything it holds.
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
/// follow from given gradients: fp32_bound always.
inline constexpr double fp32_bound = 2e-5;
inline constexpr double half_bound = 2e-2;  // activations, loss and gradients in 16 bits
/// The bound for values rounded at random, the mean difference over the mean value. Other random
/// bits: 2e-3.
inline constexpr double random_bound = 1e-3;

/// Whether nothing is rounded to 16 bits: messages and sums of gradients round as computing does.
inline bool in_fp32(const Plan& plan) {
  return plan.compute == DType::f32 && plan.message_dtype == DType::f32 &&
         plan.gradient.kept == DType::f32;
}

inline constexpr const char* single_rank_has = "a single rank has";

/// One element of a tensor that differs beyond its bound.
struct Departure {
  std::int64_t step = 0;            // 1 for the first
  std::string what;                 // "activation", "gradient", "parameter", "loss", ...
  std::string tensor;               // of an activation the unit; empty for loss and grad norm
  int rank = 0;                     // that holds it
  std::vector<std::int64_t> index;  // in the whole tensor
  double found = 0;
  std::string beside = single_rank_has;  // what `expected` is
  double expected = 0;
  double error = 0;  // see docs/verify.md
  double bound = 0;
  /// "gradient layers.0.mlp.up.weight[3, 7], step 2"
  std::string place() const;
  /// Place, rank, both values, error and bound.
  std::string text() const;
};

struct LayoutVerdict {
  bool equal = false;
  Departure largest;               // relative to its bound
  std::optional<Departure> first;  // in the order in which a step makes the numbers
  std::string failure;             // the layout did not run to its end
  double seconds = 0;

  /// Takes in the verdict of what was run later.
  void add(const LayoutVerdict& later);
};

/// Deliberate faults, for tests of the comparison: each may change the inputs of one rank. Called
/// on the thread of `rank`.
struct Faults {
  /// The world that the rank runs in, replacing the given one.
  std::function<std::unique_ptr<World>(World&)> world{};
  std::function<void(int rank, Config&)> config{};
  std::function<void(int rank, Plan&)> plan{};
  std::function<void(int rank, std::int64_t step, std::vector<Batch>&)> batches{};
  /// When gradients are summed; when the step is done.
  std::function<void(int rank, std::int64_t step, ParamStore&)> gradients{};
  std::function<void(int rank, std::int64_t step, ParamStore&)> parameters{};
  /// When a checkpoint is loaded; in a free run, when the parameters are initialised.
  std::function<void(int rank, ParamStore&)> loaded{};
  /// Changes of a free run: the order of the loader; the number of windows of an evaluation (0 for
  /// all); the plan by which parameters are exported.
  std::function<void(int rank, BatchLoader::Order&)> order{};
  std::function<void(int rank, std::int64_t& windows)> windows{};
  std::function<void(int rank, Plan&)> exported{};
};

/// A layout to compare. `plan` was made from `config`; model, data and training are those of the
/// comparison.
struct VerifiedLayout {
  const Config& config;
  const Plan& plan;
  double deadline_seconds = 300;  // longest wait of a rank for others
  /// The processes of mpirun whose first ranks run it, and which all make the same calls; null if
  /// its ranks are threads of this process.
  World* job = nullptr;
};

/// Bytes that comparing `plan` takes: `records` records of a single rank's `steps` steps, and what
/// all ranks hold. `freely`: the records of the free run, too.
std::int64_t verification_bytes(const Config& config, const Plan& plan, std::int64_t steps,
                                std::int64_t records, bool freely = true);

class Verification {
 public:
  /// Runs and records `steps` steps of a single rank with everything else as in `config`. Throws
  /// Error{config} if one rank cannot run it.
  Verification(const Config& config, std::int64_t steps);
  ~Verification();
  Verification(const Verification&) = delete;
  Verification& operator=(const Verification&) = delete;

  /// The first plan whose messages round (see message_rounding) makes a record for all that round
  /// the same.
  LayoutVerdict compare(const VerifiedLayout& layout, const Faults& faults = {}) const;

  /// The layout as `train` runs it, with nothing set right between the steps: no hooks, batches
  /// from the loader, each step from what the last one left; an evaluation and a checkpoint half
  /// way, another evaluation and the export at the end. The batches of `faults` are not used.
  LayoutVerdict run_freely(const VerifiedLayout& layout, const Faults& faults = {}) const;

  /// `saves` takes the first half of the steps and saves a checkpoint in the folder `run`, which
  /// must be empty. `loads` loads it and takes the other half. Both are compared with the single
  /// rank that takes all steps. The faults are those of `loads`.
  LayoutVerdict compare_through_checkpoint(const VerifiedLayout& saves, const VerifiedLayout& loads,
                                           const std::filesystem::path& run,
                                           const Faults& faults = {}) const;

  /// The free run of `saves`, and another one of `loads` that resumes from its checkpoint as
  /// `train` does, in the folder `run`. Both are compared with the single rank; if they are the
  /// same layout, the second also with the first, to the bit. The faults are those of `loads`.
  LayoutVerdict go_on_freely(const VerifiedLayout& saves, const VerifiedLayout& loads,
                             const std::filesystem::path& run, const Faults& faults = {}) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trainctl
