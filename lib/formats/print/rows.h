// Rows that several forms of output show: optimizer groups, memory, ramps, recomputation.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/schema/config.h"
#include "formats/print/print.h"
#include "plan/plan.h"

namespace trainctl {

/// The parameters of an entry of optimizer.groups, or of none.
struct GroupRow {
  int entry = -1;  // from 0; -1: parameters that no entry takes
  OptimizerType type = OptimizerType::adamw;
  double rate_factor = 1;
  std::optional<double> decay_factor;  // none: 1 of matrices, 0 of all others
  std::vector<std::string> parameters;
  std::int64_t elements = 0;
};

/// In the order of the entries, the rest last; empty without entries.
std::vector<GroupRow> group_rows(const Plan& plan, const OptimizerConfig& optimizer);

/// A work of a stage (StagePlan::matrices).
struct MatrixRow {
  int stage = 0;
  const MatrixWork* work = nullptr;
  std::vector<std::string> parameters;
  int worker = 0;  // world rank
};
std::vector<MatrixRow> matrix_rows(const Plan& plan);

inline constexpr double gibibyte = 1024.0 * 1024 * 1024;  // bytes

/// Whether a rank's memory fits into the limit that is given, else which usual size it needs.
struct MemoryFit {
  double gibibytes = 0;
  std::string source;     // "--memory-limit"; empty: no limit is given, the least usual size
  std::int64_t free = 0;  // bytes of the limit that the fullest rank leaves; below 0: too few
  bool fits() const { return free >= 0; }
};

/// Compares the memory that holds the tensors (MemoryEstimate::device) with `input.memory_limit`,
/// else recompute.memory_limit, on a CUDA device cluster.device_memory, else the smallest usual
/// size of hosts and devices that suffices.
MemoryFit memory_fit(const PrintInput& input);

/// "fits in 16 GiB, 6.03 GiB free (--memory-limit)" or "does not fit in 8 GiB: 1.97 GiB too much
/// (...)"
std::string fit_text(const MemoryFit& fit);

struct ModelNumber {
  std::string name;
  double value = 0;
  bool is_bytes = true;  // otherwise a count
};

/// A published memory model as named numbers, to compare with the plan's own estimate.
struct MemoryModelRows {
  std::string name;   // "megatron", "megatron-0.15", "korthikanti"
  std::string about;  // the settings it was evaluated with
  std::vector<ModelNumber> numbers;
};

/// The models that `input.memory_models` selects; none without a config.
std::vector<MemoryModelRows> memory_models(const PrintInput& input);

/// "weights 1.5 GiB, activations 2 GiB"; the numbers whose name starts with "layer_" are left out.
std::string numbers_text(const MemoryModelRows& model);

/// Steps of a batch-size ramp.
struct RampRow {
  std::int64_t first_step = 0;  // from 1
  std::int64_t steps = 0;       // 0: the length of the run is not known
  std::int64_t batch = 0;       // sequences of a step over all ranks
  std::int64_t microbatches = 0;
  std::int64_t tokens = 0;  // of a step
  std::optional<double> step_seconds;
};

/// The rows that the run reaches, in order. Without a ramp there is one.
std::vector<RampRow> ramp_rows(const Plan& plan);

/// Costs and savings of each form of recomputation, as text for the table and the page.
struct RecomputeTable {
  /// Form (with "* " before it where a layer uses it, and behind it the kind of layers where the
  /// stage has both), memory of a layer and what that saves, the
  /// work to compute it once more; memory of a rank, what that saves, the work in a step.
  using Row = std::array<std::string, 7>;
  int stage = 0;  // that of the rank asked for, or the fullest
  std::vector<Row> rows;
  std::string in_use;          // "layers 0..3 full, layer 4 norms"
  std::string in_use_by_more;  // by micro-batches that keep more; empty: there are none
  std::string on_host;         // "layers 0..3, 64.1 MiB of a layer and micro-batch"; empty: nothing
};

inline RecomputeTable::Row recompute_columns() {
  return {"", "a layer", "saves", "to make it again", "a rank", "saves", "in a step"};
}

/// Has no rows without a config, or where no layer has activations that could be recomputed.
RecomputeTable recompute_table(const PrintInput& input);

}  // namespace trainctl
