#include "plan/model/experts.h"

#include <initializer_list>

#include "plan/model/mlp.h"
#include "plan/tables/groups.h"

namespace trainctl {

Products router_products(const LayerForm& form, const LocalShape& local) {
  const ExpertsForm& experts = form.experts();
  Products products{{{}, local.stream_rows, form.hidden, experts.experts}};
  if (experts.shared_gate) products.push_back({{}, local.stream_rows, form.hidden, 1});
  return products;
}

Products routed_products(const LayerForm& form, const LocalShape& local) {
  const ExpertsForm& experts = form.experts();
  const std::int64_t rows = local.met_tokens * experts.topk;
  Products products = feed_forward_products(rows, form.hidden, local.expert_ffn, experts.gated);
  products.insert(products.begin(), {BlockPart::mlp, rows, 0, form.hidden});
  return products;
}

Products shared_products(const LayerForm& form, const LocalShape& local) {
  const ExpertsForm& experts = form.experts();
  if (experts.shared_ffn == 0) return {};
  return feed_forward_products(local.tokens, form.hidden, local.shared_ffn, experts.gated);
}

Exchanges expert_exchanges(const LayerForm& form, const LayerShare& share) {
  if (!form.experts().needs_all(share.exchange.by_stream)) return {};
  Exchanges exchanges =
      region_exchanges(form, share, {.cargo = Cargo::experts, .first = BlockPart::mlp});
  // Routed experts keep their rows.
  if (form.experts().shared_ffn == 0) exchanges.front().again_in_weight = false;
  return exchanges;
}

Exchanges router_exchanges(const LayerForm& form, const LayerShare& share) {
  const auto of_tokens = [&](Cargo cargo, std::int64_t width) {
    return Exchange{.cargo = cargo,
                    .from = share.stream,
                    .to = Layout::replicated,
                    .elements = share.local.tokens * width,
                    .type = DType::f32,
                    .part = BlockPart::mlp};
  };
  const ExpertsForm& experts = form.experts();
  Exchanges exchanges;
  if (!share.exchange.by_stream) {
    exchanges.push_back(of_tokens(Cargo::router, experts.experts));
  }
  if (experts.shared_gate) exchanges.push_back(of_tokens(Cargo::shared_gate, 1));
  return exchanges;
}

LayerCalls router_calls(const LayerForm& form, const LayerShare& share) {
  const LocalShape& local = share.local;
  const ExchangeRule& rule = share.exchange;
  LayerCalls calls;
  const auto add = [&](Cargo cargo, GroupKind group, std::int64_t ranks, std::int64_t rows,
                       DType type) {
    calls.push_back({.cargo = cargo,
                     .group = group,
                     .ranks = ranks,
                     .part = BlockPart::mlp,
                     .rows = rows,
                     .width = form.experts().experts,
                     .type = type});
  };
  add(Cargo::scores, routers_kind(share.mesh, rule), local.routing_ranks,
      local.routing_ranks * local.routed_tokens, DType::f32);
  add(Cargo::expert_counts, counts_kind(experts_group, rule), share.mesh.ep, share.mesh.ep,
      DType::i64);
  if (rule.parts > 1) {
    add(Cargo::expert_counts, counts_kind(expert_parts_group, rule), rule.parts,
        share.expert_ranks(), DType::i64);
  }
  return calls;
}

namespace {

using enum GroupOperation;

/// Of rows, or of their weights, which have width 1.
struct RowCall {
  GroupOperation operation;
  bool backward, returns;
  std::int64_t rows, width;
  DType type;
};

/// What goes there in F is made again with the first products.
LayerCalls row_calls(const LayerShare& share, const LayerCall& like,
                     std::initializer_list<RowCall> rows) {
  LayerCalls calls;
  for (const RowCall& one : rows) {
    LayerCall& call = calls.emplace_back(like);
    call.operation = one.operation;
    call.backward = one.backward;
    call.returns = one.returns;
    if (!one.backward && !one.returns) call.part = BlockPart::mlp;
    call.rows = one.rows;
    call.width = one.width;
    call.type = one.type;
    call.chunks = share.exchange.chunks;
    call.at_most = true;
  }
  return calls;
}

}  // namespace

LayerCalls expert_part_calls(const LayerForm& form, const LayerShare& share) {
  if (share.exchange.parts == 1) return {};
  const std::int64_t rows = share.local.gathered_rows;
  const DType sum = share.sum_type();
  return row_calls(
      share,
      {.cargo = Cargo::part_rows, .group = expert_parts_group, .ranks = share.exchange.parts},
      {{all_gather, false, false, rows, form.hidden, share.compute},
       {all_gather, false, false, rows, 1, DType::f32},
       {reduce_scatter, false, true, rows, form.hidden, sum},
       {all_gather, true, false, rows, form.hidden, share.compute},
       {reduce_scatter, true, true, rows, form.hidden, sum},
       {reduce_scatter, true, true, rows, 1, DType::f32}});
}

LayerCalls expert_row_calls(const LayerForm& form, const LayerShare& share) {
  const std::int64_t sent = share.local.routed_rows;
  const std::int64_t received = share.local.received_rows;
  return row_calls(share,
                   {.cargo = Cargo::expert_rows, .group = experts_group, .ranks = share.mesh.ep},
                   {{all_to_all, false, false, sent, form.hidden, share.compute},
                    {all_to_all, false, false, sent, 1, DType::f32},
                    {all_to_all, false, true, received, form.hidden, share.compute},
                    {all_to_all, true, false, sent, form.hidden, share.compute},
                    {all_to_all, true, true, received, form.hidden, share.compute},
                    {all_to_all, true, true, received, 1, DType::f32}});
}

}  // namespace trainctl
