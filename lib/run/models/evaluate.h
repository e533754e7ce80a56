// `trainctl evaluate`: the loss of finished or running weights on any data, in any layout.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace trainctl {

struct EvaluateRequest {
  // One of the two: a directory with a model (model_directory.h), or a configuration, whose run in
  // output.dir has the weights, else model.from.
  std::filesystem::path directory{};
  std::filesystem::path config{};
  std::vector<std::string> set_options{};  // "path=value" over the configuration
  std::string data{};       // as data.train takes it; empty: the configuration's validation data
  std::string tokenizer{};  // instead of the configuration's or the directory's own
  bool averages = false;    // of the average of weights that a checkpoint holds
  std::int64_t max_sequences = 0;  // 0: all
  int local_ranks = 0;             // > 0: that many ranks as threads of this process
};

struct EvaluateResult {
  std::string data;                     // what it was
  double loss = 0;                      // mean over the scored tokens, in nats
  double perplexity = 0;                // exp(loss)
  std::int64_t sequences = 0;           // non-overlapping windows of seq_length tokens
  std::int64_t tokens = 0;              // scored
  std::optional<double> bits_per_byte;  // where the tokenizer has a text for each token
};

/// Calls `take` on rank 0. Several ranks (of this process, or of the launcher) divide the model as
/// the configuration's parallel section or `set_options` say; one rank alone takes all of it. The
/// result does not depend on the layout, up to rounding. Throws Error{missing_input | bad_data |
/// usage | config}; under MPI such a failure is logged and ends the job.
void evaluate(const EvaluateRequest& request,
              const std::function<void(const EvaluateResult&)>& take);

}  // namespace trainctl
