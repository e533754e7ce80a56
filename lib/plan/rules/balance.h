// Neighbouring layers dealt to parts, so that the most expensive part is cheapest.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace trainctl {

/// The text of parallel.pipeline.layout that asks for it.
inline constexpr std::string_view balanced_layout = "auto";

struct BalanceInput {
  std::vector<double> costs{};  // of the layers, in their order
  double last = 0;              // what the last part has besides
  std::int64_t parts = 1;
};

/// Layers of each part, in order. Of the ways that are equally good it is the one whose later parts
/// have fewer layers; a part is empty only where there are fewer layers than parts.
std::vector<std::int64_t> balanced_counts(const BalanceInput& input);

}  // namespace trainctl
