// How the parts of matrices get from the ranks that own them to their workers, and the results
// back: one rank's view of the rounds of StagePlan::matrices.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/ownership/ownership.h"

namespace trainctl {

/// Elements that follow each other in a buffer and lie in the stack of a matrix as rows.
struct MatrixRows {
  std::int64_t packed = 0;   // the first one's place in the buffer
  std::int64_t stacked = 0;  // and in the stack
  std::int64_t rows = 0, length = 0;
};

/// The elements of a part that this rank owns.
struct OwnedPart {
  int work = 0;  // index into StagePlan::matrices
  int parameter = 0;
  Slice slice;                // of this rank's share of the parameter, in its owned slice
  std::int64_t outgoing = 0;  // its place among the values that go to workers; those that are also
                              // owned by a rank which sends them lie behind
  std::int64_t incoming = 0;  // among the results
};

/// Counts are by rank of stage_ranks(), in elements.
struct MatrixRound {
  std::vector<OwnedPart> owned;
  int work = -1;                                          // that this rank works on; -1: none
  std::vector<std::int64_t> send, receive;                // values to workers
  std::vector<std::int64_t> return_send, return_receive;  // results
  std::vector<MatrixRows> in, out;                        // values into the stack, results from it
  std::int64_t values = 0;                                // elements of all that it owns
};

std::vector<MatrixRound> matrix_rounds(const Plan& plan, std::int64_t rank);

/// The memory of a rank's rounds; every rank of a stage has the same.
struct MatrixBuffer {
  const char* name;
  std::int64_t elements = 0;
  DType type = DType::f32;
};
std::vector<MatrixBuffer> matrix_buffers(const Plan& plan, int stage);
std::int64_t matrix_bytes(const Plan& plan, int stage);

/// The work of the rank of a stage that has most to do.
std::vector<const MatrixWork*> busiest_work(const StagePlan& stage);

/// Bytes that a rank sends in its rounds, each of which has two calls.
std::int64_t sent_bytes(const Plan& plan, const std::vector<MatrixRound>& rounds);

}  // namespace trainctl
