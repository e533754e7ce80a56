#include "checkpoint/hash_bytes.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>

namespace trainctl {

std::uint64_t hash_bytes(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::uint64_t hash_bytes(std::string_view text) { return XXH3_64bits(text.data(), text.size()); }

std::uint64_t copy_and_hash(std::span<const std::byte> from, std::byte* to) {
  constexpr std::size_t in_cache = 128 << 10;  // bytes that fit into the cache of one core
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  while (!from.empty()) {
    const std::size_t bytes = std::min(from.size(), in_cache);
    std::memcpy(to, from.data(), bytes);
    XXH3_64bits_update(&state, to, bytes);
    from = from.subspan(bytes);
    to += bytes;
  }
  return XXH3_64bits_digest(&state);
}

}  // namespace trainctl
