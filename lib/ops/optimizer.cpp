#include "ops/optimizer.h"

#include <string>

#include "base/error.h"
#include "base/integers.h"
#include "ops/check.h"
#include "ops/update_rules.h"

namespace trainctl {

std::vector<std::int64_t> cut_into_pieces(std::span<const std::int64_t> elements,
                                          std::int64_t& size) {
  const auto count = static_cast<std::int64_t>(elements.size());
  require(count <= max_pieces / 2, ExitCode::unavailable,
          std::to_string(count) + " calls of an operation as one: at most " +
              std::to_string(max_pieces / 2));
  std::vector<std::int64_t> first;
  for (size = min_piece;; size *= 2) {
    first.assign(1, 0);
    for (const std::int64_t length : elements) {
      first.push_back(first.back() + divide_up(length, size));
    }
    if (first.back() <= max_pieces) return first;
  }
}

namespace {

template <class Rule>
void check_call(const Update& args) {
  const std::int64_t count = args.parameter.numel();
  check(is_fp32_or_bf16(args.parameter, count) && is_fp32_or_bf16(args.gradient, count), Rule::name,
        "parameter and gradient must be fp32 or bf16 vectors of one length",
        {{"parameter", args.parameter}, {"gradient", args.gradient}});
  const int kept = Rule::keeps(args.constants) ? Rule::states : 0;
  for (int i = 0; i < 2; ++i) {
    const Tensor& state = args.states[i];
    const bool is_narrow = Rule::narrow_states && is_vector(state, count, DType::bf16);
    const bool fits = i < kept ? is_narrow || is_vector(state, count, DType::f32) : state.empty();
    check(fits, Rule::name,
          Rule::narrow_states
              ? "the states that it keeps must be fp32 or bf16 vectors as long as parameter"
              : "the states that it keeps must be fp32 vectors as long as parameter",
          {{"parameter", args.parameter},
           {"states[0]", args.states[0]},
           {"states[1]", args.states[1]}});
  }
  check(is_copy(args.compute, args.parameter), Rule::name,
        "compute must be a bf16 or fp16 vector as long as parameter, which is fp32, or absent",
        {{"parameter", args.parameter}, {"compute", args.compute}});
  check(args.state != nullptr, Rule::name, "state must be given", {});
  check(args.rule != UpdateRule::scale || args.factor != nullptr, Rule::name,
        "factor must be given", {});
}

}  // namespace

void update(const OpContext& context, const Calls<Update>& calls) {
  if (calls.list().empty()) return;
  const UpdateRule rule = calls.list().front().rule;
  with_rule<float, false>(rule, [&]<class Rule>() {
    for (const Update& args : calls.list()) {
      check(args.rule == rule, Rule::name, "all calls of a list must have one rule", {});
      check_call<Rule>(args);
    }
  });
  dispatch(context, &Kernels::update, calls, name_of(rule));
}

namespace {

void check_call(const SquareSum& args) {
  check(is_fp32_or_bf16(args.x, args.x.numel()), "square_sum", "x must be an fp32 or bf16 vector",
        {{"x", args.x}});
  check(args.result != nullptr, "square_sum", "result must be given", {});
}

}  // namespace

void square_sum(const OpContext& context, const Calls<SquareSum>& calls) {
  for (const SquareSum& args : calls.list()) check_call(args);
  dispatch(context, &Kernels::square_sum, calls, "square_sum");
}

void step_verdict(const OpContext& context, const StepVerdict& args) {
  const Tensor& sums = args.square_sums;
  check(is_matrix(sums, DType::f64) && sums.shape[0] > 0 && sums.shape[1] == 2, "step_verdict",
        "square_sums must be f64 [ranks, 2]", {{"square_sums", sums}});
  check(args.state != nullptr, "step_verdict", "state must be given", {});
  dispatch(context, &Kernels::step_verdict, args, "step_verdict");
}

}  // namespace trainctl
