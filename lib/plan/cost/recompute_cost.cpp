#include "plan/cost/recompute_cost.h"

#include "plan/cost/real.h"

namespace trainctl {

namespace {

struct Part {
  BlockPart part;
  double flops = 0;
  double elements = 0;  // that it writes
};

}  // namespace

RepeatCost repeat_cost(const Plan& plan, const BlockForm& form) {
  const ModelShape& model = plan.model;
  const LocalShape& local = plan.local;
  const double tokens = real(local.tokens);
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
      {BlockPart::qkv, 2 * tokens * hidden * qkv, tokens * qkv},
      {BlockPart::attention, 4 * tokens * q * pairs, tokens * q},
      {BlockPart::projection, 2 * tokens * hidden * q, stream},
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

double repeat_wire_seconds(const Plan& plan, const BlockForm& form, const Rates& rates) {
  const bool by_token = plan.sequence_parallel;
  std::int64_t calls[3] = {};  // gathers, sums over all, sums of which each rank takes its rows
  for (const BlockPart part : {BlockPart::qkv, BlockPart::mlp}) {
    if (by_token && form.repeats(part) && !form.gathered(part)) ++calls[0];
  }
  if (form.slices_input) ++calls[0];
  if (form.repeats(BlockPart::projection)) ++calls[by_token ? 2 : 1];
  constexpr const char* operations[] = {"all_gather", "all_reduce", "reduce_scatter"};
  const std::int64_t bytes = plan.local.tokens * plan.model.hidden * size_of(plan.compute);
  double seconds = 0;
  for (int kind = 0; kind < 3 && plan.mesh.tp > 1; ++kind) {
    if (calls[kind] == 0) continue;
    CollectiveUse use;
    use.operation = operations[kind];
    use.ranks = plan.mesh.tp;
    use.count = calls[kind];
    use.bytes = calls[kind] * bytes;
    seconds += wire_seconds(use, rates);
  }
  return seconds;
}

}  // namespace trainctl
