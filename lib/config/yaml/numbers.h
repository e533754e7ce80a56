// Numbers in YAML: the accepted spellings, and the probable meaning of a refused one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "config/report/diagnostics.h"

namespace trainctl {

/// Stores the number and returns nullopt, or the problem of a spelling that is not accepted:
/// "wrong-type" or "out-of-range", "is not a whole number", and a correct spelling. Accepts decimal
/// digits with an optional sign, or 0x and hexadecimal digits.
std::optional<Problem> parse_number(std::string_view text, std::int64_t& value);
std::optional<Problem> parse_number(std::string_view text, std::uint64_t& value);
/// Also accepts decimal fractions and exponents, but only finite values.
std::optional<Problem> parse_number(std::string_view text, double& value);

/// The usual notation of a number: 4096 rather than 4096.0.
std::string plain_number(double value);

}  // namespace trainctl
