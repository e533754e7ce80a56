#include "engine/parameters/optimizer.h"

namespace trainctl {

namespace {

Tensor part_of(const Tensor& x, Slice part) {
  return x.empty() ? x : x.view({x.numel()}).slice(part.begin, part.end);
}

}  // namespace

int optimizer_states(const OptimizerConfig& config) {
  if (config.type == OptimizerType::adamw) return 2;
  return config.momentum != 0 ? 1 : 0;
}

Optimizer::Optimizer(const OptimizerConfig& config, const ParamStore& store,
                     const StepState* state) {
  for (int i = 0; i < static_cast<int>(store.table().size()); ++i) {
    const Slice part = store.owned(i);
    if (part.begin == part.end) continue;
    const bool decay = store.table()[static_cast<std::size_t>(i)].decay;
    if (config.type == OptimizerType::adamw) {
      adamw_.push_back({.parameter = part_of(store.master(i), part),
                        .gradient = part_of(store.gradient(i), part),
                        .m = store.state(i, 0),
                        .v = store.state(i, 1),
                        .compute = part_of(store.compute(i), part),
                        .beta1 = static_cast<float>(config.beta1),
                        .beta2 = static_cast<float>(config.beta2),
                        .epsilon = static_cast<float>(config.eps),
                        .decay = decay,
                        .state = state});
    } else {
      const bool momentum = optimizer_states(config) > 0;
      sgd_.push_back({.parameter = part_of(store.master(i), part),
                      .gradient = part_of(store.gradient(i), part),
                      .momentum = momentum ? store.state(i, 0) : Tensor{},
                      .compute = part_of(store.compute(i), part),
                      .coefficient = static_cast<float>(config.momentum),
                      .decay = decay,
                      .state = state});
    }
  }
}

void Optimizer::step(const OpContext& context) const {
  for (const AdamW& args : adamw_) adamw(context, args);
  for (const Sgd& args : sgd_) sgd(context, args);
}

}  // namespace trainctl
