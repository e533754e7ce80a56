// An event file of TensorBoard that grows with a run.
#pragma once

#include <cstdint>
#include <filesystem>

namespace trainctl {

class EventLog {
 public:
  /// Of the run in `directory`. Removes the event files of earlier sessions there: the first
  /// update() writes all lines that metrics.jsonl has by then.
  explicit EventLog(const std::filesystem::path& directory);
  /// Appends the whole lines that metrics.jsonl has got since the last call. Throws Error{io}.
  void update();

 private:
  std::filesystem::path metrics_;
  std::filesystem::path folder_;
  std::filesystem::path path_;  // empty until there is a line, whose time names the file
  std::uint64_t read_ = 0;      // bytes of metrics.jsonl
};

}  // namespace trainctl
