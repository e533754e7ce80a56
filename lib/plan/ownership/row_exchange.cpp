#include "plan/ownership/row_exchange.h"

#include <algorithm>

#include "plan/gradients/buckets.h"

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

std::int64_t packed_parameters(const Plan& plan, const StagePlan& stage,
                               const OwnershipTable& table) {
  const bool fused = fuses_rows(plan.gradient.buckets);
  std::int64_t most = 0;
  for (const GatherBlock& block : stage.gathers) {
    const auto whole = [&](std::size_t index) { return stage.parameters[index].shape.numel(); };
    most = std::max(most, most_packed(row_exchanges(table, block.parameters, fused), whole));
  }
  return most;
}

}  // namespace trainctl
