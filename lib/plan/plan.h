// Everything that is decided before a process starts, as one printable value. Every rank computes
// the same Plan from the same YAML; its hash is compared before the first step. Pure: no MPI, CUDA,
// files, threads or clock.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"
#include "config/diagnostics.h"
#include "plan/activations.h"
#include "plan/mesh.h"
#include "plan/model.h"
#include "plan/params.h"
#include "plan/schedule.h"

namespace trainctl {

/// The machine as far as a plan depends on it. Whoever asks for a plan fills it; the plan never
/// looks.
struct Site {
  std::int64_t world_size = 1;
  std::int64_t ranks_per_host = 1;
  std::int64_t cores_per_host = 1;
};

struct MemoryEstimate {         // bytes on one rank
  std::int64_t parameters = 0;  // fp32 masters and compute copies
  std::int64_t gradients = 0;
  std::int64_t optimizer = 0;
  std::int64_t activations = 0;    // kept x slots + transient + scratch
  std::int64_t communication = 0;  // staging of the reduction
  std::int64_t data = 0;           // prefetched batches
  std::int64_t runtime = 0;  // program, libraries and their own buffers: an allowance, see docs
  std::int64_t total() const;
};

struct FlopsEstimate {          // of one step over all ranks, forward and backward
  double matmul = 0;            // dense products
  double attention_full = 0;    // score and value products, all pairs
  double attention_causal = 0;  // only the pairs that the mask keeps
  double total() const { return matmul + attention_causal; }
};

struct CollectiveUse {  // of one rank in one step
  std::string name;     // "all_reduce gradients"
  Axis axis = Axis::dp;
  std::int64_t count = 0;
  std::int64_t bytes = 0;  // payload of all of them
};

struct RatePoint {  // of the preview: the update that follows `step` completed ones
  std::int64_t step = 0;
  double learning_rate = 0;
  double weight_decay = 0;
};

struct Plan {
  Mesh mesh;
  ModelShape model;
  DType compute = DType::f32;
  std::int64_t micro_batch_size = 0;
  std::int64_t microbatches = 0;  // per rank and step
  int threads_per_rank = 1;
  std::vector<ParamSpec> parameters;
  FlatLayout flat;
  std::vector<ActivationSpec> activations;
  int slots = 1;                // micro-batches in flight
  std::vector<Action> actions;  // refined, the same on every rank of a stage
  MemoryEstimate memory;
  FlopsEstimate flops;
  std::vector<CollectiveUse> communication;
  std::int64_t steps = 0;
  std::vector<RatePoint> rates;  // at the corners of the schedule and between them
  std::uint64_t hash = 0;

  std::int64_t tokens_per_step() const;
  int units() const { return static_cast<int>(model.layers) + 2; }
};

/// Checks every rule across fields, adding to `diagnostics` with positions from `sources`. The plan
/// is usable only if `diagnostics` then has no errors; otherwise it is empty. Throws
/// Error{internal} if the schedule breaks its own rules.
Plan make_plan(const Config& config, const Site& site, const SourceMap& sources,
               Diagnostics& diagnostics);

/// Readable at a terminal; `rank` < 0 shows all ranks folded. Both throw Error{usage} when the
/// world has no such rank.
std::string print_table(const Plan& plan, std::int64_t rank);
/// A versioned JSON document ("format_version": 1), documented in docs/plan-json.md.
std::string print_json(const Plan& plan, std::int64_t rank);

}  // namespace trainctl
