// Rows shown by several forms of output: optimizer groups, memory, batch ramps, recomputation.
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

/// The parameters of an entry of optimizer.groups, or of those outside all entries.
struct GroupRow {
  int entry = -1;  // index of the entry, from 0; -1: parameters outside all entries
  OptimizerType type = OptimizerType::adamw;
  double rate_factor = 1;
  std::optional<double> decay_factor;  // if unset, 1 for matrices and 0 for other parameters
  std::vector<std::string> parameters;
  std::int64_t elements = 0;
};

/// Rows in the order of the entries, then the other parameters; empty without entries.
std::vector<GroupRow> group_rows(const Plan& plan, const OptimizerConfig& optimizer);

/// A matrix update of a stage (StagePlan::matrices).
struct MatrixRow {
  int stage = 0;
  const MatrixWork* work = nullptr;
  std::vector<std::string> parameters;
  int worker = 0;  // world rank that computes the update
};
std::vector<MatrixRow> matrix_rows(const Plan& plan);

inline constexpr double gibibyte = 1024.0 * 1024 * 1024;  // bytes

/// Whether a rank's memory fits into a given limit; without a limit, the usual size that it needs.
struct MemoryFit {
  double gibibytes = 0;
  std::string source;     // source of the limit, such as "--memory-limit"; "" without a limit
  std::int64_t free = 0;  // bytes of the limit that the fullest rank leaves; negative if too few
  bool fits() const { return free >= 0; }
};

/// Compares the memory with the tensors (MemoryEstimate::device) to `input.memory_limit`, else to
/// recompute.memory_limit, else on a CUDA device to cluster.device_memory, else to the smallest
/// usual memory size of hosts and devices that suffices.
MemoryFit memory_fit(const PrintInput& input);

/// Text such as "fits in 16 GiB, 6.03 GiB free (--memory-limit)" or "does not fit in 8 GiB: 1.97
/// GiB too much (...)".
std::string fit_text(const MemoryFit& fit);

struct ModelNumber {
  std::string name;
  double value = 0;
  bool is_bytes = true;  // bytes, otherwise a count
};

/// A published memory model as named numbers, for comparison with the plan's own estimate.
struct MemoryModelRows {
  std::string name;   // "megatron", "megatron-0.15", "korthikanti"
  std::string about;  // settings for which it was evaluated
  std::vector<ModelNumber> numbers;
};

/// The models that `input.memory_models` selects; none without a config.
std::vector<MemoryModelRows> memory_models(const PrintInput& input);

/// The numbers of a model, "weights 1.5 GiB, activations 2 GiB", without names "layer_...".
std::string numbers_text(const MemoryModelRows& model);

/// Steps of a batch ramp with the same batch size.
struct RampRow {
  std::int64_t first_step = 0;  // first step, counted from 1
  std::int64_t steps = 0;       // number of steps; 0 if the length of the run is unknown
  std::int64_t batch = 0;       // sequences per step over all ranks
  std::int64_t microbatches = 0;
  std::int64_t tokens = 0;  // tokens per step
  std::optional<double> step_seconds;
};

/// The rows of the ramp that the run reaches, in order; a single row without a ramp.
std::vector<RampRow> ramp_rows(const Plan& plan);

/// Costs and savings of each form of recomputation, as text for the table and the page.
struct RecomputeTable {
  /// Form (after "* " if a layer uses it, followed by the kind of layers if the stage has several),
  /// memory of a layer and its saving, work to recompute it; memory of a rank, its saving, work per
  /// step.
  using Row = std::array<std::string, 7>;
  int stage = 0;  // stage of the requested rank, or the stage with the most memory
  std::vector<Row> rows;
  std::string in_use;          // such as "layers 0..3 full, layer 4 norms"
  std::string in_use_by_more;  // for the micro-batches that keep more; may be empty
  std::string on_host;         // "layers 0..3, 64.1 MiB of a layer and micro-batch"; may be empty
};

inline RecomputeTable::Row recompute_columns() {
  return {"", "a layer", "saves", "to make it again", "a rank", "saves", "in a step"};
}

/// Has no rows without a config, or if no layer has activations that could be recomputed.
RecomputeTable recompute_table(const PrintInput& input);

}  // namespace trainctl
