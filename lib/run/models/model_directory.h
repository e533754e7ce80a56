// A directory that holds a model: a run or a checkpoint, which have a config.yaml, or Hugging
// Face's form, which has a config.json. Models from one form to another: these, and llm.c's file.
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

/// The configuration of a run, or one that says `model: {from: directory}` and little else. Throws
/// Error{missing_input}.
ReadResult read_model_directory(const std::filesystem::path& directory,
                                const std::vector<std::string>& set_options);

/// Makes groups of tokens of experts single sequences, where nothing is counted over them: micro-
/// batches of one sequence are then whole.
void forget_groups(MoeConfig& moe);

/// Its network, checked as for one rank. Throws Error{missing_input | bad_data} with the findings.
ModelShape model_of(const std::filesystem::path& directory);

/// The tokenizer that the directory itself holds, as data.tokenizer names it; "" if it has none
/// that is read here.
std::string tokenizer_in(const std::filesystem::path& directory);

/// From and to Hugging Face's directory or llm.c's file. To read, a directory may be that of a run.
struct ConvertRequest {
  bool from_llmc = false;
  std::filesystem::path from;
  bool to_llmc = false;
  std::filesystem::path to;      // must not exist yet; a directory may be there and empty
  DType stored = DType::f32;     // or bf16
  std::int64_t shard_bytes = 0;  // of a Hugging Face directory; 0: one file
  bool averages = false;         // the average of weights that a run's checkpoint holds
};

/// Writes the model and says in one line what was written. Holds one tensor at a time. A tokenizer
/// in a directory goes along. Throws Error{usage | missing_input | bad_data | io | unavailable}.
std::string convert_model(const ConvertRequest& request);

}  // namespace trainctl
