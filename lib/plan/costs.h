// The cost of a step as a plan says it: values that estimate.h and step_time.h fill in.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/collectives.h"
#include "plan/tables/mesh.h"
#include "plan/tables/stage_map.h"

namespace trainctl {

struct MemoryEstimate {         // bytes on one rank
  std::int64_t parameters = 0;  // fp32 masters and compute copies
  std::int64_t gradients = 0;
  std::int64_t optimizer = 0;
  std::int64_t activations = 0;    // rows in their slots, and scratch
  std::int64_t offloaded = 0;      // host memory: what layers keep there, what it counts
  std::int64_t communication = 0;  // packed gradients, and staging of sums between processes
  std::int64_t data = 0;           // host memory: prefetched batches, and feed_bytes
  std::int64_t checkpoint = 0;     // host memory: the copy that is written in the background
  std::int64_t runtime = 0;  // program, libraries and their own buffers: an allowance, see docs
  // On a CUDA device, allowances: its context and what cuBLASLt loads; the buffers of NCCL.
  std::int64_t library = 0;
  std::int64_t communicators = 0;
  bool on_cuda = false;  // else the rank has one memory, that of its host
  std::int64_t total() const;
  /// Memory of the host: what is offloaded, data, checkpoint and runtime, or all.
  std::int64_t host() const;
  /// Memory of the device that works on the tensors: all that is not of the host, or all.
  std::int64_t device() const { return on_cuda ? total() - host() : total(); }
};

struct FlopsEstimate {          // of one step over all ranks, forward and backward
  double matmul = 0;            // dense products
  double attention_full = 0;    // score and value products, all pairs
  double attention_causal = 0;  // only the pairs that the mask keeps
  double total() const { return matmul + attention_causal; }
};

/// The basis of a time by the device of section cluster, and its meaning for a run
/// (plan/cost/device_prices.h).
struct DeviceTime {
  std::string device, software;      // their names
  std::string trust;                 // "device table"
  double expected_error = 0;         // of the step, as a share
  double goodput = 1;                // share of the time in which a run goes forward
  double best_checkpoint_steps = 0;  // between checkpoints; 0: devices are not said to fail
  double tokens_per_day = 0;
  double device_hours_per_billion_tokens = 0;
  std::optional<double> days;                           // of all steps, where they are known
  std::optional<double> cost_per_billion_tokens, cost;  // where the cluster has a price
};

struct TimeEstimate {           // seconds of one step, see plan/cost/step_time.h
  double forward_backward = 0;  // until the slowest rank begins its optimizer
  double exposed = 0;  // of that, waiting for gradient sums, gathers and host copies, at most
  double hidden = 0;   // of the collectives inside layers: during products, on the stage with most
  double optimizer = 0;
  double bubble_fraction = 0;             // of forward and backward: see plan/schedule/simulate.h
  std::optional<DeviceTime> on_device{};  // none: by four rates
  double step() const { return forward_backward + optimizer; }
};

/// The cost of keeping every layer of one stage in the same form (plan/cost/forms.h), for its
/// layers of one kind.
struct RecomputeCost {
  bool experts = false;           // layers with experts, else dense ones
  std::int64_t layers = 0;        // of this kind on the stage
  std::string form;               // "none", "norms+activations", "full"
  bool in_use = false;            // by one of these layers
  std::int64_t kept = 0;          // bytes of one layer and micro-batch between F and B
  std::int64_t once = 0;          // bytes of a layer while it runs F, or between R and W
  std::int64_t rank = 0;          // bytes of all activations of a rank, of all its layers
  std::int64_t on_host = 0;       // and of what its layers keep on the host
  double flops = 0;               // repeated by a rank for one layer and micro-batch
  std::optional<double> seconds;  // that these take, where rates are given
};

/// Calls of one kind by one rank in one step: what the engine's groups count when it runs.
struct CollectiveUse {
  GroupOperation operation = GroupOperation::all_reduce;
  Cargo cargo = Cargo::gradients;
  TrafficPurpose purpose = TrafficPurpose::layers;
  GroupKind group;
  std::int64_t ranks = 0;  // of the group, at least 2
  std::int64_t count = 0;
  std::int64_t bytes = 0;           // payload of all of them
  UnitKind unit = UnitKind::block;  // purpose layers: of which units
  bool at_most = false;             // the bytes depend on the data, and these are the most
  bool fewer_calls = false;         // so do the calls: those of shorter micro-batches
  /// "all_reduce tied embedding"
  std::string name() const {
    return std::string(name_of(operation)) + " " + std::string(name_of(cargo));
  }
};

}  // namespace trainctl
