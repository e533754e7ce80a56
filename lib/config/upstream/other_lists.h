// The rows of other_keys.h, one list per project.
#pragma once

#include "config/upstream/other_keys.h"

namespace trainctl {

/// The note for keys that switch on a logging service.
inline constexpr std::string_view no_service = "metrics go to metrics.jsonl in output.dir";
/// The note for keys about TensorBoard files.
inline constexpr std::string_view tensorboard_note = "see output.tensorboard";

/// The note for keys about compiling kernels.
inline constexpr std::string_view compiled = "the kernels are compiled";
inline constexpr std::string_view launched =
    "the launcher gives the ranks: launch -n, or --local-ranks";
inline constexpr std::string_view resumes =
    "the same command resumes from output.dir; model.from starts from weights";
inline constexpr std::string_view zero_paths =
    "parallel.parallel_optimizer.enable=true parallel.parallel_optimizer.optimizer_level";
inline constexpr std::string_view zero_words = "0=|1=level1|2=level2|3=level3";
inline constexpr std::string_view type_names =
    "bf16=bf16|fp16=fp16|fp32=fp32|no=|bf16-mixed=bf16|16-mixed=fp16|bf16-true=bf16|16=fp16|32="
    "fp32|"
    "32-true=fp32|bfloat16=bf16|float16=fp16|float32=fp32|half=fp16|float=fp32|amp=|true=|false=";

std::span<const OtherKey> hugging_face_keys();
std::span<const OtherKey> nanogpt_keys();
std::span<const OtherKey> torchtitan_keys();
std::span<const OtherKey> llmc_keys();
std::span<const OtherKey> megatron_arguments();
std::span<const OtherKey> deepspeed_keys();
std::span<const OtherKey> mindformers_file_keys();
std::span<const OtherKey> trainers_keys();
std::span<const OtherKey> usual_keys();

}  // namespace trainctl
