// How gradients travel, and the rules that decide which of them are reduced together, independent
// of the buffer layout.
#pragma once

#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "config/schema/choices.h"
#include "plan/tables/params.h"

namespace trainctl {

/// The scale of summed gradients, and how they travel.
struct GradientRule {
  BucketRule buckets = BucketRule::size;
  DType dtype = DType::f32;  // in which they are sent; layers make them in fp32
  DType kept = DType::f32;   // in which those of several micro-batches are added up
  // Over the mean loss's: replicas without gradients_mean, times tp without loss_repeated_mean.
  std::int64_t factor = 1;
  bool fused = true;  // products add to weight gradients themselves (gradient_accumulation_fusion)
};

/// The rule's bucket size in elements where none is given: 4,000,000 for size; Megatron's
/// max(40,000,000, 1,000,000 x replicas), replicas being dp x cp, for expert buffers as well.
std::int64_t default_bucket_size(BucketRule rule, std::int64_t replicas);

/// MindSpore's threshold of a fusion mode, in fp32 elements: 64 MB for auto, else config.size MB.
std::int64_t fusion_threshold(const FusionConfig& config);

/// The block of each collective, counted from 0, by MindSpore's auto and size rule. `elements` are
/// in the order in which the collectives start. A collective joins the open block if it is smaller
/// than the remaining threshold; otherwise it opens the next block, whose threshold it does not
/// count against.
std::vector<int> fusion_blocks(const std::vector<std::int64_t>& elements, std::int64_t threshold);

/// The blocks by MindSpore's index rule: each index is the last (inclusive) of its block, as in its
/// source; its documentation can also be read as the first of the next block. Indices
/// past the end are ignored, and a last block takes the rest.
std::vector<int> index_blocks(std::size_t count, const IntList& last);

/// gradient_aggregation_group: the group of a unit, from 1. A block has max(layers / groups, 1)
/// layers, so a remainder makes one more group. Without stages (`whole`), embedding and head are in
/// group number `groups`, as upstream; with stages, in that of their neighbouring layer.
std::int64_t aggregation_group(int unit, std::int64_t layers, std::int64_t groups, bool whole);

/// Whether a gradient is a partial sum over tensor-parallel ranks: over all of them or,
/// with `copies`, over those that hold the same key and value heads.
bool is_partial(const ParamSpec& parameter, bool copies);
/// The elements of a bucket's gradients that are partial; they are packed before the sum.
std::int64_t partial_elements(const std::vector<ParamSpec>& parameters, const Bucket& bucket,
                              bool copies);
/// The length of the buffer in which they are packed, shared by all buckets of a stage; with
/// `casts`, whole buckets are cast into it too.
std::int64_t packed_elements(const std::vector<ParamSpec>& parameters, const FlatBuffer& layout,
                             bool casts);

}  // namespace trainctl
