// `trainctl generate`: text from the weights of a finished run or of a Hugging Face model.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

namespace trainctl {

struct GenerateRequest {
  std::string run_dir;                     // a run or a Hugging Face model (model_directory.h)
  std::string tokenizer{};                 // replaces the tokenizer of the run or the directory
  std::vector<std::string> set_options{};  // "path=value" of the layout or device
  std::string prompt;                      // may be empty
  std::int64_t max_tokens = 200;
  double temperature = 1.0;  // if 0, the likeliest token is always taken
  std::int64_t top_k = 0;    // no limit if 0
  double top_p = 1.0;        // total probability of the tokens to draw from; no limit if 1
  std::int64_t samples = 1;  // number of texts, with a line "---" between them
  std::uint64_t seed = 1;
  int local_ranks = 0;    // if > 0, number of ranks, as threads of this process
  bool averages = false;  // use the average of weights in a checkpoint
};

/// Writes prompt and continuation on rank 0 as tokens are generated. Several ranks (threads of this
/// process, or processes of a launcher) use the run's parallel degrees or those of `set_options`,
/// without sequence parallelism; further ranks are replicas that compute the same. The text equals
/// that of one rank, except where two tokens are equally likely up to rounding. Stops early at the
/// tokenizer's end of document, or at an end that a Hugging Face directory names. When the context
/// is full, continues from its last half. The device is that of the run (parallel.device). Throws
/// Error{missing_input | bad_data | usage | config | unavailable}; under MPI such a failure is
/// logged and ends the job.
void generate(const GenerateRequest& request, std::ostream& out);

}  // namespace trainctl
