#include "plan/model/experts.h"

#include <initializer_list>

#include "plan/tables/mesh.h"

namespace trainctl {

namespace {

RowSpec scratch_row(const Shape& shape, DType type) { return {shape, type, life::shared}; }

/// The rows sent between ranks, with lifetime `life`.
ExpertTransit<RowSpec> transit_with(Life life, const LayerForm& form, const LayerShare& share) {
  const LocalShape& local = share.local;
  const auto row = [&](const Shape& shape, DType type) {
    return RowSpec{shape, type, life, BlockPart::mlp};
  };
  return {.sent = row({local.routed_rows, form.hidden}, share.compute),
          .sent_weight = row({local.routed_rows}, DType::f32),
          .received = row({local.gathered_rows, form.hidden}, share.compute),
          .received_weight = row({local.gathered_rows}, DType::f32),
          .place = row({local.gathered_rows}, DType::i32)};
}

Shape counts_shape(const LayerForm& form, const LayerShare& share) {
  return {share.expert_ranks(), form.experts};
}

}  // namespace

ExpertRows<RowSpec> expert_rows(const LayerForm& form, const LayerShare& share) {
  const LocalShape& local = share.local;
  const auto routed = [](const Shape& shape, DType type, Life life = life::for_backward) {
    return RowSpec{shape, type, life, BlockPart::mlp};
  };
  const auto counted = [](const Shape& shape, DType type) {
    return RowSpec{shape, type, life::host_counts};
  };
  ExpertRows<RowSpec> rows;
  rows.logits = routed({local.routed_tokens, form.experts}, DType::f32);
  rows.chosen = rows.slot = routed({local.routed_tokens, form.topk}, DType::i32);
  rows.choices = routed({local.counted_rows, form.experts}, DType::i32);
  rows.rows = routed({local.expert_rows, form.hidden}, share.compute, life::for_weight);
  rows.row_weight = routed({local.expert_rows}, DType::f32, life::for_weight);
  rows.mlp = feed_forward_rows(local.expert_rows, local.expert_ffn, form.gated, share.compute);
  rows.counts = counted(counts_shape(form, share), DType::i64);
  if (share.expert_ranks() == 1) return rows;
  rows.places = counted({local.gathered_rows}, DType::i32);
  rows.exchanged = counted({2, share.mesh.ep}, DType::i64);
  return rows;
}

ExpertTransit<RowSpec> expert_transit(const LayerForm& form, const LayerShare& share) {
  if (!share.exchange.beside_passes) return {};
  return transit_with(life::each_pass, form, share);
}

ExpertRows<RowSpec> expert_gradients(const LayerForm& form, const LayerShare& share) {
  const LocalShape& local = share.local;
  return {.logits = {{local.stream_rows, form.experts}, DType::f32, life::output_gradient},
          .rows = {{local.expert_rows, form.hidden}, share.compute, life::output_gradient},
          .mlp = feed_forward_gradients(local.expert_rows, local.expert_ffn, form.gated,
                                        share.compute)};
}

FeedForwardRows<RowSpec> shared_expert_rows(const LayerForm& form, const LayerShare& share) {
  const LocalShape& local = share.local;
  if (form.shared_ffn == 0) return {};
  return feed_forward_rows(local.tokens, local.shared_ffn, form.gated, share.compute);
}

FeedForwardRows<RowSpec> shared_expert_gradients(const LayerForm& form, const LayerShare& share) {
  const LocalShape& local = share.local;
  if (form.shared_ffn == 0) return {};
  return feed_forward_gradients(local.tokens, local.shared_ffn, form.gated, share.compute);
}

namespace {

bool has_shared_gate(const LayerForm& form) { return form.shared_ffn > 0 && form.shared_gate; }

}  // namespace

RowSpec shared_gate_logit(const LayerForm& form, const LayerShare& share) {
  if (!has_shared_gate(form)) return {};
  return {{share.local.tokens, 1}, DType::f32, life::for_weight, BlockPart::mlp};
}

RowSpec shared_gate_gradient(const LayerForm& form, const LayerShare& share) {
  if (!has_shared_gate(form)) return {};
  return {{share.local.stream_rows, 1}, DType::f32, life::output_gradient};
}

ExpertScratch<RowSpec> expert_scratch(const LayerForm& form, const LayerShare& share) {
  const LocalShape& local = share.local;
  const ExchangeRule& rule = share.exchange;
  ExpertScratch<RowSpec> rows;
  rows.weight = scratch_row({local.routed_tokens, form.topk}, DType::f32);
  rows.sent_counts = scratch_row(counts_shape(form, share), DType::i64);
  rows.out = scratch_row({local.expert_rows, form.hidden}, share.compute);
  rows.scaled = scratch_row({local.expert_rows, local.expert_ffn}, share.compute);
  rows.d_row_weight = scratch_row({local.expert_rows}, DType::f32);
  if (form.shared_gate) {
    rows.shared_scaled = scratch_row({local.tokens, local.shared_ffn}, share.compute);
  }
  if (local.routing_ranks > 1) {
    const std::int64_t all = local.routing_ranks * local.routed_tokens;
    rows.all_logits = scratch_row({all, form.experts}, DType::f32);
    rows.all_chosen = rows.all_slot = scratch_row({all, form.topk}, DType::i32);
    rows.all_weight = scratch_row({all, form.topk}, DType::f32);
  }
  if (share.expert_ranks() > 1 && !rule.beside_passes) {
    rows.transit = transit_with(life::shared, form, share);
  }
  if (rule.parts > 1 && share.fp32_sums) {
    rows.sum = scratch_row({local.gathered_rows, form.hidden}, DType::f32);
  }
  if (share.stream == Layout::tokens) {
    if (!rule.by_stream) {
      rows.all_d_logits = scratch_row({local.tokens, form.experts}, DType::f32);
    } else if (form.shared_ffn > 0) {
      rows.shared_y = scratch_row({local.stream_rows, form.hidden}, share.compute);
    }
    if (form.shared_gate) rows.shared_all_d_logit = scratch_row({local.tokens, 1}, DType::f32);
  }
  if (share.compute == DType::f32) return rows;
  rows.wide = scratch_row({local.stream_rows, form.hidden}, DType::f32);
  rows.narrow = scratch_row({local.stream_rows, form.hidden}, share.compute);
  return rows;
}

Products router_products(const LayerForm& form, const LocalShape& local) {
  Products products{{{}, local.stream_rows, form.hidden, form.experts}};
  if (form.shared_gate) products.push_back({{}, local.stream_rows, form.hidden, 1});
  return products;
}

Products routed_products(const LayerForm& form, const LocalShape& local) {
  const std::int64_t rows = local.met_tokens * form.topk;
  Products products = feed_forward_products(rows, form.hidden, local.expert_ffn, form.gated);
  products.insert(products.begin(), {BlockPart::mlp, rows, 0, form.hidden});
  for (Product& one : products) one.experts = local.experts;
  return products;
}

Products shared_products(const LayerForm& form, const LocalShape& local) {
  if (form.shared_ffn == 0) return {};
  return feed_forward_products(local.tokens, form.hidden, local.shared_ffn, form.gated);
}

Exchanges expert_exchanges(const LayerForm& form, const LayerShare& share) {
  if (!form.needs_all(share.exchange.by_stream)) return {};
  Exchanges exchanges =
      region_exchanges(form, share, Cargo::experts, BlockPart::mlp, {}, SplitBy::features);
  // W of routed experts reads the rows kept in ExpertRows.
  if (form.shared_ffn == 0) exchanges.front().again_in_weight = false;
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
  Exchanges exchanges;
  if (!share.exchange.by_stream) exchanges.push_back(of_tokens(Cargo::router, form.experts));
  if (form.shared_gate) exchanges.push_back(of_tokens(Cargo::shared_gate, 1));
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
                     .width = form.experts,
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

/// A call for rows, or for their weights (width 1).
struct RowCall {
  GroupOperation operation;
  bool backward, returns;
  std::int64_t rows, width;
  DType type;
};

/// R repeats the calls to the experts in F together with the first products.
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
