#include "plan/ownership/saved_parts.h"

#include <algorithm>

#include "base/at.h"
#include "plan/rules/resolve.h"
#include "plan/tables/shard.h"

namespace trainctl {

namespace {

// Smaller parameters are written by one replica: a file with fewer pieces is worth more than an
// even share of them.
constexpr std::int64_t least_divided_elements = 16384;

/// Ranks that update the same elements, and this rank's place among them.
struct Copies {
  std::int64_t count = 1;
  std::int64_t place = 0;
};

/// The part of `owned` that this one of its copies writes.
Slice part_of(const Slice& owned, Copies copies, const ParamSpec& parameter, int index) {
  const std::int64_t row = parameter.shape.numel() / parameter.shape[0];
  const std::int64_t rows = owned.length() / row;
  const bool whole_rows = owned.begin % row == 0 && owned.length() % row == 0;
  if (!whole_rows || owned.length() < least_divided_elements || rows < copies.count) {
    return index % copies.count == copies.place ? owned : Slice{};
  }
  return {owned.begin + rows * copies.place / copies.count * row,
          owned.begin + rows * (copies.place + 1) / copies.count * row};
}

Copies copies_of(const Ownership& own, const OwnershipTable& table, const OptimizerShard& shard,
                 const ParamSpec& parameter, DataRanks& data, std::int64_t rank) {
  if (own.route >= 0) {
    const ShardRoute& route = at(table.routes, own.route);
    return {route.copies, route.copy};
  }
  if (shard.kind != ShardKind::whole) return {};
  const std::vector<int>& ranks = data.of(parameter);
  return {std::ssize(ranks), std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin()};
}

}  // namespace

Shape saved_shape(const ParamSpec& parameter, const ModelShape& model) {
  Shape shape = parameter.global_shape;
  const bool padded =
      parameter.kind == ParamKind::token_embedding || parameter.kind == ParamKind::head;
  if (padded) shape[0] = model.vocab;
  return shape;
}

std::vector<SavedPart> saved_parts(const Plan& plan, const OwnershipTable& table,
                                   std::int64_t rank) {
  const StagePlan& stage = plan.stage_of(rank);
  DataRanks data(plan.mesh, rank);
  std::vector<SavedPart> parts;
  for (int i = 0; i < static_cast<int>(stage.parameters.size()); ++i) {
    const ParamSpec& parameter = at(stage.parameters, i);
    const Ownership& own = at(table.parameters, i);
    // Of tensor-parallel ranks with the same share, those that a route does not count are copies.
    if (own.route < 0 && !counts_over_tensor_ranks(parameter, plan.mesh, rank)) continue;
    if (own.owned.length() == 0 || parameter.second_home) continue;
    const Copies copies = copies_of(own, table, at(stage.shards, i), parameter, data, rank);
    const Slice part = part_of(own.owned, copies, parameter, i);
    const Box real = whole_box(saved_shape(parameter, plan.model));
    for (BoxPart& box : cut_into_boxes(shard_box(parameter, plan.mesh, rank), part)) {
      box.box = intersection(box.box, real);
      if (box.box.numel() > 0) parts.push_back({i, box});
    }
  }
  return parts;
}

std::int64_t saved_bytes(const std::vector<SavedPart>& parts, const std::vector<ParamSpec>& table,
                         const OptimizerConfig& optimizer) {
  std::int64_t bytes = 0;
  for (const SavedPart& one : parts) {
    bytes += one.part.box.numel() * saved_value_bytes(at(table, one.parameter), optimizer);
  }
  return bytes;
}

std::int64_t saved_bytes(const Plan& plan, const OptimizerConfig& optimizer) {
  std::int64_t bytes = 0;
  for (const StagePlan& stage : plan.stages) {
    for (const ParamSpec& row : stage.parameters) {
      if (row.second_home) continue;
      bytes += row.global_shape.numel() * saved_value_bytes(row, optimizer);
    }
  }
  return bytes;
}

}  // namespace trainctl
