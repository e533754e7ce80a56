// The rules that decide which gradients are reduced together, apart from how a buffer is laid out.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/tables/params.h"

namespace trainctl {

/// The rule's bucket size in elements where none is given: 4,000,000 for size; Megatron's
/// max(40,000,000, 1,000,000 x replicas), replicas being dp x cp, for expert buffers as well.
std::int64_t default_bucket_size(BucketRule rule, std::int64_t replicas);

/// MindSpore's threshold of a fusion mode in elements of fp32: 64 MB for auto, else config.size MB.
std::int64_t fusion_threshold(const FusionConfig& config);

/// The block of each collective, counted from 0, by MindSpore's auto and size rule over their
/// elements in the order in which they start: one joins the open block while it is smaller than
/// what remains of the threshold; one that does not fit opens the next block, and is not counted
/// against that block's threshold itself.
std::vector<int> fusion_blocks(const std::vector<std::int64_t>& elements, std::int64_t threshold);

/// The same by MindSpore's index rule: each index is the last one, inclusive, of its block (as its
/// source has it; its documentation can also be read as the first one of the next block). Indices
/// past the end are skipped, and a last block takes the rest.
std::vector<int> index_blocks(std::size_t count, const IntList& last);

/// gradient_aggregation_group: the group of a unit, from 1. Blocks go max(layers / groups, 1) at a
/// time, so a remainder makes one group more. Without stages (`whole`) embedding and head are in
/// group number `groups`, as upstream; with stages in that of their neighbouring layer.
std::int64_t aggregation_group(int unit, std::int64_t layers, std::int64_t groups, bool whole);

/// Whether a gradient is a partial sum over tensor-parallel ranks: over all of them, or (`copies`)
/// over those that hold the same keys and values.
bool is_partial(const ParamSpec& parameter, bool copies);
/// Elements of a bucket's gradients that are; they are packed before they are summed.
std::int64_t partial_elements(const std::vector<ParamSpec>& parameters, const Bucket& bucket,
                              bool copies);
/// Of the buffer that they are packed in, which all buckets of a stage share; `casts`: whole
/// buckets are cast into it too.
std::int64_t packed_elements(const std::vector<ParamSpec>& parameters, const FlatLayout& layout,
                             bool casts);

}  // namespace trainctl
