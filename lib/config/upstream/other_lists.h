// The rows of other_keys.h, one list per project.
#pragma once

#include "config/upstream/other_keys.h"

namespace trainctl {

/// The note of every key that switches a logging service on.
inline constexpr std::string_view no_service = "metrics go to metrics.jsonl in output.dir";
/// That of every key of TensorBoard's files.
inline constexpr std::string_view tensorboard_note = "see output.tensorboard";

std::span<const OtherKey> hugging_face_keys();
std::span<const OtherKey> nanogpt_keys();
std::span<const OtherKey> torchtitan_keys();
std::span<const OtherKey> llmc_keys();
std::span<const OtherKey> megatron_arguments();

}  // namespace trainctl
