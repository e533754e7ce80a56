// Formats numbers for people.
#pragma once

#include <cstdint>
#include <string>

namespace trainctl {

/// Formats with one conversion of printf, at most 63 characters: printed("%.1f", 0.25) is "0.2".
std::string printed(const char* format, double value);
/// Such as "1.46 GiB" or "512 B".
std::string format_bytes(std::int64_t bytes);
/// Such as "124.4M", "3.02G" or "950".
std::string format_count(double count);
/// Such as "1.2 ms", "3.4 s", "2 m 05 s" or "1 h 02 m".
std::string format_seconds(double seconds);
/// Such as "1,234,567".
std::string format_grouped(std::int64_t value);

}  // namespace trainctl
