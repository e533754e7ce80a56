// `trainctl evaluate`: the loss of a run's or given weights on any data, in any layout.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace trainctl {

struct EvaluateRequest {
  // Exactly one is set: a directory with a model (model_directory.h), or a configuration, whose
  // weights are those of the run in output.dir, else of model.from.
  std::string directory{};
  std::string config{};
  std::vector<std::string> set_options{};  // "path=value", overrides the configuration
  std::string data{};                      // replaces data.train; if empty, the validation data
  std::string tokenizer{};                 // replaces the tokenizer of configuration or directory
  bool averages = false;                   // evaluate the average of weights in a checkpoint
  std::int64_t max_sequences = 0;          // no limit if 0
  int local_ranks = 0;                     // if > 0, number of ranks, as threads of this process
};

struct EvaluateResult {
  std::string data;                     // name of the data that were evaluated
  double loss = 0;                      // mean over the scored tokens, in nats
  double perplexity = 0;                // exp(loss)
  std::int64_t sequences = 0;           // non-overlapping windows of seq_length tokens
  std::int64_t tokens = 0;              // number of scored tokens
  std::optional<double> bits_per_byte;  // none if the tokenizer has no text for some token
};

/// Calls `take` on rank 0. Several ranks (threads of this process, or processes of a launcher)
/// divide the model by the configuration's parallel section or `set_options`; a single rank holds
/// all of it. The result does not depend on the layout, up to rounding. Throws Error{missing_input
/// | bad_data | usage | config}; under MPI such a failure is logged and ends the job.
void evaluate(const EvaluateRequest& request,
              const std::function<void(const EvaluateResult&)>& take);

}  // namespace trainctl
