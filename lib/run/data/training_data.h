// The data of a training run, at the place where it goes on, and what a checkpoint keeps of it.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/group.h"
#include "config/schema/config.h"
#include "run/data/continuation.h"
#include "run/data/corpus.h"

namespace trainctl {

class TrainingData {
 public:
  /// `continuation`: of a run that goes on, with its data found; null: a new run. Rank 0 tells
  /// what is left out of an epoch whose rows now have another length. Collective. Throws as
  /// identify_sources, on every rank.
  TrainingData(Corpus corpus, const Config& config, const Continuation* continuation,
               Group& everyone);

  const Corpus& corpus() const { return corpus_; }
  /// After so many samples of the run; on rank 0 alone, empty elsewhere.
  SavedData saved(std::int64_t samples) const;

 private:
  Corpus corpus_;
  const Config& config_;
  std::vector<SourceIdentity> identities_;  // on rank 0
  std::vector<SavedSource> absent_;
};

}  // namespace trainctl
