// `trainctl generate`: text from the weights of a finished run or of a Hugging Face model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <string>
#include <vector>

namespace trainctl {

struct GenerateRequest {
  std::filesystem::path run_dir;           // of a run, or a Hugging Face model (model_directory.h)
  std::string tokenizer{};                 // instead of the run's or the directory's own
  std::vector<std::string> set_options{};  // "path=value" over the configuration: layout, device
  std::string prompt;                      // may be empty
  std::int64_t max_tokens = 200;
  double temperature = 1.0;  // 0: always the likeliest token
  std::int64_t top_k = 0;    // 0: all
  double top_p = 1.0;        // the likeliest tokens that have this much together; 1: all
  std::int64_t samples = 1;  // continuations, a line "---" between them
  std::uint64_t seed = 1;
  int local_ranks = 0;    // > 0: that many ranks as threads of this process
  bool averages = false;  // by the average of weights that a checkpoint holds
};

/// Writes prompt and continuation on rank 0 as they are generated. On several ranks (of this
/// process, or of the launcher) in the run's own parallel degrees or those of `set_options`,
/// without sequence parallelism; further ranks are replicas that compute the same. The text is that
/// of one rank, except where two tokens are equally likely up to rounding. Stops early at the
/// tokenizer's end of document, or at an end that a Hugging Face directory names. When the context
/// is full, continues from its last half. The device is the run's (parallel.device). Throws
/// Error{missing_input | bad_data | usage | config | unavailable}; under MPI such a failure is
/// logged and ends the job.
void generate(const GenerateRequest& request, std::ostream& out);

}  // namespace trainctl
