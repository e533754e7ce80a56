#include "plan/gradients/resident.h"

#include "base/at.h"
#include "base/round_up.h"

namespace trainctl {

namespace {

constexpr std::int64_t resident_unit = 64;  // bytes, at whose multiples each begins

}  // namespace

ResidentLayout lay_residents(const std::vector<int>& parameters,
                             const std::vector<ParamSpec>& table, const FlatLayout& flat,
                             const Bucket* bucket, DType compute) {
  ResidentLayout layout;
  if (bucket != nullptr) layout.bytes = round_up(bucket->length * size_of(compute), resident_unit);
  for (const int index : parameters) {
    const ParamSpec& row = at(table, index);
    const DType type = read_type(row, compute);
    if (bucket != nullptr && type == compute) {
      layout.begin.push_back((at(flat.offset, index) - bucket->offset) * size_of(type));
    } else {
      layout.begin.push_back(layout.bytes);
      layout.bytes += round_up(row.shape.numel() * size_of(type), resident_unit);
    }
  }
  return layout;
}

}  // namespace trainctl
