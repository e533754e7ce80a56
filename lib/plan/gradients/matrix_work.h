// Updates that need whole matrices (OptimizerRow::by_matrix): which matrices there are, and which
// rank of a stage works on which. States stay where those of all parameters are; before a matrix is
// worked on, its parts travel to its worker, and the result travels back
// (ownership/matrix_exchange.h).
#pragma once

#include <cstdint>
#include <vector>

#include "plan/gradients/optimizer_shard.h"

namespace trainctl {

/// A parameter, or one expert of it.
struct MatrixPart {
  int parameter = 0;
  std::int64_t expert = -1;  // of the whole model; -1: the parameter is a matrix
};

/// Parts that one rank works on at once, stacked by rows: one matrix, or equal ones by rows or
/// columns.
struct MatrixWork {
  std::vector<MatrixPart> parts;
  std::int64_t rows = 0, columns = 0;  // of the stack
  std::int64_t matrices = 1;
  bool by_columns = false;  // they lie side by side; else one below the other
  std::int64_t worker = 0;  // among stage_ranks()
  int round = 0;            // a rank has at most one in each; all exchange round by round
  double cost = 0;          // multiplications and additions of all steps

  std::int64_t matrix_rows() const { return by_columns ? rows : rows / matrices; }
  std::int64_t matrix_columns() const { return by_columns ? columns / matrices : columns; }
  std::int64_t elements() const { return rows * columns; }
  std::int64_t shorter() const;  // side of a matrix
};

/// The ranks of a pipeline stage, ascending.
std::vector<int> stage_ranks(const Mesh& mesh, std::int64_t stage);

/// All work of a stage, in the order of the parameters. Each goes to one of the ranks that hold a
/// part: the longest first, to the rank with least to do (Graham 1969); of equal ranks to the
/// first. A parameter that one rank owns whole is worked on there.
std::vector<MatrixWork> deal_matrices(const std::vector<ParamSpec>& parameters,
                                      const std::vector<OptimizerShard>& shards, const Mesh& mesh,
                                      const MuonConfig& muon, std::int64_t head_dim);

}  // namespace trainctl
