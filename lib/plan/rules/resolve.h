// The sizes that follow from a configuration: the one place where "not given" gets its value.
// Nothing is checked here (plan/rules/check.h does that); products that do not come out are rounded
// down.
#pragma once

#include <cstdint>

#include "config/schema/config.h"
#include "plan/tables/mesh.h"

namespace trainctl {

/// parallel.parallel_mode, or what the sizes need: hybrid_parallel where tensor, context, pipeline
/// or expert parallelism is asked for, data_parallel with more than one rank, else stand_alone.
ParallelMode resolve_mode(const ParallelConfig& parallel, std::int64_t world_size);
/// Whether the mode takes the model-parallel sizes at all; stand_alone and data_parallel do not.
bool mode_splits_model(ParallelMode mode);
/// The ranks' grid; data_parallel is what the others leave of the world.
Mesh resolve_mesh(const ParallelConfig& parallel, std::int64_t world_size);
/// World size when nobody gives one: device_num, or the product of the sizes with data_parallel;
/// without that the smallest that dense and expert sizes divide. At most 2^24 + 1.
std::int64_t world_size_of(const ParallelConfig& parallel);

/// The same for a single rank: sizes and placement at their defaults, all else as given.
ParallelConfig for_one_rank(ParallelConfig parallel);

struct BatchSizes {
  std::int64_t micro_batch_size = 0;  // sequences
  std::int64_t microbatches = 0;      // per rank and step
};
/// Not given: one micro-batch per rank, or of one sequence each where there are pipeline stages.
BatchSizes resolve_batch(const TrainConfig& train, const Mesh& mesh);

BucketRule resolve_bucket_rule(const ParallelConfig& parallel);
/// Model chunks per stage in effect: virtual_pipeline_stages, or what pipeline.layout has.
std::int64_t resolve_chunks(const ParallelConfig& parallel, ParallelMode mode);

}  // namespace trainctl
