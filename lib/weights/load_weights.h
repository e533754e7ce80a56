// Stored weights into one rank of any layout: every rank reads its own part only.
#pragma once

#include <filesystem>

#include "engine/parameters/param_store.h"
#include "plan/plan.h"
#include "weights/stored_weights.h"

namespace trainctl {

/// Fills the masters of `rank`'s stage; rows of the vocabulary's padding become zero. The compute
/// copies are the caller's to refresh. Holds a few MiB besides. Errors are those of the store.
void load_weights(const StoredWeights& weights, const Plan& plan, std::int64_t rank,
                  ParamStore& store);
/// The same from a directory with Hugging Face's names, which is checked first.
void load_weights(const std::filesystem::path& directory, const Plan& plan, std::int64_t rank,
                  ParamStore& store);

}  // namespace trainctl
