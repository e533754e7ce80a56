// One thread block as fibers of one host thread. Warps run by random priority, so that some starve
// as long as the others can go on, and lanes in random order; where all threads of a block or a
// warp have to meet, it is checked that they meet at the same place. Shared memory starts with
// every bit set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>
#include <string>

#include "chance.h"
#include "dimensions.h"

namespace cuda_on_host {

/// The work of one launch.
struct Launch {
  std::function<void()> thread;  // the kernel with its arguments, for the running thread
  std::string name;
  dim3 blocks, threads;
  std::size_t shared_bytes = 0;
};

/// Runs all blocks, one after another in a random order. Empty, or what was wrong: a fault stops
/// the launch.
std::string run(const Launch& launch, Chance& chance);

/// Ends the running kernel with a fault. Only within run().
[[noreturn]] void fault(const std::string& what);

/// Waits until all threads of the block are here.
void meet_block(const std::source_location& where);

/// A meeting of the lanes of a warp in `mask`, to which each brings a value, `mine`. `join` is
/// called once with the values of these lanes, and null for the others. All must bring the same
/// mask and join.
using Join = void (*)(void* const (&lanes)[32]);
void meet_warp(std::uint32_t mask, void* mine, Join join, const std::source_location& where);

/// Shared memory of the running block: the dynamic part, and the array that `key` names.
void* dynamic_memory();
void* static_memory(const void* key, std::size_t bytes);

/// Copies from global to shared memory that are not there yet, of the running thread.
void start_copy(void* to, const void* from, std::size_t bytes);
void commit_copies();
void wait_for_copies(int pending);

/// The number of a thread in its block.
int thread_number();

}  // namespace cuda_on_host
