// How gradients are summed, and the rules that decide which gradients are reduced together, apart
// from the buffer layout.
#pragma once

#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "config/schema/choices.h"
#include "plan/tables/params.h"

namespace trainctl {

/// The scaling, bucket rule and dtypes of gradient sums.
struct GradientRule {
  BucketRule buckets = BucketRule::size;
  DType dtype = DType::f32;  // dtype of sums over ranks; layers compute gradients in fp32
  DType kept = DType::f32;   // dtype of sums over micro-batches
  // Factor on top of the mean loss: replicas without gradients_mean, times tp without
  // loss_repeated_mean.
  std::int64_t factor = 1;
  bool fused = true;  // products accumulate weight gradients (gradient_accumulation_fusion)
};

/// The default bucket size of the rule in elements: 4,000,000 for size; for megatron
/// max(40,000,000, 1,000,000 x replicas), with dp x cp replicas also for expert buffers.
std::int64_t default_bucket_size(BucketRule rule, std::int64_t replicas);

/// MindSpore's threshold of a fusion mode in fp32 elements: 64 MB for auto, else config.size MB.
std::int64_t fusion_threshold(const FusionConfig& config);

/// The block number, from 0, of each collective by MindSpore's auto and size rules. `elements` are
/// in starting order. A collective joins the open block if it is smaller than the remaining
/// threshold; otherwise it opens a block, against whose threshold it does not count.
std::vector<int> fusion_blocks(const std::vector<std::int64_t>& elements, std::int64_t threshold);

/// The block number of each collective by MindSpore's index rule. An index is the last (inclusive)
/// of its block, as in MindSpore's source; its documentation can also be read as the first of the
/// next block. Indices beyond the end are ignored; the last block has the rest.
std::vector<int> index_blocks(std::size_t count, const IntList& last);

/// The group number of a unit, from 1, for gradient_aggregation_group. A group has max(layers /
/// groups, 1) layers, so a remainder makes one more group. Without stages (`whole`), embedding and
/// head are in group number `groups`, as upstream; with stages, in that of the next layer.
std::int64_t aggregation_group(int unit, std::int64_t layers, std::int64_t groups, bool whole);

/// Whether a gradient is a partial sum over tensor-parallel ranks: over all of them or,
/// with `copies`, over those that hold the same key and value heads.
bool is_partial(const ParamSpec& parameter, bool copies);
/// The number of elements of a bucket with partial gradients, which are packed before the sum.
std::int64_t partial_elements(const std::vector<ParamSpec>& parameters, const Bucket& bucket,
                              bool copies);
/// The length of the buffer for packed gradients, shared by all buckets of a stage. With `casts`,
/// whole buckets are cast into it, too.
std::int64_t packed_elements(const std::vector<ParamSpec>& parameters, const FlatBuffer& layout,
                             bool casts);

}  // namespace trainctl
