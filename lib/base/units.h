// Numbers as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace trainctl {

/// By one conversion of printf, of at most 63 characters: printed("%.1f", 0.25) is "0.2".
std::string printed(const char* format, double value);
/// "1.46 GiB", "512 B"
std::string format_bytes(std::int64_t bytes);
/// "124.4M", "3.02G", "950"
std::string format_count(double count);
/// "1.2 ms", "3.4 s", "2 m 05 s", "1 h 02 m"
std::string format_seconds(double seconds);
/// "1,234,567"
std::string format_grouped(std::int64_t value);

}  // namespace trainctl
