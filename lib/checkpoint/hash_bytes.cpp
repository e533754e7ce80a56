#include "checkpoint/hash_bytes.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace trainctl {

std::uint64_t hash_bytes(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::uint64_t hash_bytes(std::string_view text) { return XXH3_64bits(text.data(), text.size()); }

}  // namespace trainctl
