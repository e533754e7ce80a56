#include <algorithm>

#include "base/at.h"
#include "plan/cost/communication.h"
#include "plan/model/attention.h"
#include "plan/model/block.h"
#include "plan/model/experts.h"

namespace trainctl {

namespace {

/// In F, in B from the last to the first, and in W what a weight gradient needs once more.
void add_exchanges(UseList& list, const BlockPasses& passes, const Exchanges& exchanges) {
  for (const Exchange& one : exchanges) {
    const std::int64_t count = !one.part   ? passes.once
                               : one.stays ? passes.gathers(*one.part)
                                           : passes.of(*one.part);
    list.exchange(one, false, one.forward_chunks, count);
  }
  for (auto one = exchanges.rbegin(); one != exchanges.rend(); ++one) {
    list.exchange(*one, true, one->backward_chunks, passes.once);
  }
  for (const Exchange& one : exchanges) {
    if (one.again_in_weight) list.exchange(one, false, false, passes.weight_gathers(*one.part));
  }
}

void add_calls(UseList& list, const BlockPasses& passes, const LayerCalls& calls) {
  for (const LayerCall& one : calls) {
    list.call(one, one.part ? passes.of(*one.part) : passes.once);
  }
}

}  // namespace

void BlockPasses::add_repeats(const BlockForm& form, std::int64_t count) {
  for (int number = 0; number < block_parts; ++number) {
    const auto part = static_cast<BlockPart>(number);
    if (form.repeats(part)) at(again, number) += count;
    if (form.gathered(part)) at(gathered, number) += count;
  }
  if (form.slices_input && form.repeats()) sliced += count;
}

BlockPasses BlockPasses::without_repeats() const {
  BlockPasses passes = *this;
  std::fill(std::begin(passes.again), std::end(passes.again), 0);
  passes.sliced = 0;
  return passes;
}

std::int64_t count_partial(const StagePlan& stage, int unit) {
  for (std::size_t chunk = 0; chunk < stage.forms.is_partial.size(); ++chunk) {
    if (!stage.units[chunk].holds(unit)) continue;
    const std::vector<char>& partial = stage.forms.is_partial[chunk];
    return std::count(partial.begin(), partial.end(), 1);
  }
  return 0;
}

BlockPasses passes_of(const Plan& plan, const StagePlan& stage, int unit) {
  const std::int64_t fewer = count_partial(stage, unit);
  BlockPasses passes{.once = plan.microbatches};
  passes.add_repeats(stage.forms.of(unit, true), fewer);
  passes.add_repeats(stage.forms.of(unit, false), plan.microbatches - fewer);
  return passes;
}

void add_block(UseList& list, int unit, const BlockPasses& passes) {
  const LayerForm form = list.plan().form_of(unit);
  const LayerShare share = list.plan().share_of(unit);
  add_exchanges(list, passes, attention_exchanges(form, share));
  add_calls(list, passes, attention_norm_calls(form, share));
  add_calls(list, passes, attention_head_calls(share));
  add_exchanges(list, passes, feed_forward_exchanges(form, share));
  list.call(sliced_input_call(form, share), passes.sliced);
  add_calls(list, passes, attention_context_calls(share));
  if (!form.has_experts()) return;
  for (const Exchange& one : router_exchanges(form, share)) add_exchanges(list, passes, {one});
  add_calls(list, passes, router_calls(form, share));
  add_calls(list, passes, expert_part_calls(form, share));
  add_calls(list, passes, expert_row_calls(form, share));
}

}  // namespace trainctl
