// How many choices of a group of tokens an expert takes.
#pragma once

#include <cstdint>

namespace trainctl {

/// ceil(topk x tokens x factor / experts), but no more than there are choices. `factor` is above 0.
constexpr std::int64_t expert_places(double factor, std::int64_t topk, std::int64_t experts,
                                     std::int64_t tokens) {
  const auto choices = static_cast<double>(topk) * static_cast<double>(tokens);
  const double places = choices * factor / static_cast<double>(experts);
  if (places >= choices) return topk * tokens;
  const auto whole = static_cast<std::int64_t>(places);
  return whole + (static_cast<double>(whole) < places ? 1 : 0);
}

}  // namespace trainctl
