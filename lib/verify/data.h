// Generated training data for comparisons: needs no files; depends only on the seed and the sample.
#pragma once

#include <cstdint>
#include <vector>

#include "config/schema/config.h"
#include "data/batch.h"
#include "plan/plan.h"

namespace trainctl {

/// The first of a step's sequences that replica `data_rank` processes in a micro-batch.
std::int64_t first_sequence(const Plan& plan, std::int64_t data_rank, std::int64_t microbatch);

/// The micro-batches of a rank in step `step` (from 0), in the order of BatchLoader. Tokens are
/// uniform; of the loss weights an eighth are 0 and an eighth 1/4, the others 1; a document starts
/// at every eighth token on average.
std::vector<Batch> made_up_batches(const Config& config, const Plan& plan, std::int64_t data_rank,
                                   std::int64_t step);

}  // namespace trainctl
