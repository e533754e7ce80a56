// The exported weights of a run in any layout: every rank reads the file and keeps its own shards.
#pragma once

#include <filesystem>

#include "engine/parameters/param_store.h"
#include "plan/plan.h"

namespace trainctl {

/// Fills the masters of `rank`'s stage from model.safetensors, each with the pieces of the whole
/// that plan/tables/shard.h says. Holds one whole tensor of the file at a time. Throws
/// Error{missing_input | bad_data}.
void load_weights(const std::filesystem::path& directory, const Plan& plan, std::int64_t rank,
                  ParamStore& store);

}  // namespace trainctl
