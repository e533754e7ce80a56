#include "run/directory/unfinished.h"

#include "base/error.h"
#include "base/whole_file.h"
#include "checkpoint/folder.h"

namespace trainctl {

namespace {

namespace fs = std::filesystem;

/// What an earlier version wrote beside the files of a run, until these were whole.
bool is_old_temporary(const std::string& name) {
  const std::size_t at = name.find(".tmp-");
  if (at == std::string::npos) return false;
  const std::string file = name.substr(0, at);
  return file == "metrics.jsonl" || file == "config.yaml" || file == "plan.json" ||
         file == "measured.json" || file == "report.html" || file.starts_with("model");
}

void take_away(const fs::path& path, const Fence& fence) {
  const fs::path own = fence.partial(path);
  std::error_code failure;
  fs::rename(path, own, failure);
  if (failure == std::errc::no_such_file_or_directory) return;
  require(!failure, ExitCode::io, "cannot rename " + path.string() + ": " + failure.message());
  const std::string reason = remove_directory(own);
  require(reason.empty(), ExitCode::io, reason);
}

}  // namespace

void remove_unfinished(const fs::path& run, std::int64_t session) {
  const Fence fence{session, {}};
  for (const fs::path& folder : {run, CheckpointFolder(run).path()}) {
    for (const std::string& name : names_in(folder)) {
      if (Fence::is_partial(name, session) || is_old_temporary(name)) {
        take_away(folder / name, fence);
      }
    }
  }
}

}  // namespace trainctl
