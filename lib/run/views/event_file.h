// TensorBoard event files: TFRecord frames (length, data and a masked CRC-32C of each) that hold
// Event messages with scalars. Only five fields of two messages are written, so their protobuf
// encoding is written by hand here.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace trainctl {

struct Scalar {
  std::string_view tag;
  double value = 0;
};

/// CRC-32C (Castagnoli); the value for "123456789" is 0xe3069283.
std::uint32_t crc32c(std::string_view bytes);

/// Append one record to `bytes`: the version record that begins a file, or the scalars of a step.
void append_file_version(double time, std::string& bytes);
void append_scalars(double time, std::int64_t step, std::span<const Scalar> scalars,
                    std::string& bytes);

/// "events.out.tfevents.SECONDS.trainctl": TensorBoard reads all files whose names contain
/// "tfevents".
std::string event_file_name(double time);

// A TensorBoard event file that grows with a run.

class EventLog {
 public:
  /// Opens the log of the run in `directory`. Removes the event files of earlier sessions, since
  /// the first update() writes all lines of metrics.jsonl so far.
  explicit EventLog(const std::filesystem::path& directory);
  /// Appends the whole lines added to metrics.jsonl since the last call. Throws Error{io}.
  void update();

 private:
  std::filesystem::path metrics_;
  std::filesystem::path folder_;
  std::filesystem::path path_;  // empty until the first line, whose time names the file
  std::uint64_t read_ = 0;      // bytes of metrics.jsonl read so far
};

}  // namespace trainctl
