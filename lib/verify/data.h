// The day of a free run: train, evaluate, save in the background, train on, evaluate, export. Its
// length, and the configuration and the plan by which a layout has it.
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

struct Day {
  std::int64_t steps = 0;
  std::int64_t noon = 0;  // steps before the first evaluation and the checkpoint

  /// Whether gradients are compared: of the first two steps, and of the two after noon. Of all
  /// others loss and norm are.
  bool has_gradients(std::int64_t step) const {
    return step == 1 || step == 2 || step == noon + 1 || step == noon + 2;
  }
};

/// A day of at least `steps` steps, long enough for the loader to use the memory of each step that
/// it prepares ahead more than twice.
Day day_of(const Config& config, std::int64_t steps);

/// The configuration of a layout, or of one rank, with learning rate, weight decay and a ramp that
/// move and come to their ends within the day, the ramp after noon: those that the file gives two
/// steps before its end, those that follow from the length of the run with it. A checkpoint at
/// noon, in the background.
Config config_of_day(Config config, const Day& day);

/// The plan of that configuration on the ranks of `plan`, for a run that has `done` behind it.
/// Throws Error{config} where it is not legal.
Plan plan_of_day(const Config& config, const Plan& plan, const Progress& done = {});

// Whether samples come in an order that a run may read them in, found without the functions that
// draw them: by looking each up in the tokens of its file.

/// A token file as it was written.
struct FileTokens {
  std::vector<std::int32_t> tokens;
  std::vector<std::int64_t> documents;  // first token of each; empty: documents are joined
};

/// One rule of the order: how many samples break it, and the step of the first that does.
struct OrderCount {
  std::string what;
  std::int64_t samples = 0;
  std::int64_t step = 0;
};

class DataOrder {
 public:
  DataOrder(const FileTokens& file, std::int64_t seq_length, bool shuffle);
  /// The next samples of the run; `step` is 1 for the first.
  void add(std::int64_t step, const Batch& batch);
  /// Every sample is in the file, none comes twice in an epoch, and a shuffled epoch is not that
  /// before it once more, as one that is not shuffled must be.
  std::vector<OrderCount> broken() const;

 private:
  struct Row;
  std::int64_t place_of(const Row& row) const;
  bool matches(const Row& row, std::int64_t place) const;
  std::uint64_t key_of(const std::int32_t* tokens, std::int64_t count) const;

  const FileTokens& file_;
  std::int64_t windows_;  // of an epoch
  bool shuffle_;
  std::unordered_multimap<std::uint64_t, std::int64_t> places_;  // of what a sample begins with
  std::vector<std::int64_t> before_, epoch_;  // places of the last epoch and of this one
  OrderCount missing_{"samples that the file does not have"};
  OrderCount twice_{"samples that an epoch has twice"};
  OrderCount alike_{"samples in the order of the epoch before"};
  OrderCount other_{"samples in another order than that of the file"};
  std::int64_t repeated_ = 0;  // samples after the first epoch
};

// Generated training data for comparisons, which depends only on the seed and the sample: batches,
// and for free runs token files in a folder that goes away.

/// The first of a step's sequences that replica `data_rank` processes in a micro-batch.
std::int64_t first_sequence(const Plan& plan, std::int64_t data_rank, std::int64_t microbatch);

/// The micro-batches of a rank in a step of `plan` that begins with sample `first_sample`, in the
/// order of BatchLoader. Tokens are uniform; of the loss weights an eighth are 0 and an eighth 1/4,
/// the others 1; a document starts at every eighth token on average. One sequence in four, and
/// without data.packing each, ends anywhere: the rest is padding, whose weights are 0.
std::vector<Batch> made_up_batches(const Config& config, const Plan& plan, std::int64_t data_rank,
                                   std::int64_t first_sample);

/// For the files of a run: in TMPDIR. Throws Error{io}.
TemporaryFolder verify_folder();

/// Token files for the loader. Tokens are uniform, an eighth of them ends a document; without
/// data.packing documents are of any length up to a sequence. Training begins its second epoch in
/// the first step after noon and its third one in the last step. The number of windows for
/// validation is about half the number of sequences of a step, and odd where that is even, so that
/// replicas cannot share them evenly.
class FreeData {
 public:
  /// Writes files for a day of this number of samples. Throws Error{io}.
  FreeData(const Config& config, std::int64_t samples);
  /// The data section with these files.
  DataConfig section(DataConfig data) const;
  /// Opens the token files of `config`, which has that section. Collective over `everyone`.
  static Corpus open(const Config& config, const ModelShape& model, Group& everyone);
  const FileTokens& training() const { return training_; }

 private:
  TemporaryFolder folder_ = verify_folder();
  std::int64_t end_token_;
  FileTokens training_;
};

}  // namespace trainctl
