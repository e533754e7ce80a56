// Event files of TensorBoard: records of TFRecord's framing (length, data and a masked CRC-32C of
// each), each an Event message with scalars. Only five fields of two messages are written, so
// their wire format is made here.
#pragma once

#include <cstdint>
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

}  // namespace trainctl
