// Where a run goes on in its training data, and whether that data is still what it read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "config/schema/config.h"
#include "data/data_position.h"
#include "data/token_file.h"

namespace trainctl {

/// Reads the header, the whole index and 64 blocks. Throws as File::read_at.
SourceIdentity identity_of(const TokenFile& file);

/// SavedSource::path: in printable ASCII, whatever the path has.
std::string storable_name(const std::string& path);
/// SavedData::windows: two runs with the same text cut a file into the same windows.
std::string windows_text(const DataConfig& data);

/// What of the present data decides where its sources go on.
struct PresentData {
  const DataConfig& data;
  const std::vector<SourceIdentity>& identities;  // identify_sources()
  std::int64_t seq_length = 0;
  std::uint64_t seed = 0;
};

struct DataPlace {
  DataPosition position;
  std::vector<SavedSource> absent;  // sources that the blend no longer has
  std::vector<std::string> notes;   // for people
};

/// A source is known by its path, else by its identity, so that it may be moved or take another
/// place in the list; a new one begins with its first epoch. The pattern of the blend begins again
/// where sources or weights are others. Throws Error{bad_data} for a source, or validation data,
/// with another identity, unless data.changed allows it: a new epoch of the source then begins.
DataPlace go_on_in_data(const SavedData& saved, std::int64_t samples, const PresentData& now);

/// What a checkpoint keeps.
SavedData saved_data(const DataConfig& data, const std::vector<SourceIdentity>& identities,
                     const DataPosition& position, const std::vector<SavedSource>& absent);

}  // namespace trainctl
