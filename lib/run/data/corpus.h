// The data of a run: its token files, the place in them at which a resumed run continues, and
// whether they are still the files that it read.
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

/// Reads the header, the whole index and 64 blocks. Throws as File::read_at.
SourceIdentity identity_of(const TokenFile& file);

/// SavedSource::path: in printable ASCII, whatever the path has.
std::string storable_name(const std::string& path);
/// SavedData::windows: two runs with the same text cut a file into the same windows.
std::string windows_text(const DataConfig& data);

struct DataPlace {
  DataPosition position;
  std::vector<SavedSource> absent;  // sources that the blend no longer has
  std::vector<std::string> notes;   // for people
};

/// A source is known by its path, else by its identity, so that it may be moved or take another
/// place in the list; a new one begins with its first epoch. The pattern of the blend begins again
/// where sources or weights are others. Throws Error{bad_data} for a source, or validation data,
/// with another identity, unless data.changed allows it: a new epoch of the source then begins.
/// `data` and the last three are those of the present: `identities` from identify_sources().
DataPlace go_on_in_data(const SavedData& saved, std::int64_t samples, const DataConfig& data,
                        const std::vector<SourceIdentity>& identities, std::int64_t seq_length,
                        std::uint64_t seed);

/// The state of the data as a checkpoint keeps it.
SavedData saved_data(const DataConfig& data, const std::vector<SourceIdentity>& identities,
                     const DataPosition& position, const std::vector<SavedSource>& absent);

// From the data section of a config to datasets: finds or builds token files, checks their
// vocabulary.

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

/// The special tokens of the model that training started from. Where it has no end token, the end
/// token of the data is used.
SpecialTokens special_tokens(const Config& config, const Corpus& corpus);

/// The training data alone, whose text is tokenised first where it has to be. Throws
/// Error{missing_input | bad_data}, naming the file.
Dataset open_train_data(const DataConfig& data, std::int64_t seq_length, std::uint64_t seed);
/// The identity of each training source, then of data.validation.path if there is one. Throws as
/// open_train_data.
std::vector<SourceIdentity> identify_sources(const DataConfig& data);

/// The state that a resumed run takes over from its checkpoint, besides the tensors.
struct Continuation {
  Manifest manifest;
  /// Without `windows`, which only the data tells.
  Progress progress;
  /// The place at which the data continues. A checkpoint of an earlier version has only the number
  /// of samples: then the place is where that number of samples of the present data ends.
  std::optional<DataPlace> data;
  std::vector<SourceIdentity> identities;  // identify_sources(), once the data was looked at
};

/// Rank 0 reads the manifest, all get it. Collective. Throws as read_manifest_text and
/// parse_manifest, on every rank.
Continuation read_continuation(const std::filesystem::path& checkpoint, Group& everyone);

/// Looks at the present sources, once, and finds where they go on; rank 0 tells what is new.
/// Collective. Throws as go_on_in_data and identify_sources, on every rank.
void find_data_place(Continuation& continuation, const Config& config, Group& everyone);

/// Progress::windows. Call it after find_data_place. Throws as open_train_data.
std::int64_t windows_behind(const Continuation& continuation, const Config& config);

/// The data of a training run, at the place where training continues.
class TrainingData {
 public:
  /// `continuation`: that of a resumed run, after find_data_place; a new run has none. Rank 0 logs
  /// how much of an epoch is left out whose rows now have another length. Collective. Throws as
  /// identify_sources, on every rank.
  TrainingData(Corpus corpus, const Config& config, const Continuation* continuation,
               Group& everyone);

  const Corpus& corpus() const { return corpus_; }
  /// The state of the data after the first `samples` samples of the run, on rank 0. Empty
  /// elsewhere.
  SavedData saved(std::int64_t samples) const;

 private:
  Corpus corpus_;
  const Config& config_;
  std::vector<SourceIdentity> identities_;  // on rank 0
  std::vector<SavedSource> absent_;
};

}  // namespace trainctl
