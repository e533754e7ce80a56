// Which parameters are gathered together from the ranks that updated them, or from the host, and
// how the weights that layers read lie side by side.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/gradients/optimizer_shard.h"
#include "plan/tables/params.h"

namespace trainctl {

struct GatherBlock {
  std::vector<int> parameters;  // in model order
  UnitRange units;              // the units that read them
  int bucket = -1;              // a bucket that is split into equal slices; -1: its parameters are
  bool freed = false;           // gathered for each use; else once in a step
  bool from_host = false;       // freed, and on the host meanwhile: no other rank has them
};

/// The gathers of one stage, in the order in which their parameters are read. Rule comm_fusion:
/// rows of parameters in the blocks of comm_fusion.allgather in forward order, dense and expert
/// parameters apart, each on its own without openstate. Other rules, and dealt parameters: bucket
/// by bucket. Those that are `freed` (by parameter; empty: none) after use: unit by unit, or bucket
/// by bucket where buckets are split. Those that this rank updates and keeps `on_host` (by
/// parameter; empty: none): unit by unit.
std::vector<GatherBlock> make_gathers(const std::vector<ParamSpec>& parameters,
                                      const std::vector<OptimizerShard>& shards,
                                      const FlatBuffer& flat, BucketRule rule,
                                      const CommFusionConfig& fusion,
                                      const std::vector<bool>& freed = {},
                                      const std::vector<bool>& on_host = {});

/// The type in which a layer reads the parameter.
inline DType read_type(const ParamSpec& parameter, DType compute) {
  return parameter.is_vector ? DType::f32 : compute;
}

/// Where some parameters lie in one stretch of memory, each in the type that its layer reads: the
/// first byte of each in the order given, and at the end the bytes of all. One after the other,
/// padded to 64 bytes. With `bucket` (not null), which is exchanged in equal slices: those in the
/// compute type as they lie in the bucket, and the others behind it.
std::vector<std::int64_t> lay_residents(const std::vector<int>& parameters,
                                        const std::vector<ParamSpec>& table, const FlatBuffer& flat,
                                        const Bucket* bucket, DType compute);

}  // namespace trainctl
