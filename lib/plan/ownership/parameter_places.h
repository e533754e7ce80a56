// Where a rank keeps the values of its parameters: the fp32 masters that it updates, the weights
// that its layers read, and the gradients. The memory estimate and the allocation both read this.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/ownership/ownership.h"

namespace trainctl {

struct ParameterPlace {
  bool is_master = false;     // the owned part of the weight is the master
  bool freed = false;         // the weight is in a slot
  bool repeated = false;      // the gradient is made in a slot
  bool written = false;       // the first product of a step can write the gradient
  std::int64_t master = 0;    // elements: of the owned part
  std::int64_t weight = 0;    // bytes
  std::int64_t gradient = 0;  // elements: of what layers add to, whole
  // Elements: of the part that is complete after its bucket's sums. If repeated, among the sums.
  std::int64_t sum = 0;
};

/// masters: what the rank owns, in the places of the optimizer's values; none where the weights are
/// whole and in fp32, for these are then masters as well.
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
  bool masters = false;               // there are masters apart
  std::int64_t weight_bytes = 0;
  std::int64_t host_bytes = 0;
  std::int64_t gradient_length = 0;  // elements
  std::int64_t sum_length = 0;       // elements
};

/// `table`: of the rank.
ParameterPlaces place_parameters(const StagePlan& stage, DType compute,
                                 const OwnershipTable& table);

/// Of a rank that updates every parameter that it holds.
OwnershipTable whole_ownership(const StagePlan& stage);

}  // namespace trainctl
