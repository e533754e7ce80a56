// The places of a rank's masters, weights and gradients in memory. The memory estimate and the
// allocation both read this.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "config/schema/optimizers.h"
#include "plan/ownership/ownership.h"

namespace trainctl {

struct ParameterPlace {
  bool is_master = false;     // the owned part of the weight is also the master
  bool freed = false;         // the weight is in a slot of the ring
  bool repeated = false;      // the gradient is computed in a slot
  bool written = false;       // the first product of a step may overwrite the gradient
  std::int64_t master = 0;    // bytes: begin of the owned master, if it is separate
  std::int64_t weight = 0;    // bytes: begin of the weight
  std::int64_t gradient = 0;  // elements: begin of the whole gradient that layers add to
  // Elements: begin of the gradient after its bucket's sums; if repeated, in the memory for sums.
  std::int64_t sum = 0;
};

/// Masters: the elements that the rank owns, in ParamSpec::master, placed like optimizer values.
/// There are none if weights are whole and have this dtype, since they are then masters as well. If
/// those of matrices are narrower, fp32 masters of freed blocks come first. Weights: every
/// parameter in the dtype that its layer reads, whole, or in slots of a ring if its block is freed
/// after use. Gradients, in fp32: whole if they are summed once, otherwise in slots of a ring.
/// Sums: for gradients in slots, the part whose sum this rank gets, in GradientRule::kept.
struct ParameterPlaces {
  std::vector<ParameterPlace> parameters;
  std::vector<std::int64_t> blocks;   // bytes, by block: begin of the weights
  std::vector<std::int64_t> host;     // bytes, by block: begin in host memory, if from there
  std::vector<std::int64_t> buckets;  // elements, by bucket: begin of the gradients
  DType masters = DType::f32;         // dtype of master matrices
  bool masters_apart = false;         // some masters are separate from weights
  std::int64_t front_bytes = 0;       // bytes of the fp32 masters that come first
  std::int64_t weight_bytes = 0;
  std::int64_t host_bytes = 0;
  std::int64_t gradient_length = 0;  // elements of all memory for sums
  std::int64_t sum_length = 0;       // elements of all memory for sums

  /// Bytes of separate masters, with `elements` optimizer values of one kind.
  std::int64_t master_bytes(std::int64_t elements) const {
    return masters_apart ? front_bytes + elements * size_of(masters) : 0;
  }
};

/// `table` must be the rank's ownership table.
ParameterPlaces place_parameters(const StagePlan& stage, DType compute,
                                 const OwnershipTable& table);

/// The places of optimizer values on a rank: a buffer for each value that some parameter has,
/// without space for parameters that do not have it.
struct StatePlaces {
  std::vector<std::int64_t> bytes;                        // length, by buffer
  std::vector<std::array<std::int64_t, max_kept>> begin;  // begin in bytes, by parameter and buffer
};

/// `table` must be the rank's ownership table. If all parameters have a value in one dtype, its
/// place is Ownership::state.
StatePlaces place_states(const StagePlan& stage, const OwnershipTable& table,
                         const OptimizerConfig& optimizer);

/// The ownership table of a rank that updates every parameter that it holds.
OwnershipTable whole_ownership(const StagePlan& stage);

}  // namespace trainctl
