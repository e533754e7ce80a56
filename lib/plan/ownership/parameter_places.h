// Where a rank keeps the values of its parameters: the masters that it updates, the weights
// that its layers read, and the gradients. The memory estimate and the allocation both read this.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "config/schema/optimizers.h"
#include "plan/ownership/ownership.h"

namespace trainctl {

struct ParameterPlace {
  bool is_master = false;     // the owned part of the weight is the master
  bool freed = false;         // the weight is in a slot
  bool repeated = false;      // the gradient is made in a slot
  bool written = false;       // the first product of a step can write the gradient
  std::int64_t master = 0;    // bytes: of the owned part, if it is apart
  std::int64_t weight = 0;    // bytes
  std::int64_t gradient = 0;  // elements: of what layers add to, whole
  // Elements: of the part that is complete after its bucket's sums. If repeated, among the sums.
  std::int64_t sum = 0;
};

/// masters: what the rank owns, in ParamSpec::master, in the places of the optimizer's values; none
/// where the weights are whole and of that type, for these are then masters as well. In front of
/// these, if those of matrices are narrower: the fp32 masters of blocks that are freed.
/// weights: of every parameter, in the type that its layer reads: whole, or in the slots of a ring
/// if its block is freed after use.
/// gradients: whole, where they are summed once; otherwise in the slots of a ring, while they are
/// made. In fp32.
/// sums: of gradients that are made in slots, the part whose sum the rank gets, in
/// GradientRule::kept.
struct ParameterPlaces {
  std::vector<ParameterPlace> parameters;
  std::vector<std::int64_t> blocks;   // by block of parameters: where its weights begin, in bytes
  std::vector<std::int64_t> host;     // the same in memory of the host, of blocks from there
  std::vector<std::int64_t> buckets;  // by bucket: where its gradients are made
  DType masters = DType::f32;         // of matrices
  bool masters_apart = false;         // there are some
  std::int64_t front_bytes = 0;       // of the masters in front of them
  std::int64_t weight_bytes = 0;
  std::int64_t host_bytes = 0;
  std::int64_t gradient_length = 0;  // elements
  std::int64_t sum_length = 0;       // elements

  /// Bytes of masters apart, where there are `elements` optimizer values of a kind.
  std::int64_t master_bytes(std::int64_t elements) const {
    return masters_apart ? front_bytes + elements * size_of(masters) : 0;
  }
};

/// `table`: of the rank.
ParameterPlaces place_parameters(const StagePlan& stage, DType compute,
                                 const OwnershipTable& table);

/// Where the optimizer's values of what a rank owns lie: a buffer for each of the values that some
/// parameter keeps, which lays out nothing for parameters that do not keep it.
struct StatePlaces {
  std::vector<std::int64_t> bytes;                        // by buffer
  std::vector<std::array<std::int64_t, max_kept>> begin;  // by parameter and buffer, in bytes
};

/// `table`: of the rank. Where all parameters keep a value in one type, it lies as
/// Ownership::state says.
StatePlaces place_states(const StagePlan& stage, const OwnershipTable& table,
                         const OptimizerConfig& optimizer);

/// The table of a rank that updates every parameter that it holds.
OwnershipTable whole_ownership(const StagePlan& stage);

}  // namespace trainctl
