// The costs of a step in a plan, which estimate.h and step_time.h fill in.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/collectives.h"
#include "plan/tables/mesh.h"
#include "plan/tables/stage_map.h"

namespace trainctl {

struct MemoryEstimate {         // bytes on one rank
  std::int64_t parameters = 0;  // fp32 masters and copies in the compute dtype
  std::int64_t gradients = 0;
  std::int64_t optimizer = 0;
  std::int64_t activations = 0;    // activation slots and scratch
  std::int64_t offloaded = 0;      // host memory: offloaded activations, row counts
  std::int64_t communication = 0;  // packed gradients, and staging of sums between processes
  std::int64_t data = 0;           // host memory: prefetched batches, and feed_bytes
  std::int64_t checkpoint = 0;     // host memory: copy that is written in the background
  std::int64_t runtime = 0;        // allowance for program, libraries and their buffers (see docs)
  // Allowances on a CUDA device: its context with the kernels of cuBLASLt; NCCL's buffers.
  std::int64_t library = 0;
  std::int64_t communicators = 0;
  bool on_cuda = false;  // whether the rank computes on a CUDA device
  std::int64_t total() const;
  /// Host memory: offloaded activations, data, checkpoint and runtime; without CUDA everything.
  std::int64_t host() const;
  /// Memory of the device that computes: the rest of the total; without CUDA everything.
  std::int64_t device() const { return on_cuda ? total() - host() : total(); }
};

struct FlopsEstimate {          // FLOPs of one step over all ranks, F and B
  double matmul = 0;            // dense products
  double attention_full = 0;    // products of scores and values, all pairs of tokens
  double attention_causal = 0;  // products of scores and values, pairs within the mask
  double total() const { return matmul + attention_causal; }
};

/// The time of a step on the device of section cluster: its basis, and its meaning for a run
/// (plan/cost/device_prices.h).
struct DeviceTime {
  std::string device, software;      // names of both
  std::string trust;                 // name of a Trust, such as "device table"
  double expected_error = 0;         // expected error of the step, as a fraction
  double goodput = 1;                // share of the time in which the run makes progress
  double best_checkpoint_steps = 0;  // steps between checkpoints; 0 = no failures assumed
  double tokens_per_day = 0;
  double device_hours_per_billion_tokens = 0;
  std::optional<double> days;                           // days for all steps, if known
  std::optional<double> cost_per_billion_tokens, cost;  // if the cluster has a price
};

struct TimeEstimate {           // seconds of one step, see plan/cost/step_time.h
  double forward_backward = 0;  // time until the slowest rank begins its optimizer
  double exposed = 0;           // largest wait for gradient sums, gathers and host copies
  double hidden = 0;            // collectives that overlap products, on the worst stage
  double optimizer = 0;
  double bubble_fraction = 0;             // waiting share of F and B (plan/schedule/simulate.h)
  std::optional<DeviceTime> on_device{};  // unset if four rates give the time
  double step() const { return forward_backward + optimizer; }
};

/// The cost of keeping all layers of one kind on a stage in the same form (plan/cost/forms.h).
struct RecomputeCost {
  bool experts = false;           // layers with experts; if false, dense layers
  std::int64_t layers = 0;        // number of these layers on the stage
  std::string form;               // "none", "norms+activations", "full"
  bool in_use = false;            // whether one of these layers has the form
  std::int64_t kept = 0;          // bytes of one layer and micro-batch between F and B
  std::int64_t once = 0;          // bytes of a layer during F, or from R to W
  std::int64_t rank = 0;          // bytes of all activations of a rank
  std::int64_t on_host = 0;       // bytes in host memory of a rank
  double flops = 0;               // recomputed by a rank for one layer and micro-batch
  std::optional<double> seconds;  // seconds of recomputation, if rates are known
};

/// Calls of one kind by one rank in one step; the engine's groups count the same in a run.
struct CollectiveUse {
  GroupOperation operation = GroupOperation::all_reduce;
  Cargo cargo = Cargo::gradients;
  TrafficPurpose purpose = TrafficPurpose::layers;
  GroupKind group{};
  std::int64_t ranks = 0;  // size of the group, at least 2
  std::int64_t count = 0;
  std::int64_t bytes = 0;           // payload of all calls
  UnitKind unit = UnitKind::block;  // purpose layers: kind of unit
  bool at_most = false;             // the bytes depend on the data, and this is the upper bound
  bool fewer_calls = false;         // the number of calls is lower for shorter micro-batches
  /// The name in output: "all_reduce tied embedding".
  std::string name() const {
    return std::string(name_of(operation)) + " " + std::string(name_of(cargo));
  }
};

}  // namespace trainctl
