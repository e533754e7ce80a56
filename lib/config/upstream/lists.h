// The rows of upstream.h's table, one list per source file.
#pragma once

#include "config/upstream/upstream.h"

namespace trainctl {

std::span<const UpstreamKey> mindspore_keys();
std::span<const UpstreamKey> mindformers_keys();
std::span<const UpstreamKey> megatron_keys();

}  // namespace trainctl
