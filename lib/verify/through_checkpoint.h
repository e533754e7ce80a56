// Layouts that save and load a checkpoint half way, for Verification.
#pragma once

#include <cstdint>
#include <filesystem>

#include "verify/record.h"
#include "verify/verify.h"

namespace trainctl {

/// Takes `half` steps, compared, and saves a checkpoint in the folder `run`.
LayoutVerdict save_half_way(const Record& record, const VerifiedLayout& layout,
                            const std::filesystem::path& run, std::int64_t half);
/// Loads it, and takes `half` more steps, compared.
LayoutVerdict load_half_way(const Record& record, const VerifiedLayout& layout,
                            const std::filesystem::path& run, std::int64_t half,
                            const Faults& faults);

}  // namespace trainctl
