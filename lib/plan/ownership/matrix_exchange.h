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

/// The most that the ranks of a stage need for their rounds, in elements.
struct MatrixSizes {
  std::int64_t values = 0;   // that a rank owns in a round
  std::int64_t stack = 0;    // of a work
  std::int64_t matrix = 0;   // of a matrix
  std::int64_t square = 0;   // of its shorter side
  std::int64_t results = 0;  // that a worker sends
  bool exchanges = false;    // the stage has several ranks
  bool apart = false;        // some work has several matrices, which are copied from the stack
};
MatrixSizes matrix_sizes(const Plan& plan, int stage);

/// The memory of a rank's rounds; every rank of a stage has the same. Products are in Plan::muon.
struct MatrixBuffer {
  const char* name;
  std::int64_t elements = 0;
  DType type = DType::f32;
};
std::vector<MatrixBuffer> matrix_buffers(const MatrixSizes& sizes, DType products);
std::int64_t matrix_bytes(const Plan& plan, int stage);

/// The work of the rank of a stage that has most to do.
std::vector<const MatrixWork*> busiest_work(const StagePlan& stage);

/// Bytes that a rank sends in its rounds, each of which has two calls.
std::int64_t sent_bytes(const Plan& plan, const std::vector<MatrixRound>& rounds);

}  // namespace trainctl
