// What a run takes over from the checkpoint that it goes on from, beside the tensors.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "checkpoint/manifest.h"
#include "comm/group.h"
#include "config/schema/config.h"
#include "plan/tables/site.h"
#include "run/data/going_on.h"

namespace trainctl {

struct Continuation {
  Manifest manifest;
  /// Without `windows`, which only the data tells.
  Progress progress;
  /// Where the data goes on; none: where so many samples of the present data end, since the
  /// checkpoint is of a version that kept no more.
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

}  // namespace trainctl
