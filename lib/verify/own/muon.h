// Muon's steps of whole parameters, in double: which rows or columns make a matrix, and what is
// made of it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/shape.h"
#include "config/schema/config.h"

namespace trainctl::own {

/// The direction of a whole parameter, and its shape; nothing where there is no such parameter or
/// another optimizer updates it.
struct Direction {
  Shape shape;
  std::vector<double> values;
};
using DirectionOf = std::function<Direction(const std::string& name)>;

/// The amount that muon subtracts from each element of the parameter at a learning rate of 1.
/// Matrices are [out, in], those of experts [experts, out, in].
std::vector<double> muon_steps_of(const std::string& name, const MuonConfig& muon,
                                  std::int64_t head_dim, const DirectionOf& direction_of);

/// By how much a step in fp32 may be off, as a share of its largest element.
double muon_bound(const MuonConfig& muon);

}  // namespace trainctl::own
