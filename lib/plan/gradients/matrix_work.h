// Updates that need whole matrices (OptimizerRow::by_matrix): the matrices, and the rank of a stage
// that works on each. States stay where those of all parameters are. The parts of a matrix are sent
// to its worker before the work, and the result is sent back (ownership/matrix_exchange.h).
#pragma once

#include <cstdint>
#include <vector>

#include "plan/gradients/optimizer_shard.h"

namespace trainctl {

/// A matrix: a parameter, or one expert of a parameter.
struct MatrixPart {
  int parameter = 0;
  std::int64_t expert = -1;  // index in the whole model; -1 if the parameter is one matrix
};

/// Parts that one rank updates together, stacked by rows: one matrix, or several of equal shape,
/// one below the other or next to each other.
struct MatrixWork {
  std::vector<MatrixPart> parts;
  std::int64_t rows = 0, columns = 0;  // size of the stack
  std::int64_t matrices = 1;
  bool by_columns = false;  // matrices are next to each other, not one below the other
  std::int64_t worker = 0;  // index in stage_ranks()
  int round = 0;            // number of the exchange; a rank has at most one work in each
  double cost = 0;          // FLOPs of all iterations

  std::int64_t matrix_rows() const { return by_columns ? rows : rows / matrices; }
  std::int64_t matrix_columns() const { return by_columns ? columns / matrices : columns; }
  std::int64_t elements() const { return rows * columns; }
  std::int64_t shorter() const;  // the shorter side of a matrix
};

/// The ranks of a pipeline stage, ascending.
std::vector<int> stage_ranks(const Mesh& mesh, std::int64_t stage);

/// All work of a stage, in the order of the parameters. Each is assigned to a rank that holds a
/// part: the largest first, to the rank with the least work (Graham 1969), or the first of equal
/// ranks. A parameter with a single owner is updated by this rank.
std::vector<MatrixWork> deal_matrices(const std::vector<ParamSpec>& parameters,
                                      const std::vector<OptimizerShard>& shards, const Mesh& mesh,
                                      const MuonConfig& muon, std::int64_t head_dim);

}  // namespace trainctl
