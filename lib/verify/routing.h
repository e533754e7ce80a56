// The logits of routers, by token. Which experts a token goes to, and whether it has a place there,
// may follow from how its logits are rounded; so a layout compares its logits with those of the
// single rank and then routes by the single rank's, as each step starts from the single rank's
// parameters.
#pragma once

#include <cstdint>
#include <functional>

#include "plan/plan.h"
#include "verify/record.h"

namespace trainctl {

/// Rows [begin, end) of a rank: neighbouring tokens, the first of which is number `token` of the
/// step.
struct RoutedTokens {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t token = 0;
};

/// Calls `body` for the rows of `tokens` ([T] i64: numbers in the data) that are among the `count`
/// tokens from number `first` on.
void for_routed_tokens(const Tensor& tokens, std::int64_t first, std::int64_t count,
                       const std::function<void(const RoutedTokens&)>& body);

/// Does this for the tokens of step number `step` (0 for the first) of a run of `plan`.
void for_step_tokens(const Plan& plan, std::int64_t step, const Tensor& tokens,
                     const std::function<void(const RoutedTokens&)>& body);

/// With room for the tokens of `sequences` in each layer that has experts; the others stay empty.
std::vector<RecordedStream> empty_routers(const ModelShape& model, std::int64_t sequences);
/// Logits of a token in all layers.
std::int64_t expert_logits(const ModelShape& model);
/// Number of tokens of such a record.
std::int64_t tokens_of(const RecordedStream& router);

/// Puts the logits of a run of tokens there.
void record_logits(RecordedStream& router, const RoutedTokens& run, const Tensor& logits);
/// Makes `logits`, of the tokens of a run, those that were recorded.
void route_as_recorded(const RecordedStream& router, const RoutedTokens& run, const Tensor& logits);

}  // namespace trainctl
