#include "nn/attention.h"

#include "base/at.h"
#include "base/text.h"
#include "nn/stage.h"
#include "ops/activation.h"
#include "ops/elementwise.h"
#include "ops/rope.h"
#include "plan/model/attention.h"

namespace trainctl {

namespace {

/// View of x [tokens, heads * head_dim] as [tokens * heads, head_dim], one row per head.
Tensor by_head(const Tensor& x, std::int64_t head_dim) {
  return x.view({x.numel() / head_dim, head_dim});
}

Tensor by_query(const Attention::Saved& saved) {
  return saved.logsumexp.view({saved.shape.sequences, saved.shape.heads, saved.shape.query_length});
}

}  // namespace

AttentionDropout Attention::dropout_of(const Pass& pass) const {
  if (!pass.training || dropout == 0) return {};
  return {.key = {.state = pass.state, .site = dropout_site, .probability = dropout},
          .global_token = pass.batch.query_token.empty()
                              ? pass.batch.global_token
                              : context.local_queries(pass.batch.query_token),
          .first_head = first_head,
          .heads_total = heads,
          .seq_length = seq_length};
}

Attention::Saved Attention::remember(const Pass& pass, Saved saved) const {
  const KeyValueCache& cache = *pass.cache;
  const std::int64_t seen = cache.seen;
  const std::int64_t all = seen + saved.k.rows();
  pass.ops->stream->copy(cache.keys[layer].slice(seen, all), saved.k);
  pass.ops->stream->copy(cache.values[layer].slice(seen, all), saved.v);
  saved.keys = cache.keys[layer].slice(0, all);
  saved.values = cache.values[layer].slice(0, all);
  saved.shape.key_length = all;
  saved.shape.query_offset = seen;
  return saved;
}

void Attention::forward(const Pass& pass, const Saved& saved) const {
  project(pass, saved, true);
  if (pass.cache == nullptr) {
    attend(pass, saved);
  } else {
    attend(pass, remember(pass, saved));
  }
  finish(pass, saved);
}

void Attention::project(const Pass& pass, const Saved& saved, bool gathers) const {
  const std::int64_t head_dim = saved.shape.head_dim;
  gathered_products(pass, enter, saved, gathers, [&](Range rows) {  // [S, H] -> [T, H]
    forward_together(pass, rows.of(saved.all_x),
                     {{v, rows.of(saved.v)},
                      {k, rows.of(saved.k_raw)},
                      {q, rows.of(saved.q_raw)},
                      {gate, gate.weight.empty() ? Tensor{} : rows.of(saved.gate)}});
  });
  if (!norm_after_rope) norm_forward(pass, saved);
  const bool raw = norm_after_rope && !q_norm.empty();
  rope_both(pass, raw ? saved.q_raw : saved.q, raw ? saved.k_raw : saved.k, head_dim, false);
  if (norm_after_rope) norm_forward(pass, saved);
  if (!temperature_table.empty()) turn(pass, saved.q, temperature_table, head_dim, false);
  if (!exchanges_heads()) return;
  to_heads.forward(pass, saved.q, saved.queries);
  to_heads.forward(pass, saved.k, saved.keys);
  to_heads.forward(pass, saved.v, saved.values);
}

void Attention::turn(const Pass& pass, const Tensor& x, const Tensor& table, std::int64_t head_dim,
                     bool back) const {
  rope(*pass.ops, {.x = x,
                   .position = pass.tokens_of(split).position,
                   .table = table,
                   .head_dim = head_dim,
                   .inverse = back,
                   .adjacent = adjacent});
}

void Attention::rope_both(const Pass& pass, const Tensor& of_q, const Tensor& of_k,
                          std::int64_t head_dim, bool back) const {
  if (rope_table.empty()) return;
  turn(pass, of_q, rope_table, head_dim, back);
  turn(pass, of_k, rope_table, head_dim, back);
}

Tensor Attention::norm_rows(const Tensor& x, std::int64_t head_dim) const {
  return whole_norm ? x : by_head(x, head_dim);
}

struct Attention::NormPair {
  Norm::Saved q, k;
};

Attention::NormPair Attention::norm_pair(const Pass& pass, const Saved& saved, const Tensor& dq,
                                         const Tensor& dk) const {
  const auto rows = [&](const Tensor& x) { return norm_rows(x, saved.shape.head_dim); };
  NormPair pair{{rows(saved.q_raw), rows(saved.q), {}, saved.q_rstd},
                {rows(saved.k_raw), rows(saved.k), {}, saved.k_rstd}};
  if (norm_group == nullptr) return pair;
  const std::int64_t tokens = saved.norm_sums.columns();
  const auto sums = [&](std::int64_t row) {
    return saved.norm_sums.slice(row, row + 1).view({tokens});
  };
  pair.q.sums = sums(0);
  pair.k.sums = sums(1);
  q_norm.add_up(pass, pair.q, dq);
  k_norm.add_up(pass, pair.k, dk);
  norm_group->all_reduce(saved.norm_sums, *pass.ops->stream);
  return pair;
}

void Attention::norm_forward(const Pass& pass, const Saved& saved) const {
  if (q_norm.empty()) return;
  const NormPair pair = norm_pair(pass, saved, {}, {});
  q_norm.forward(pass, pair.q);
  k_norm.forward(pass, pair.k);
}

void Attention::norm_backward(const Pass& pass, const Saved& saved, const Gradients& g) const {
  if (q_norm.empty()) return;
  const auto rows = [&](const Tensor& x) { return norm_rows(x, saved.shape.head_dim); };
  const NormPair pair = norm_pair(pass, saved, rows(g.dq), rows(g.dk));
  q_norm.backward(pass, pair.q, rows(g.dq), {}, rows(g.dq));
  k_norm.backward(pass, pair.k, rows(g.dk), {}, rows(g.dk));
}

/// This rank's heads in pass.largest_scores; empty if the pass does not ask for scores.
Tensor Attention::scores_at_work(const Pass& pass, const AttentionShape& shape) const {
  if (!pass.training || pass.largest_scores.empty()) return {};
  const auto row = static_cast<std::int64_t>(layer);
  const Tensor of_layer = pass.largest_scores.slice(row, row + 1).view({heads});
  return of_layer.slice(first_head, first_head + shape.heads);
}

AttentionArgs Attention::arguments(const Pass& pass, const Saved& saved) const {
  return {.shape = saved.shape,
          .q = saved.queries,
          .k = saved.keys,
          .v = saved.values,
          .first_position = first_position(pass),
          .dropout = dropout_of(pass),
          .out = saved.attended,
          .logsumexp = by_query(saved)};
}

void Attention::attend(const Pass& pass, const Saved& saved) const {
  if (pass.dropped && pass.training && dropout > 0) pass.dropped(dropout_site, dropout, {});
  AttentionArgs args = arguments(pass, saved);
  args.largest = scores_at_work(pass, saved.shape);
  args.real = real_queries(pass);
  shared_keys.forward(pass, args, saved.shared);
  if (pass.training && !pass.largest_logit.empty()) {
    largest(*pass.ops, {.x = by_query(saved),
                        .key = pass.largest_logit,
                        .real = real_queries(pass),
                        .shape = shared_keys.of_queries(saved.shape)});
  }
  if (!sinks.empty()) {
    attention_sink_forward(*pass.ops, {.shape = shared_keys.of_queries(saved.shape),
                                       .sinks = sinks_at_work(sinks.value, saved.shape),
                                       .out = saved.attended,
                                       .logsumexp = by_query(saved)});
  }
  if (exchanges_heads()) from_heads.forward(pass, saved.attended, saved.context);
}

Tensor Attention::output_input(const Pass& pass, const Saved& saved) const {
  if (gate.weight.empty()) return saved.context;
  activation_forward(
      *pass.ops,
      {.kind = Activation::sigmoid, .x = saved.gate, .y = saved.gated, .up = saved.context});
  return saved.gated;
}

void Attention::finish(const Pass& pass, const Saved& saved) const {
  const Tensor input = output_input(pass, saved);
  // saved.partial [T, H] is summed over the ranks into saved.y [S, H].
  leave.forward_after(pass, saved.partial, saved.y,
                      [&](Range rows, const Tensor& to) { out.forward(pass, rows.of(input), to); });
}

void Attention::backward_attend(const Pass& pass, const Saved& saved, const Gradients& g) const {
  if (exchanges_heads()) from_heads.backward(pass, g.d_context, g.d_attended);
  if (!sinks.empty()) {
    attention_sink_backward(*pass.ops, {.shape = shared_keys.of_queries(saved.shape),
                                        .sinks = sinks_at_work(sinks.value, saved.shape),
                                        .out = saved.attended,
                                        .logsumexp = by_query(saved),
                                        .d_out = g.d_attended,
                                        .d_sinks = sinks_at_work(sinks.gradient, saved.shape)});
  }
  AttentionArgs args = arguments(pass, saved);
  args.d_out = g.d_attended;
  args.dq = g.d_queries;
  args.dk = g.d_keys;
  args.dv = g.d_values;
  shared_keys.backward(pass, args, saved.shared);
  if (!exchanges_heads()) return;
  to_heads.backward(pass, g.d_queries, g.dq);
  to_heads.backward(pass, g.d_keys, g.dk);
  to_heads.backward(pass, g.d_values, g.dv);
}

void Attention::backward_input(const Pass& pass, const Saved& saved, const Gradients& g) const {
  out.backward_part_bias(pass, g.dy, g.all_dy);
  leave.backward_then(pass, g.dy, g.all_dy, [&](Range rows) {
    out.backward_input(pass, rows.of(g.all_dy), rows.of(g.d_context));
  });
  if (!gate.weight.empty()) {
    activation_backward(*pass.ops, {.kind = Activation::sigmoid,
                                    .x = saved.gate,
                                    .dy = g.d_context,
                                    .dx = g.d_gate,
                                    .up = saved.context,
                                    .dup = g.d_context});
  }
  backward_attend(pass, saved, g);
  const std::int64_t head_dim = saved.shape.head_dim;
  if (!temperature_table.empty()) turn(pass, g.dq, temperature_table, head_dim, true);
  if (norm_after_rope) norm_backward(pass, saved, g);
  rope_both(pass, g.dq, g.dk, head_dim, true);
  if (!norm_after_rope) norm_backward(pass, saved, g);
  const auto input = [&](Range rows, const Tensor& to) {
    q.backward_input(pass, rows.of(g.dq), to);
    k.backward_input(pass, rows.of(g.dk), to, true);
    v.backward_input(pass, rows.of(g.dv), to, true);
    if (!gate.weight.empty()) gate.backward_input(pass, rows.of(g.d_gate), to, true);
  };
  gathered_backward_input(pass, enter, saved, g, input, [&] { add_first_weights(pass, saved, g); });
}

void Attention::add_first_weights(const Pass& pass, const Saved& saved, const Gradients& g) const {
  backward_parameters_together(pass, saved.all_x,
                               {{v, g.dv}, {k, g.dk}, {q, g.dq}, {gate, g.d_gate}});
}

void Attention::backward_weight(const Pass& pass, const Saved& saved, const Gradients& g) const {
  gathered_backward_weight(
      pass, enter, saved,
      [&] { out.backward_whole_weight(pass, g.dy, g.all_dy, output_input(pass, saved)); },
      [&] { add_first_weights(pass, saved, g); });
}

namespace {

void set_head_exchange(Attention& layer, const StageInput& input) {
  const bool by_tokens = layer.split == SplitBy::tokens;
  Reshard& there = layer.to_heads;
  there.group = by_tokens ? input.tp.group : layer.context.heads;
  there.at_once = !by_tokens || input.splits.moves_at_once;
  there.packed = layer.context.packed;
  layer.from_heads = there;
  there.way.from = layer.from_heads.way.to = Layout::tokens;
  there.way.to = layer.from_heads.way.from = Layout::features;
}

/// `made` is the number of heads that this rank's projections produce.
void set_first_head(Attention& layer, const Group& tp, std::int64_t made) {
  const std::int64_t rank = layer.split == SplitBy::whole ? 0 : tp.rank();
  const std::int64_t own = layer.split == SplitBy::tokens ? made / tp.size() : made;
  const ContextParallel& context = layer.context;
  layer.first_head = rank * own + context.rank % context.split.heads * (own / context.split.heads);
}

void set_norms(Attention& layer, const StageInput& input, const AttentionForm& form,
               const std::string& name) {
  const ModelShape& model = input.model;
  const TensorParallel& tp = input.tp;
  layer.whole_norm = form.whole_qk_norm;
  layer.norm_after_rope = model.qk_norm_after_rope;
  if (!form.qk_norm) return;
  const auto norm = [&](const char* own) {
    return form.qk_weights ? make_norm(input.weights, name + own, NormKind::rms_norm, model)
                           : make_unweighted_norm(model);
  };
  layer.q_norm = norm(".q_norm");
  layer.k_norm = norm(".k_norm");
  // A key head that several ranks hold is counted once per rank, in the sums as in the number of
  // features; each of these ranks computes its part of the gradient of that sum.
  if (form.whole_qk_norm && layer.split == SplitBy::features && tp.group->size() > 1) {
    layer.norm_group = tp.group;
    layer.q_norm.features = layer.q.weight.value.rows() * tp.group->size();
    layer.k_norm.features = layer.k.weight.value.rows() * tp.group->size();
  }
}

}  // namespace

Attention make_attention(const StageInput& input, std::int64_t number) {
  const ModelShape& model = input.model;
  const WeightSource& weights = input.weights;
  const TensorParallel& tp = input.tp;
  const int unit = static_cast<int>(number) + 1;
  const BlockSplit split = input.splits.of_unit(unit);
  const LayerForm of_layer = layer_form(model, number);
  const AttentionForm& form = of_layer.attention;
  const Exchanges exchanges = attention_exchanges(of_layer, tp.share(split));
  const std::string name = formatted("layers.{}.attention", number);
  Attention layer;
  layer.split = split.attention;
  layer.q = make_linear(weights, name + ".q", model.qkv_bias);
  layer.k = make_linear(weights, name + ".k", model.qkv_bias);
  layer.v = make_linear(weights, name + ".v", model.qkv_bias);
  layer.out = make_row_linear(weights, name + ".out", model.out_bias, tp, layer.split);
  layer.enter = tp.along(exchanges.front());
  layer.leave = tp.along(exchanges.back());
  if (form.output_gate) layer.gate = make_linear(weights, name + ".gate", false);
  if (form.sinks) layer.sinks = weights(name + ".sinks.weight");
  set_norms(layer, input, form, name);
  layer.adjacent = form.rope >= 0 && at(model.ropes, form.rope).interleaved;
  if (form.rope >= 0) layer.rope_table = at(input.rope_tables, form.rope);
  if (form.temperature >= 0) {
    layer.temperature_table = at(input.temperature_tables, form.temperature);
  }
  layer.dropout = static_cast<float>(model.attention_dropout);
  layer.dropout_site = 1 + 3 * number;
  layer.context = input.context(unit);
  set_head_exchange(layer, input);
  layer.shared_keys = SharedKeys(layer.context, input.micro_batch_size);
  set_first_head(layer, *tp.group, layer.q.weight.value.rows() / model.head_dim);
  layer.heads = model.heads;
  layer.seq_length = model.seq_length;
  layer.layer = static_cast<std::size_t>(number);
  return layer;
}

}  // namespace trainctl
