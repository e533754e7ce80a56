// Whose attention a plan's ranks compute with on CUDA devices: the one place where it is decided.
#pragma once

#include <optional>
#include <string>

#include "base/attention_part.h"
#include "plan/rules/check.h"

namespace trainctl {

/// Why cuDNN's attention is not for this configuration, wherever it runs: one line, empty if it is.
std::string why_not_cudnn(const Facts& facts);

/// The attention of a micro-batch on one rank, if cuDNN computes it; none: our kernels do.
std::optional<AttentionExtents> resolve_cudnn(const Facts& facts);

void check_attention(const Facts& facts, Check& check);

}  // namespace trainctl
