// Event files of TensorBoard: records of TFRecord's framing (length, data and a masked CRC-32C of
// each), each an Event message with scalars. Only five fields of two messages are written, so
// their wire format is made here.
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

/// CRC-32C (Castagnoli); of "123456789" it is 0xe3069283.
std::uint32_t crc32c(std::string_view bytes);

/// Append one record to `bytes`: the first of a file; the scalars of a step.
void append_file_version(double time, std::string& bytes);
void append_scalars(double time, std::int64_t step, std::span<const Scalar> scalars,
                    std::string& bytes);

/// "events.out.tfevents.SECONDS.trainctl": TensorBoard takes all files whose names contain
/// "tfevents".
std::string event_file_name(double time);

// An event file of TensorBoard that grows with a run.

class EventLog {
 public:
  /// Opens the log of the run in `directory`. Removes the event files of earlier sessions: the
  /// first update() writes all lines that metrics.jsonl has by then.
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
