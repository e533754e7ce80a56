// XXH3, 64 bit: finds damage in files. Not cryptographic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace trainctl {

std::uint64_t hash_bytes(std::span<const std::byte> bytes);
std::uint64_t hash_bytes(std::string_view text);
/// Copies `from` to `to` and returns the hash of the copy; reads the memory once.
std::uint64_t copy_and_hash(std::span<const std::byte> from, std::byte* to);

}  // namespace trainctl
