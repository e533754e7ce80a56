// A configuration as a flat list of paths and values, so that two of them can be compared.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/schema/config.h"

namespace trainctl {

/// The value of an optional key that has none.
inline constexpr std::string_view not_given = "not given";

/// Every key in the order of the schema: "train.steps" and "2000"; a key that is not given is
/// "not given".
std::vector<std::pair<std::string, std::string>> config_values(const Config& config);

}  // namespace trainctl
