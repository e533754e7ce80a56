// The parameters of each entry of optimizer.groups, and those of none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/schema/config.h"
#include "plan/plan.h"

namespace trainctl {

struct GroupRow {
  int entry = -1;  // from 0; -1: parameters that no entry takes
  OptimizerType type = OptimizerType::adamw;
  double rate_factor = 1;
  std::optional<double> decay_factor;  // none: 1 of matrices, 0 of all others
  std::vector<std::string> parameters;
  std::int64_t elements = 0;
};

/// In the order of the entries, the rest last; empty without entries.
std::vector<GroupRow> group_rows(const Plan& plan, const OptimizerConfig& optimizer);

/// A work of a stage (StagePlan::matrices).
struct MatrixRow {
  int stage = 0;
  const MatrixWork* work = nullptr;
  std::vector<std::string> parameters;
  int worker = 0;  // world rank
};
std::vector<MatrixRow> matrix_rows(const Plan& plan);

}  // namespace trainctl
