// Mistakes that CUDA on the host makes in the program's place: some of its calls of CUDA, NCCL or
// cuBLASLt are left out or changed, as if the program had been written so. For tests of what finds
// such mistakes.
#pragma once

namespace cuda_on_host {

inline constexpr const char* plantable[] = {
    "compute_waits_not",  // the stream of the products waits for no event of another stream
    "others_wait_not",    // the other streams wait for none
    "ranks_wait_not",     // streams wait for no event of another thread's stream
    "no_queries",         // the host takes every event for done: it reads, frees and ends too early
    "host_read",          // the host reads memory of a device
    "other_stream",       // collectives go to a stream of their own
    "two_streams",        // every second one does: a communicator is used from two streams
    "one_less",           // one member calls with a smaller count
    "mean",               // NCCL takes means for sums
    "one_device",         // every rank takes device 0
    "unaligned",          // device memory begins 4 bytes later
    "less_shared",        // kernels get 16 bytes less of shared memory than they use
    "one_block_less",     // kernels of several blocks lack the last one
    "early_batch",        // the host fills the place of a batch while the device still copies it
    "early_verdict",      // the host reads the verdict of a step before it was copied
    "old_state",          // the step state is copied to the device once
    "no_zeroes",          // memory that a step sets to 0 keeps what it had
    "short_copy",         // copies of streams lack their last 8 bytes
    "pageable",           // the host's memory for copies is not page-locked
    "no_casts",           // copies in the type of computation are not made from the masters
    "no_bias",            // products leave out their epilogue
    "one_of_batch",       // of a batch of products only the first is computed
    "no_sums",            // products overwrite what they should be added to
    "tf32",               // products of fp32 round their operands
    "early_end",          // the host takes an event for done when 9/10 of the work before it are
    "no_last_chunk",      // the last, smaller chunk of the head leaves its logits alone
    "no_last_part",       // of a call that cuDNN computes in parts only the first is computed
};

}  // namespace cuda_on_host
