// A directory with a model: a run or a checkpoint, which have a config.yaml, or a model in the form
// of Hugging Face, which has a config.json. Conversion of models between these and the file of
// llm.c.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "config/read/read.h"
#include "plan/plan.h"
#include "weights/hugging_face.h"

namespace trainctl {

/// The configuration of a run, or for a Hugging Face model one with `model: {from: directory}` and
/// the few keys that a configuration requires. Throws Error{missing_input}.
ReadResult read_model_directory(const std::filesystem::path& directory,
                                const std::vector<std::string>& set_options);

/// Makes each sequence an expert group of its own if nothing is counted over groups, so that
/// micro-batches of one sequence hold whole groups.
void forget_groups(MoeConfig& moe);

/// The network of a directory, checked as for one rank. Throws Error{missing_input | bad_data}.
ModelShape model_of(const std::filesystem::path& directory);

/// The tokenizer inside the directory, as data.tokenizer names it; "" if the directory has none
/// that this program reads.
std::string tokenizer_in(const std::filesystem::path& directory);

/// From and to Hugging Face's directory or llm.c's file. To read, a directory may be that of a run.
struct ConvertRequest {
  bool from_llmc = false;
  std::filesystem::path from;
  bool to_llmc = false;
  std::filesystem::path to;      // must not exist yet, except as an empty directory
  DType stored = DType::f32;     // type of the written weights: f32 or bf16
  std::int64_t shard_bytes = 0;  // largest file of a Hugging Face directory; one file if 0
  bool averages = false;         // take the average of weights in a run's checkpoint
};

/// Writes the model and returns one line about it. Holds one tensor at a time. Copies the tokenizer
/// of a directory. Throws Error{usage | missing_input | bad_data | io | unavailable}.
std::string convert_model(const ConvertRequest& request);

}  // namespace trainctl
