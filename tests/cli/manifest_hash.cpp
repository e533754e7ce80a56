#include "manifest_hash.h"

#include <array>
#include <cstdio>

#include "checkpoint/hash_bytes.h"

std::string hash_of_text(const std::string& text) {
  std::array<char, 17> digits{};
  std::snprintf(digits.data(), digits.size(), "%016llx",
                static_cast<unsigned long long>(trainctl::hash_bytes(text)));
  return digits.data();
}
