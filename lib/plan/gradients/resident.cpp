#include "plan/gradients/resident.h"

#include "base/at.h"

namespace trainctl {

namespace {

std::int64_t padded(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

ResidentLayout lay_residents(const std::vector<int>& parameters,
                             const std::vector<ParamSpec>& table, const FlatLayout& flat,
                             const Bucket* bucket, DType compute) {
  ResidentLayout layout;
  if (bucket != nullptr) layout.bytes = padded(bucket->length * size_of(compute));
  for (const int index : parameters) {
    const ParamSpec& row = at(table, index);
    const DType type = read_type(row, compute);
    if (bucket != nullptr && type == compute) {
      layout.begin.push_back((at(flat.offset, index) - bucket->offset) * size_of(type));
    } else {
      layout.begin.push_back(layout.bytes);
      layout.bytes += padded(row.shape.numel() * size_of(type));
    }
  }
  return layout;
}

}  // namespace trainctl
