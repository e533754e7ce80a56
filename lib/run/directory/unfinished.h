// What sessions of a run were writing when they ended.
#pragma once

#include <cstdint>
#include <filesystem>

namespace trainctl {

/// Takes away what sessions before `session`, and that one itself, were writing into the directory
/// and its checkpoints. Each gets a name of this session first: an earlier session that was stopped
/// right before it would have given a file its name finds nothing then. Throws Error{io}.
void remove_unfinished(const std::filesystem::path& run, std::int64_t session);

}  // namespace trainctl
