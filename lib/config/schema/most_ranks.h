// The limit of ranks, which keys of files and options of commands share.
#pragma once

#include <cstdint>

namespace trainctl {

/// Of one run, in a file and on a command line.
inline constexpr std::int64_t most_ranks = 1'000'000;

}  // namespace trainctl
