#include "engine/parameters/expert_bias.h"

#include <numeric>

#include "device/host_values.h"
#include "ops/router.h"

namespace trainctl {

namespace {

/// As the operation of the other parameters does, which is over by then.
void take_into_average(const Tensor& biases, int parameter, const ParamStore& store) {
  const Tensor average = store.average(parameter);
  if (average.empty()) return;
  const HostValues averages(average);
  const auto kept = static_cast<float>(store.average_decay());
  for (std::int64_t i = 0; i < average.numel(); ++i) {
    float& value = averages.values().as<float>()[i];
    value = kept * value + (1 - kept) * biases.as<float>()[i];
  }
  averages.store();
}

}  // namespace

void move_expert_biases(const ModelShape& model, const Tensor& sums, const ParamStore& store) {
  const HostValues counted(sums);
  for (int i = 0; i < static_cast<int>(store.table().size()); ++i) {
    const ParamSpec& row = store.table()[static_cast<std::size_t>(i)];
    const Slice own = store.owned(i);
    if (row.kind != ParamKind::expert_bias || own.length() == 0) continue;
    const std::int64_t layer = row.unit - 1;
    const float* loads = counted.values().slice(layer, layer + 1).as<float>() + router_sums;
    const double mean =
        std::accumulate(loads, loads + model.experts, 0.0) / static_cast<double>(model.experts);
    const HostValues biases(store.master(i));
    float* bias = biases.values().as<float>();
    for (std::int64_t e = own.begin; e < own.end; ++e) {
      const int sign = (loads[e] < mean ? 1 : 0) - (loads[e] > mean ? 1 : 0);
      bias[e - own.begin] += static_cast<float>(model.bias_rate * sign);
    }
    biases.store();
    take_into_average(biases.values(), i, store);
  }
}

}  // namespace trainctl
