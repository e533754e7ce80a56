#include "plan/cost/recompute_cost.h"

#include <string_view>

#include "plan/cost/communication.h"
#include "plan/cost/real.h"

namespace trainctl {

namespace {

struct Part {
  BlockPart part;
  double flops = 0;
  double elements = 0;  // that it writes
};

}  // namespace

RepeatCost repeat_cost(const Plan& plan, int unit, const BlockForm& form) {
  const ModelShape& model = plan.model;
  const LocalShape local = plan.local_of(unit);
  const double own = real(local.attention_rows);
  const double tokens = real(model.experts > 1 ? local.tokens : local.mlp_rows);
  const double hidden = real(model.hidden);
  const double stream = real(local.stream_rows) * hidden;
  const double q = real(local.q);
  const double qkv = q + 2 * real(local.kv);
  const double ffn =
      real(model.experts > 1 ? model.topk * local.expert_ffn + local.shared_ffn : local.ffn);
  const double wide = (model.gated_mlp ? 2 : 1) * ffn;
  const double pairs = real(model.seq_length + 1) / 2;  // keys that a query sees
  const Part parts[] = {
      {BlockPart::norm1, 0, stream},
      {BlockPart::qkv, 2 * own * hidden * qkv, own * qkv},
      {BlockPart::attention, 4 * own * q * pairs, own * q},
      {BlockPart::projection, 2 * own * hidden * q, stream},
      {BlockPart::norm2, 0, stream},
      {BlockPart::mlp, 2 * tokens * hidden * wide, tokens * wide},
      {BlockPart::activation, 0, tokens * ffn},
  };
  RepeatCost cost;
  for (const Part& row : parts) {
    if (!form.repeats(row.part)) continue;
    cost.flops += row.flops;
    cost.bytes += 2 * row.elements * real(size_of(plan.compute));
  }
  return cost;
}

double repeat_seconds(const RepeatCost& cost, const Rates& rates) {
  return cost.flops / rates.matmul_flops + cost.bytes / rates.memory_bandwidth;
}

double repeat_wire_seconds(const Plan& plan, int unit, const BlockForm& form, const Rates& rates) {
  if (plan.mesh.tp == 1) return 0;
  const BlockSplit split = plan.splits.of_unit(unit);
  const Layout stream = plan.sequence_parallel ? Layout::tokens : Layout::invariant;
  double seconds = 0;
  const auto add = [&](std::string_view operation, std::int64_t count, std::int64_t bytes) {
    if (operation.empty()) return;
    CollectiveUse use;
    use.operation = operation;
    use.ranks = plan.mesh.tp;
    use.count = count;
    use.bytes = count * bytes;
    seconds += wire_seconds(use, rates);
  };
  const auto reshard = [&](Layout from, Layout to) {
    add(word_for(transition(from, to).value_or(Collective::none)), 1,
        plan.local.tokens * plan.model.hidden * size_of(plan.compute));
  };
  const auto enters = [&](BlockPart part) { return form.repeats(part) && !form.gathered(part); };
  if (enters(BlockPart::qkv)) reshard(stream, inside_of(split.attention).reads);
  if (enters(BlockPart::mlp)) reshard(stream, inside_of(split.feed_forward).reads);
  if (form.slices_input) reshard(Layout::tokens, Layout::invariant);
  if (form.repeats(BlockPart::projection)) reshard(inside_of(split.attention).makes, stream);
  if (split.attention != SplitBy::tokens) return seconds;
  const HeadExchange exchange = head_exchange(plan, plan.local_of(unit));
  if (form.repeats(BlockPart::qkv)) add(exchange.operation, 1, exchange.q);
  if (form.repeats(BlockPart::qkv)) add(exchange.operation, 2, exchange.kv);
  if (form.repeats(BlockPart::attention)) add(exchange.operation, 1, exchange.q);
  return seconds;
}

}  // namespace trainctl
