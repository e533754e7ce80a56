// Small programs with faults of the kinds that only devices have, and the same without them: what
// the test of CUDA on the host runs. They are part of its module, since they need a kernel's
// compiler.
#pragma once

#include <cstdint>
#include <string>

namespace cuda_on_host {

enum class EpilogueFault : std::uint8_t {
  none,
  other_epilogue,   // that of the backward in the forward
  other_algorithm,  // proposed for the product without it
  narrow_rows,      // columns of its matrix closer than whole packs
  overlap,          // closer than their length
  same_memory,      // its matrix is the result
  short_matrix,     // its matrix ends early
  unaligned,        // less than when the algorithm was proposed
  other_type        // a bias of another type than the result
};

/// Each runs one program and gives back what it found: "" where all is well, "wrong" where values
/// are not what they should be, else the message of the error.
struct Faults {
  /// All devices as new; later work runs by this seed, in the order "eager", "lazy" or "random".
  void (*restart)(std::uint64_t seed, const char* order);

  /// The streams of a device that the program has made and not destroyed.
  int (*streams)(int device);
  /// How often the program has enqueued a "kernel", a "product", "attention" of cuDNN, a "copy" or
  /// a "memset", on streams of its own.
  std::int64_t (*enqueued)(const char* kind);

  std::string (*exchange_in_block)(bool with_barrier);
  std::string (*wait_for_stream)(bool with_event);
  std::string (*free_before)(bool with_synchronize);
  std::string (*write_elements)(int allocated, int written);
  std::string (*read_at)(int allocated, int index);
  std::string (*meet)(bool all_threads, bool same_place);
  std::string (*shuffle)(bool all_lanes);
  std::string (*load_sixteen)(int offset);
  std::string (*sum_shared)(bool initialised);
  std::string (*copy_asynchronously)(bool with_wait);
  std::string (*write_shared)(int beyond);
  /// Sums, maxima and ranks of a block again and again, each used by all threads. No fault.
  std::string (*join_blocks)();
  /// In a process of its own; "ended by a signal" where the host's read faults.
  std::string (*read_on_host)(bool closed);
  std::string (*launch_with)(int threads, int shared_kib);
  /// A product with an epilogue, wrong in one way or none.
  std::string (*multiply_with)(EpilogueFault fault);
  /// Two streams captured as a graph that is launched three times. `mistake`: "", "no_edge",
  /// "unjoined", "host_waits", "allocates", "event_from_outside", "query_of_captured".
  std::string (*launch_graph)(const char* mistake);
};

}  // namespace cuda_on_host
