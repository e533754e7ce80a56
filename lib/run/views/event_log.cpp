#include "run/views/event_log.h"

#include <string>

#include "base/error.h"
#include "base/file.h"
#include "run/records/event_file.h"
#include "run/views/run_files.h"

namespace trainctl {

namespace fs = std::filesystem;

EventLog::EventLog(const fs::path& directory)
    : metrics_(directory / "metrics.jsonl"), folder_(directory / "tensorboard") {
  std::error_code failure;
  fs::create_directories(folder_, failure);
  require(!failure, ExitCode::io,
          "cannot create the folder " + folder_.string() + ": " + failure.message());
  for (const auto& entry : fs::directory_iterator(folder_)) {
    if (entry.path().extension() == ".trainctl") fs::remove(entry.path(), failure);
  }
}

void EventLog::update() {
  RunFiles added;
  add_new_lines(metrics_, read_, added);
  if (added.times.empty()) return;
  std::string bytes;
  if (path_.empty()) {
    path_ = folder_ / event_file_name(added.times.front());
    append_file_version(added.times.front(), bytes);
  }
  append_events(added, bytes);
  // Opened each time: `trainctl report` may have replaced it.
  File::open_to_append(path_).append_whole(bytes);
}

}  // namespace trainctl
