#include "verify/routing.h"

#include <string>

#include "device/slab.h"

namespace trainctl {

void for_routed_tokens(const Tensor& tokens, std::int64_t first, std::int64_t count,
                       const std::function<void(const RoutedTokens&)>& body) {
  const HostValues on_host(tokens);
  const auto* const number = on_host.values().as<std::int64_t>();
  for (std::int64_t row = 0; row < tokens.numel();) {
    const std::int64_t token = number[row] - first;
    std::int64_t end = row + 1;
    while (end < tokens.numel() && number[end] == number[row] + end - row) ++end;
    if (token >= 0 && token + end - row <= count) body({row, end, token});
    row = end;
  }
}

void for_step_tokens(const Plan& plan, std::int64_t step, const Tensor& tokens,
                     const std::function<void(const RoutedTokens&)>& body) {
  const std::int64_t first = samples_in(plan.ramp, step) * plan.model.seq_length;
  for_routed_tokens(tokens, first, plan.after(step).tokens_per_step(), body);
}

std::vector<RecordedStream> empty_routers(const ModelShape& model, std::int64_t sequences) {
  std::vector<RecordedStream> routers(static_cast<std::size_t>(model.layers));
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    if (!model.kind(layer).experts) continue;
    RecordedStream& router = routers[static_cast<std::size_t>(layer)];
    router.name = "layers." + std::to_string(layer);
    router.shape = {sequences, model.seq_length, model.experts};
    router.values.resize(static_cast<std::size_t>(router.shape.numel()));
  }
  return routers;
}

std::int64_t expert_logits(const ModelShape& model) {
  std::int64_t count = 0;
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    if (model.kind(layer).experts) count += model.experts;
  }
  return count;
}

std::int64_t tokens_of(const RecordedStream& router) { return router.shape[0] * router.shape[1]; }

void record_logits(RecordedStream& router, const RoutedTokens& run, const Tensor& logits) {
  record_part(router, run.token * logits.columns(), logits.slice(run.begin, run.end));
}

void route_as_recorded(const RecordedStream& router, const RoutedTokens& run,
                       const Tensor& logits) {
  const auto begin = router.values.begin() + run.token * logits.columns();
  std::vector<float> recorded(begin, begin + (run.end - run.begin) * logits.columns());
  set_values(logits.slice(run.begin, run.end), recorded);
}

}  // namespace trainctl
