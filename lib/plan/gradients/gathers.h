// Decides which parameters are gathered together from the ranks that updated them, or from the
// host, and the memory layout of gathered weights.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/gradients/optimizer_shard.h"
#include "plan/tables/params.h"

namespace trainctl {

/// Parameters that are gathered together, and the units that read them.
struct GatherBlock {
  UnitRange units;
  int also = -1;       // another reader: a head with tied embedding
  bool freed = false;  // gathered for each use; if false, once per step, before the first use
  int slot = -1;       // slot for the parameters, if `freed`; see Ring (plan/schedule/schedule.h)
  std::vector<int> parameters{};  // in model order
  int bucket = -1;                // number of the sliced bucket, or -1
  bool from_host = false;         // freed, and meanwhile on this rank's host

  bool holds(int unit) const { return units.holds(unit) || unit == also; }
};

/// The gathers of one stage, in the order of their use. Rule comm_fusion: row-sharded parameters in
/// the blocks of comm_fusion.allgather in forward order, dense and expert parameters separately,
/// each parameter alone without openstate. Other rules, and dealt parameters: by bucket. Parameters
/// that are `freed` after use (by index; empty = none): by unit, or by bucket if buckets are
/// sliced. Parameters that this rank updates and keeps `on_host` (by index; empty = none): by unit.
std::vector<GatherBlock> make_gathers(const std::vector<ParamSpec>& parameters,
                                      const std::vector<OptimizerShard>& shards,
                                      const FlatBuffer& flat, BucketRule rule,
                                      const CommFusionConfig& fusion,
                                      const std::vector<bool>& freed = {},
                                      const std::vector<bool>& on_host = {});

/// The dtype in which a layer reads the parameter.
inline DType read_type(const ParamSpec& parameter, DType compute) {
  return parameter.is_vector ? DType::f32 : compute;
}

/// Places parameters in one stretch of memory, each in the type that its layer reads. Returns the
/// first byte of each, in the order given, then the total bytes. Without `bucket` the parameters
/// are consecutive, padded to 64 bytes. A bucket is exchanged in equal slices: its parameters in
/// the compute type lie as in the bucket, the other ones behind it.
std::vector<std::int64_t> lay_residents(const std::vector<int>& parameters,
                                        const std::vector<ParamSpec>& table, const FlatBuffer& flat,
                                        const Bucket* bucket, DType compute);

}  // namespace trainctl
