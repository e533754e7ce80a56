// The transfer of matrix parts from the ranks that own them to workers, and of results back: one
// rank's view of the rounds of StagePlan::matrices.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/ownership/ownership.h"

namespace trainctl {

/// Elements that are contiguous in a buffer and form rows in the stack of a matrix.
struct MatrixRows {
  std::int64_t packed = 0;   // index of the first element in the buffer
  std::int64_t stacked = 0;  // index of the first element in the stack
  std::int64_t rows = 0, length = 0;
};

/// The elements of a matrix part that this rank owns.
struct OwnedPart {
  int work = 0;  // index into StagePlan::matrices
  int parameter = 0;
  Slice slice;                // slice of this rank's share of the parameter, within its owned slice
  std::int64_t outgoing = 0;  // index among the values for workers; values that another owner sends
                              // come after all sent ones
  std::int64_t incoming = 0;  // index among the results
};

/// One round of exchanges. Counts are elements, by rank of stage_ranks().
struct MatrixRound {
  std::vector<OwnedPart> owned;
  int work = -1;                                          // work of this rank, or -1
  std::vector<std::int64_t> send, receive;                // values to workers
  std::vector<std::int64_t> return_send, return_receive;  // results
  std::vector<MatrixRows> in, out;                        // values into the stack, results from it
  std::int64_t values = 0;                                // number of elements that this rank owns
};

std::vector<MatrixRound> matrix_rounds(const Plan& plan, std::int64_t rank);

/// One buffer for a rank's rounds; all ranks of a stage have equal buffers.
struct MatrixBuffer {
  const char* name;
  std::int64_t elements = 0;
  DType type = DType::f32;
};
std::vector<MatrixBuffer> matrix_buffers(const Plan& plan, int stage);
std::int64_t matrix_bytes(const Plan& plan, int stage);

/// The work of the rank of a stage with the highest cost.
std::vector<const MatrixWork*> busiest_work(const StagePlan& stage);

/// Bytes that a rank sends in its rounds, each of which has two calls.
std::int64_t sent_bytes(const Plan& plan, const std::vector<MatrixRound>& rounds);

}  // namespace trainctl
