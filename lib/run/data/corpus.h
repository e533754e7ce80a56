// The data of a run: its token files, the place in them where a resumed run continues, and the
// check that they are still the files that were read before.
#pragma once

#include <cstdint>
#include <filesystem>
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
#include "data/token_file.h"
#include "data/tokenizer/tokenizer.h"
#include "plan/tables/model.h"
#include "plan/tables/site.h"
#include "weights/hugging_face.h"

namespace trainctl {

/// Hashes the header, the whole index and 64 blocks of a file. Throws as File::read_at.
SourceIdentity identity_of(const TokenFile& file);

/// A path as SavedSource::path holds it: in printable ASCII.
std::string storable_name(const std::string& path);

struct DataPlace {
  DataPosition position;
  std::vector<SavedSource> absent;  // sources that the blend no longer contains
  std::vector<std::string> notes;   // messages for people
};

/// The place from which a run continues. A source is recognised by its path, else by its identity,
/// so its path or index may change; a new source begins with its first epoch. The pattern of the
/// blend restarts if sources or weights differ. Throws Error{bad_data} if a source or the
/// validation data has another identity, unless data.changed allows it: the source then begins a
/// new epoch. `data` and the last three are the present ones; `identities`: identify_sources().
DataPlace go_on_in_data(const SavedData& saved, std::int64_t samples, const DataConfig& data,
                        const std::vector<SourceIdentity>& identities, std::int64_t seq_length,
                        std::uint64_t seed);

/// The state of the data as a checkpoint keeps it.
SavedData saved_data(const DataConfig& data, const std::vector<SourceIdentity>& identities,
                     const DataPosition& position, const std::vector<SavedSource>& absent);

// Turns the data section of a configuration into datasets: finds or builds token files and checks
// their vocabulary.

struct Corpus {
  Dataset train;
  std::optional<Dataset> validation;
  BatchRule rule;  // without `sequences`, which follows from the plan
};

/// Opens the tokenizer of a run. Errors are those of Tokenizer::open, after the place of
/// data.tokenizer. Also throws Error{config} if the tokenizer has more tokens than the model,
/// unless the run has only token files.
Tokenizer open_tokenizer(const ReadResult& read, const ModelShape& model);

/// Opens all data. A rank with `first_on_host` builds missing files of the cache while the other
/// ranks of the host wait. Collective over `world`. Throws Error{missing_input | bad_data}, naming
/// the file, on every rank.
Corpus open_corpus(const DataConfig& data, const Tokenizer& tokenizer, const ModelShape& model,
                   std::uint64_t seed, Group& world, bool first_on_host);

/// The special tokens of the model that training started from. If it has no end token, the end
/// token of the data is used.
SpecialTokens special_tokens(const Config& config, const Corpus& corpus);

/// Opens the training data alone; tokenises text first if necessary. Throws Error{missing_input |
/// bad_data}, naming the file.
Dataset open_train_data(const DataConfig& data, std::int64_t seq_length, std::uint64_t seed);
/// The identity of each training source, then of data.validation.path if it is set. Throws as
/// open_train_data.
std::vector<SourceIdentity> identify_sources(const DataConfig& data);

/// The state that a resumed run takes from its checkpoint, in addition to the tensors.
struct Continuation {
  Manifest manifest;
  /// `windows` is missing, since only the data tell it.
  Progress progress;
  /// The place at which the data continue. A checkpoint of an earlier version only tells the number
  /// of samples: training then continues after that number of samples of the present data.
  std::optional<DataPlace> data;
  std::vector<SourceIdentity> identities;  // result of identify_sources(), once it was called
};

/// Rank 0 reads the manifest and sends it to all ranks. Collective. Throws as read_manifest_text
/// and parse_manifest, on every rank.
Continuation read_continuation(const std::filesystem::path& checkpoint, Group& everyone);

/// Identifies the present sources, once, and finds where training continues in them; rank 0 logs
/// what is new. Collective. Throws as go_on_in_data and identify_sources, on every rank.
void find_data_place(Continuation& continuation, const Config& config, Group& everyone);

/// Computes Progress::windows. Call it after find_data_place. Throws as open_train_data.
std::int64_t windows_behind(const Continuation& continuation, const Config& config);

/// The data of a training run, starting where training continues.
class TrainingData {
 public:
  /// `continuation` is that of a resumed run, after find_data_place, or null for a new run. If the
  /// length of rows has changed, rank 0 logs how many tokens of an epoch are left out. Collective.
  /// Throws as identify_sources, on every rank.
  TrainingData(Corpus corpus, const Config& config, const Continuation* continuation,
               Group& everyone);

  const Corpus& corpus() const { return corpus_; }
  /// The state of the data after the first `samples` samples of the run, on rank 0; empty on other
  /// ranks.
  SavedData saved(std::int64_t samples) const;

 private:
  Corpus corpus_;
  const Config& config_;
  std::vector<SourceIdentity> identities_;  // only on rank 0
  std::vector<SavedSource> absent_;
};

}  // namespace trainctl
