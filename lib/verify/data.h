// Generated training data for comparisons, which depends only on the seed and the sample: batches,
// and for free runs token files in a folder that goes away.
#pragma once

#include <cstdint>
#include <vector>

#include "base/file.h"
#include "comm/group.h"
#include "config/schema/config.h"
#include "data/batch.h"
#include "plan/plan.h"
#include "run/data/corpus.h"
#include "verify/data_order.h"
#include "verify/day.h"

namespace trainctl {

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
