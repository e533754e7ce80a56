// The day of a free run: train, evaluate, save in the background, train more, evaluate, export.
// Defines the length of the day, and the configuration and plan of a layout for it.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/file.h"
#include "comm/group.h"
#include "config/schema/config.h"
#include "data/batch.h"
#include "plan/plan.h"
#include "run/data/corpus.h"

namespace trainctl {

/// The steps of a free run. At noon it evaluates and saves a checkpoint, from which other runs
/// resume; at the end it evaluates again.
struct Day {
  std::int64_t steps = 0;
  std::int64_t noon = 0;  // steps before the first evaluation and the checkpoint

  /// Whether a step's gradients are compared: in the first two steps, and the two after noon. Other
  /// steps compare only loss and norm.
  bool has_gradients(std::int64_t step) const {
    return step == 1 || step == 2 || step == noon + 1 || step == noon + 2;
  }
};

/// A day of at least `steps` steps. It is long enough for the loader to reuse the memory of each
/// prefetched step at least twice.
Day day_of(const Config& config, std::int64_t steps);

/// `config`, shortened to the day. Schedules of learning rate and weight decay, and a ramp of the
/// batch size, change and end within the day (the ramp after noon): ends that the file gives come
/// two steps before the day's end, ends that follow from the run's length at its end. A checkpoint
/// is saved at noon, in the background.
Config config_of_day(Config config, const Day& day);

/// The plan of config_of_day() on the ranks of `plan`, for a run that has finished `done`. Throws
/// Error{config} if the layout is not legal.
Plan plan_of_day(const Config& config, const Plan& plan, const Progress& done = {});

// Checks the order in which a run reads samples, without the functions that draw the order: each
// sample is looked up in the tokens of its file.

/// The contents of a token file, kept in memory.
struct FileTokens {
  std::vector<std::int32_t> tokens;
  std::vector<std::int64_t> documents;  // first token of each; empty if documents are joined
};

/// The number of samples that break a rule of the order, and the step of the first of these.
struct OrderCount {
  std::string what;
  std::int64_t samples = 0;
  std::int64_t step = 0;
};

class DataOrder {
 public:
  DataOrder(const FileTokens& file, std::int64_t seq_length, bool shuffle);
  /// Adds the run's next samples. The first step is 1.
  void add(std::int64_t step, const Batch& batch);
  /// The broken rules. Every sample must be in the file, and none twice in an epoch. A shuffled
  /// epoch must differ from the epoch before; without shuffling the order must be that of the file.
  std::vector<OrderCount> broken() const;

 private:
  struct Row;
  std::int64_t place_of(const Row& row) const;
  bool matches(const Row& row, std::int64_t place) const;
  std::uint64_t key_of(const std::int32_t* tokens, std::int64_t count) const;

  const FileTokens& file_;
  std::int64_t windows_;  // samples per epoch
  bool shuffle_;
  std::unordered_multimap<std::uint64_t, std::int64_t> places_;  // places by key of first tokens
  std::vector<std::int64_t> before_, epoch_;  // places used in the previous and this epoch
  OrderCount missing_{"samples that the file does not have"};
  OrderCount twice_{"samples that an epoch has twice"};
  OrderCount alike_{"samples in the order of the epoch before"};
  OrderCount other_{"samples in another order than that of the file"};
  std::int64_t repeated_ = 0;  // samples after the first epoch
};

// Generated training data for comparisons, which depends only on the seed and the sample: batches
// and, for free runs, token files in a temporary folder.

/// The index in a step of the first sequence that replica `data_rank` processes in a micro-batch.
std::int64_t first_sequence(const Plan& plan, std::int64_t data_rank, std::int64_t microbatch);

/// A rank's micro-batches in the step of `plan` that begins with sample `first_sample`, in
/// BatchLoader's order. Tokens are uniform. An eighth of the loss weights are 0, an eighth 1/4, the
/// rest 1. A document starts at every eighth token on average. One sequence in four (without
/// data.packing, every sequence) ends at a random place; padding with weight 0 follows.
std::vector<Batch> made_up_batches(const Config& config, const Plan& plan, std::int64_t data_rank,
                                   std::int64_t first_sample);

/// Makes a folder in TMPDIR for the files of a run. Throws Error{io}.
TemporaryFolder verify_folder();

/// Token files for the loader. Tokens are uniform, and an eighth of these end a document; without
/// data.packing, documents have random lengths up to a sequence. Training enters its second epoch
/// in the first step after noon, and its third in the last step. Validation has an odd number of
/// windows, about half the sequences of a step, so that replicas cannot share the windows evenly.
class FreeData {
 public:
  /// Writes files for a day with this number of samples. Throws Error{io}.
  FreeData(const Config& config, std::int64_t samples);
  /// Returns `data` with the paths of these files.
  DataConfig section(DataConfig data) const;
  /// Opens the token files of `config`, which has section()'s data. Collective over `everyone`.
  static Corpus open(const Config& config, const ModelShape& model, Group& everyone);
  const FileTokens& training() const { return training_; }

 private:
  TemporaryFolder folder_ = verify_folder();
  std::int64_t end_token_;
  FileTokens training_;
};

}  // namespace trainctl
