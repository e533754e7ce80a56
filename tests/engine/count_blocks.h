// Counts what the whole test program and its libraries take from the system while they are watched:
// operator new called from this program's own code, and blocks of 4 KiB or more from anybody, be it
// by malloc and its kin or by mmap.
#pragma once

#include <cstdint>
#include <string>

namespace trainctl {

inline constexpr std::int64_t large_block = 4096;

struct BlocksTaken {
  std::int64_t own_news = 0;
  std::int64_t large_blocks = 0;
  std::string first;  // the call stack of the first one, as addresses in its files
};

void start_watching_blocks();
BlocksTaken stop_watching_blocks();

}  // namespace trainctl
