// From the data section of a config to datasets: finds or builds token files, checks their
// vocabulary.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "comm/group.h"
#include "config/read/read.h"
#include "config/schema/config.h"
#include "data/batch.h"
#include "data/dataset.h"
#include "data/tokenizer/tokenizer.h"
#include "plan/tables/model.h"
#include "weights/hugging_face_config.h"

namespace trainctl {

struct Corpus {
  Dataset train;
  std::optional<Dataset> validation;
  BatchRule rule;  // sequences still to be set from the plan
};

/// The tokenizer of a run. Errors are those of Tokenizer::open, after the place of data.tokenizer.
/// Also throws Error{config} if it has more tokens than the model, unless the run has token files
/// only.
Tokenizer open_tokenizer(const ReadResult& read, const ModelShape& model);

/// `first_on_host`: this rank builds what is not in the cache; the others wait for it. Collective
/// over `world`. Throws Error{missing_input | bad_data}, naming the file, on every rank.
Corpus open_corpus(const DataConfig& data, const Tokenizer& tokenizer, const ModelShape& model,
                   std::uint64_t seed, Group& world, bool first_on_host);

/// Those of the model that training started from; where it has no end, the end that the data has.
SpecialTokens special_tokens(const Config& config, const Corpus& corpus);

/// The training data alone, whose text is tokenised first where it has to be. Throws
/// Error{missing_input | bad_data}, naming the file.
Dataset open_train_data(const DataConfig& data, std::int64_t seq_length, std::uint64_t seed);
/// Of each of its sources, then of data.validation.path if there is one. Throws the same.
std::vector<SourceIdentity> identify_sources(const DataConfig& data);

}  // namespace trainctl
