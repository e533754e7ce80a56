#include "ops/update.h"

#include "ops/check.h"
#include "ops/update_rules.h"

namespace trainctl {

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
              ? "as many states as it keeps must be fp32 or bf16 vectors as long as parameter"
              : "as many states as it keeps must be fp32 vectors as long as parameter",
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

}  // namespace trainctl
