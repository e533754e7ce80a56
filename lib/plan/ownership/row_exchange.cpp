#include "plan/ownership/row_exchange.h"

#include <algorithm>

#include "base/at.h"
#include "plan/gradients/buckets.h"
#include "plan/gradients/resident.h"

namespace trainctl {

namespace {

/// The most elements of one call that takes several parameters.
template <class Elements>
std::int64_t most_packed(const std::vector<RowExchange>& exchanges, Elements elements_of) {
  std::int64_t most = 0;
  for (const RowExchange& exchange : exchanges) {
    if (exchange.parameters.size() < 2) continue;
    std::int64_t all = 0;
    for (const int index : exchange.parameters) all += elements_of(static_cast<std::size_t>(index));
    most = std::max(most, all);
  }
  return most;
}

}  // namespace

std::vector<RowExchange> row_exchanges(const OwnershipTable& table,
                                       const std::vector<int>& parameters, bool fused) {
  std::vector<RowExchange> exchanges;
  for (const int index : parameters) {
    const int route = table.parameters[static_cast<std::size_t>(index)].route;
    if (route < 0) continue;
    const auto same = std::find_if(exchanges.begin(), exchanges.end(),
                                   [&](const RowExchange& one) { return one.route == route; });
    if (fused && same != exchanges.end()) {
      same->parameters.push_back(index);
    } else {
      exchanges.push_back({route, {index}});
    }
  }
  return exchanges;
}

std::int64_t packed_gradients(const Plan& plan, const StagePlan& stage,
                              const OwnershipTable& table) {
  const bool fused = fuses_rows(plan.gradient.buckets);
  std::int64_t most =
      packed_elements(stage.parameters, stage.flat, plan.gradient.dtype != DType::f32);
  for (const Bucket& bucket : stage.flat.buckets) {
    const auto scattered = [&](std::size_t index) {
      return table.parameters[index].scattered.length();
    };
    most = std::max(most, most_packed(row_exchanges(table, bucket.parameters, fused), scattered));
  }
  return most;
}

std::vector<RowExchange> row_gathers(const Plan& plan, const StagePlan& stage,
                                     const OwnershipTable& table, const GatherBlock& block) {
  std::vector<RowExchange> exchanges;
  for (const bool computed : {true, false}) {
    std::vector<int> parameters;
    for (const int index : block.parameters) {
      const DType type = read_type(at(stage.parameters, index), plan.compute);
      if ((type == plan.compute) == computed) parameters.push_back(index);
    }
    for (RowExchange& one : row_exchanges(table, parameters, fuses_rows(plan.gradient.buckets))) {
      exchanges.push_back(std::move(one));
    }
  }
  return exchanges;
}

std::vector<ApartPiece> pieces_apart(DType compute, const StagePlan& stage,
                                     const GatherBlock& block, std::int64_t ranks,
                                     std::int64_t rank) {
  std::vector<ApartPiece> pieces;
  const Bucket& bucket = at(stage.flat.buckets, block.bucket);
  const std::int64_t length = bucket.length / ranks;
  const std::int64_t begin = bucket.offset + rank * length;
  for (const int index : block.parameters) {
    const ParamSpec& row = at(stage.parameters, index);
    if (read_type(row, compute) == compute) continue;
    const std::int64_t from = begin - at(stage.flat.offset, index);
    const Slice part{std::max<std::int64_t>(from, 0), std::min(from + length, row.shape.numel())};
    if (part.begin < part.end) pieces.push_back({index, part});
  }
  return pieces;
}

std::int64_t most_apart(DType compute, const StagePlan& stage, const GatherBlock& block,
                        std::int64_t ranks) {
  std::int64_t most = 0;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    std::int64_t elements = 0;
    for (const ApartPiece& piece : pieces_apart(compute, stage, block, ranks, rank)) {
      elements += piece.part.length();
    }
    most = std::max(most, elements);
  }
  return most;
}

std::int64_t packed_parameters(const Plan& plan, const StagePlan& stage,
                               const OwnershipTable& table) {
  std::int64_t most = 0;
  for (const GatherBlock& block : stage.gathers) {
    const auto bytes = [&](std::size_t index) {
      const ParamSpec& row = stage.parameters[index];
      return row.shape.numel() * size_of(read_type(row, plan.compute));
    };
    most = std::max(most, most_packed(row_gathers(plan, stage, table, block), bytes));
    if (block.bucket < 0) continue;
    const std::int64_t ranks = at(stage.shards, block.parameters.front()).ranks;
    most =
        std::max(most, ranks * most_apart(plan.compute, stage, block, ranks) * size_of(DType::f32));
  }
  return most;
}

}  // namespace trainctl
