#include "ops/update_rules.h"

#include "base/philox.h"
#include "ops/elements.h"
#include "ops/plain/kernels.h"
#include "ops/plain/tell_accesses.h"

namespace trainctl {

namespace {

template <class Rule>
void update_by(const Update& args) {
  const StepState& state = *args.state;
  const Rule rule(args);
  const Philox random(state.seed, args.rounding.stream(state.step));
  const Philox of_weight(state.seed, args.rounding.weight_stream(state.step));
  for (std::int64_t i = 0; i < args.parameter.numel(); ++i) {
    double kept[2] = {0, 0};
    for (int k = 0; k < 2; ++k) {
      if (!args.states[k].empty()) kept[k] = element_of(args.states[k], i);
    }
    const double g = element_of(args.gradient, i) * (Rule::clipped ? state.clip_coefficient : 1.0F);
    const auto updated =
        static_cast<float>(rule.next(element_of(args.parameter, i), g, kept[0], kept[1]));
    const std::uint64_t whole = args.rounding.whole(i);
    const std::uint32_t bits = Rule::narrow_states ? random.bits(whole) : 0;
    for (int k = 0; k < 2; ++k) {
      if (args.states[k].empty()) continue;
      put_at_random(args.states[k], i, static_cast<float>(kept[k]), bits >> (16 * k));
    }
    put_at_random(args.parameter, i, updated, of_weight.bits(whole));
    round_to(args.compute, i, updated);
  }
}

void plain_update(const OpContext&, const Update& args) {
  tell_read(*args.state);
  if (args.state->found_inf) return;
  tell_reads({args.gradient});
  tell_writes({args.parameter, args.states[0], args.states[1], args.compute});
  with_rule<double, false>(args.rule, [&]<class Rule>() { update_by<Rule>(args); });
}

}  // namespace

void update_plain(const OpContext& context, const Calls<Update>& calls) {
  each_call<Update, plain_update>(context, calls);
}

}  // namespace trainctl
