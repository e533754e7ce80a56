#include "base/units.h"

#include <array>
#include <cmath>
#include <cstdio>

#include "base/shape.h"

namespace trainctl {

namespace {

std::string two_digits(std::int64_t value) {
  return (value < 10 ? "0" : "") + std::to_string(value);
}

}  // namespace

std::string printed(const char* format, double value) {
  std::array<char, 64> buffer{};
  std::snprintf(buffer.data(), buffer.size(), format, value);
  return buffer.data();
}

std::string format_bytes(std::int64_t bytes) {
  static constexpr std::array<const char*, 6> names{"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (std::abs(value) >= 1024.0 && unit + 1 < names.size()) {
    value /= 1024.0;
    ++unit;
  }
  return printed(unit == 0 ? "%.0f" : "%.2f", value) + " " + names[unit];
}

std::string format_count(double count) {
  static constexpr std::array<const char*, 7> names{"", "k", "M", "G", "T", "P", "E"};
  std::size_t unit = 0;
  while (std::abs(count) >= 1000.0 && unit + 1 < names.size()) {
    count /= 1000.0;
    ++unit;
  }
  return printed(unit == 0 ? "%.0f" : "%.3g", count) + names[unit];
}

std::string format_seconds(double seconds) {
  if (seconds < 1e-3) return printed("%.1f us", seconds * 1e6);
  if (seconds < 1.0) return printed("%.1f ms", seconds * 1e3);
  if (seconds < 60.0) return printed("%.1f s", seconds);
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < 3600) return std::to_string(whole / 60) + " m " + two_digits(whole % 60) + " s";
  return std::to_string(whole / 3600) + " h " + two_digits(whole / 60 % 60) + " m";
}

std::string format_grouped(std::int64_t value) {
  std::string digits = std::to_string(value < 0 ? -value : value);
  for (std::size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, ",");
  return value < 0 ? "-" + digits : digits;
}

}  // namespace trainctl
