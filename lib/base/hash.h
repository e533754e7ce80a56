// FNV-1a, 64 bit: a stable hash for plans, cache keys and replica checks. Not cryptographic.
#pragma once

#include <cstdint>
#include <string_view>

namespace trainctl {

/// Folds `bytes` into `state`; start from `fnv_offset`.
inline constexpr std::uint64_t fnv_offset = 0xcbf29ce484222325ULL;

constexpr std::uint64_t fnv1a(std::string_view bytes, std::uint64_t state = fnv_offset) {
  for (char byte : bytes) {
    state ^= static_cast<unsigned char>(byte);
    state *= 0x100000001b3ULL;
  }
  return state;
}

}  // namespace trainctl
