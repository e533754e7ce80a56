// Keys of a MindFormers file that have one key of ours each.
#pragma once

#include <span>

#include "config/upstream/other_keys.h"

namespace trainctl {

/// `key` is the whole path in the file. A value that the words do not have has no counterpart.
std::span<const OtherKey> carried_mindformers_keys();

}  // namespace trainctl
