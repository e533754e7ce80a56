// How the weights that layers read lie side by side.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/tables/params.h"

namespace trainctl {

/// The type in which a layer reads the parameter.
inline DType read_type(const ParamSpec& parameter, DType compute) {
  return parameter.role == DTypeRole::matrix ? compute : DType::f32;
}

/// Places of some parameters in one stretch of memory, each in the type that its layer reads.
struct ResidentLayout {
  std::vector<std::int64_t> begin;  // bytes, in the order given
  std::int64_t bytes = 0;
};

/// One after the other, padded to 64 bytes. With `bucket` (not null), which is exchanged in equal
/// slices: those in the compute type as they lie in the bucket, and the others behind it.
ResidentLayout lay_residents(const std::vector<int>& parameters,
                             const std::vector<ParamSpec>& table, const FlatLayout& flat,
                             const Bucket* bucket, DType compute);

}  // namespace trainctl
