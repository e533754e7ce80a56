// What is saved of each parameter, and where a rank has it in memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/schema/config.h"
#include "engine/parameters/param_store.h"
#include "plan/ownership/ownership.h"

namespace trainctl {

/// "parameters" (the master), then the words of what the parameter's optimizer keeps (kept_states).
/// Their types are optimizer_values() in plan/rules/resolve.h.
std::vector<std::string> saved_values(const ParamSpec& parameter, const OptimizerConfig& optimizer);
/// The most of them that a parameter of the table has.
int saved_kinds(const std::vector<ParamSpec>& table, const OptimizerConfig& optimizer);

/// The memory of value number `value` (of saved_values) from element `first` of this rank's share
/// of a parameter on: `count` elements, flat. Only of what the rank owns.
Tensor values_at(const ParamStore& store, int value, int parameter, std::int64_t first,
                 std::int64_t count);

/// One piece of the rank's file, and where its bytes are now.
struct Region {
  std::string name;   // of the parameter
  std::string value;  // word of saved_values
  Shape shape;        // of the whole tensor
  Box box;
  Tensor memory;                        // flat
  std::string optimizer{};              // SavedTensor::optimizer
  std::vector<std::uint64_t> hashes{};  // of its blocks of hashed_bytes, once they are known
};

/// Everything that this rank writes.
std::vector<Region> saved_regions(const Plan& plan, const ParamStore& store,
                                  const OptimizerConfig& optimizer, std::int64_t rank);

}  // namespace trainctl
