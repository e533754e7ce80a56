#include "engine/parameters/optimizer.h"

#include "engine/parameters/exchange.h"

namespace trainctl {

int optimizer_states(const OptimizerConfig& config) {
  if (config.type == OptimizerType::adamw) return 2;
  return config.momentum != 0 ? 1 : 0;
}

Optimizer::Optimizer(const OptimizerConfig& config, const ParamStore& store,
                     const StepState* state) {
  for (int i = 0; i < static_cast<int>(store.table().size()); ++i) {
    if (store.owned(i).length() == 0) continue;
    const Tensor rounded = store.rounded(i);
    const bool decay = store.table()[static_cast<std::size_t>(i)].decay;
    if (config.type == OptimizerType::adamw) {
      adamw_.push_back({.parameter = flat(store.master(i)),
                        .gradient = store.owned_gradient(i),
                        .m = store.state(i, 0),
                        .v = store.state(i, 1),
                        .compute = rounded,
                        .beta1 = static_cast<float>(config.beta1),
                        .beta2 = static_cast<float>(config.beta2),
                        .epsilon = static_cast<float>(config.eps),
                        .decay = decay,
                        .state = state});
    } else {
      const bool momentum = optimizer_states(config) > 0;
      sgd_.push_back({.parameter = flat(store.master(i)),
                      .gradient = store.owned_gradient(i),
                      .momentum = momentum ? store.state(i, 0) : Tensor{},
                      .compute = rounded,
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
