#include "run/views/event_file.h"

#include <array>
#include <bit>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "run/views/run_files.h"

namespace trainctl {

namespace {

constexpr std::array<std::uint32_t, 256> crc_table = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1) ^ ((rest & 1U) != 0 ? 0x82f63b78U : 0U);
    table[byte] = rest;
  }
  return table;
}();

/// Appends a number in little-endian order.
template <class Number>
void append_fixed(Number number, std::string& bytes) {
  for (std::size_t i = 0; i < sizeof number; ++i) {
    bytes += static_cast<char>((number >> (8 * i)) & 0xffU);
  }
}

std::uint32_t masked(std::uint32_t crc) { return std::rotr(crc, 15) + 0xa282ead8U; }

void append_record(std::string_view data, std::string& bytes) {
  std::string length;
  append_fixed(static_cast<std::uint64_t>(data.size()), length);
  bytes += length;
  append_fixed(masked(crc32c(length)), bytes);
  bytes += data;
  append_fixed(masked(crc32c(data)), bytes);
}

// Types of values in protobuf's wire format: a field is a key (field number and type) and a value.
enum class Wire : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

void append_varint(std::uint64_t value, std::string& bytes) {
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>((value & 0x7fU) | 0x80U);
  bytes += static_cast<char>(value);
}
void append_key(unsigned field, Wire wire, std::string& bytes) {
  append_varint(field << 3 | static_cast<unsigned>(wire), bytes);
}
void append_bytes(unsigned field, std::string_view value, std::string& bytes) {
  append_key(field, Wire::bytes, bytes);
  append_varint(value.size(), bytes);
  bytes += value;
}

/// The fields that every Event has: wall_time, and step unless it is 0.
std::string event(double time, std::int64_t step) {
  std::string bytes;
  append_key(1, Wire::fixed64, bytes);
  append_fixed(std::bit_cast<std::uint64_t>(time), bytes);
  if (step != 0) {
    append_key(2, Wire::varint, bytes);
    append_varint(static_cast<std::uint64_t>(step), bytes);
  }
  return bytes;
}

/// A message Summary.Value with tag and simple_value.
std::string summary_value(const Scalar& scalar) {
  std::string bytes;
  append_bytes(1, scalar.tag, bytes);
  append_key(2, Wire::fixed32, bytes);
  append_fixed(std::bit_cast<std::uint32_t>(static_cast<float>(scalar.value)), bytes);
  return bytes;
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = 0xffffffffU;
  for (const char byte : bytes) {
    crc = (crc >> 8) ^ crc_table[(crc ^ static_cast<unsigned char>(byte)) & 0xffU];
  }
  return ~crc;
}

void append_file_version(double time, std::string& bytes) {
  std::string data = event(time, 0);
  append_bytes(3, "brain.Event:2", data);
  append_record(data, bytes);
}

void append_scalars(double time, std::int64_t step, std::span<const Scalar> scalars,
                    std::string& bytes) {
  std::string summary;
  for (const Scalar& scalar : scalars) append_bytes(1, summary_value(scalar), summary);
  std::string data = event(time, step);
  append_bytes(5, summary, data);
  append_record(data, bytes);
}

std::string event_file_name(double time) {
  return "events.out.tfevents." + std::to_string(static_cast<std::int64_t>(time)) + ".trainctl";
}

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
  // The file is opened each time, since `trainctl report` may have replaced it.
  File::open_to_append(path_).append_whole(bytes);
}

}  // namespace trainctl
