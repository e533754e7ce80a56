#include "plan/model/attention.h"

namespace trainctl {

namespace {

using enum GroupOperation;

void append(LayerCalls& calls, const LayerCalls& more) {
  calls.insert(calls.end(), more.begin(), more.end());
}

/// Exchanges of the heads of `rows` tokens, like `like`: to heads with `part`, and back in B.
LayerCalls calls_of_heads(const LayerShare& share, LayerCall like, std::int64_t rows) {
  like.cargo = Cargo::heads;
  like.rows = rows;
  like.type = share.compute;
  LayerCalls calls;
  const auto add = [&](std::int64_t width, std::int64_t count, std::optional<BlockPart> part) {
    LayerCall& one = calls.emplace_back(like);
    one.width = width;
    one.count = count;
    one.part = part;
    one.backward = !part;
  };
  add(share.local.q, 1, BlockPart::qkv);
  add(share.local.q, 1, BlockPart::attention);
  add(share.local.q, 2, {});
  add(share.local.kv, 2, BlockPart::qkv);
  add(share.local.kv, 2, {});
  return calls;
}

/// Transfers of keys and values of this rank's tokens: `forward` messages or gathers in F,
/// `backward` ones in B.
LayerCalls calls_of_keys(const LayerShare& share, LayerCall like, std::int64_t forward,
                         std::int64_t backward) {
  like.cargo = Cargo::keys_and_values;
  like.width = share.local.kv / share.local.head_ranks;
  like.type = share.compute;
  LayerCalls calls;
  if (forward > 0) {
    calls.push_back(like);
    calls.back().part = BlockPart::attention;
    calls.back().count = forward;
  }
  calls.push_back(like);
  calls.back().backward = true;
  calls.back().count = backward;
  return calls;
}

bool divides_norm(const LayerForm& form, const LayerShare& share) {
  return form.attention.qk_norm && form.attention.whole_qk_norm && share.mesh.tp > 1 &&
         share.split.attention == SplitBy::features;
}

}  // namespace

AttentionRows<RowSpec> attention_rows(const LayerForm& form, const LayerShare& share,
                                      const BlockForm& kept) {
  const LocalShape& local = share.local;
  const std::int64_t own = local.attention_rows;
  const std::int64_t tokens = share.attended_tokens();
  const auto row = [&](std::int64_t rows, std::int64_t width, BlockPart part,
                       Life life = life::for_backward) {
    return RowSpec{{rows, width}, share.compute, life, part};
  };
  const auto statistic = [](std::int64_t rows, BlockPart part) {
    return RowSpec{{rows}, DType::f32, life::statistic, part};
  };
  AttentionRows<RowSpec> rows;
  if (gathers(share.stream, share.split.attention) && kept.gathered(BlockPart::qkv)) {
    rows.gathered = {{local.tokens, form.hidden}, share.compute, life::for_weight};
  }
  rows.v = rows.k = row(tokens, share.attended_kv(), BlockPart::qkv);
  rows.q = row(tokens, share.attended_q(), BlockPart::qkv);
  if (form.attention.output_gate) rows.gate = row(own, local.q, BlockPart::qkv, life::for_weight);
  if (form.attention.qk_norm) {
    rows.k_raw = row(own, local.kv, BlockPart::qkv);
    rows.q_raw = row(own, local.q, BlockPart::qkv);
    const bool whole = form.attention.whole_qk_norm;
    rows.q_rstd = statistic(own * (whole ? 1 : local.heads), BlockPart::qkv);
    rows.k_rstd = statistic(own * (whole ? 1 : local.kv_heads), BlockPart::qkv);
  }
  if (share.head_ranks() > 1) rows.attended = row(tokens, share.attended_q(), BlockPart::attention);
  rows.context = row(own, local.q, BlockPart::attention, life::for_weight);
  rows.logsumexp = statistic(own * local.heads, BlockPart::attention);
  return rows;
}

AttentionRows<RowSpec> attention_gradients(const LayerForm& form, const LayerShare& share) {
  const LocalShape& local = share.local;
  const auto row = [&](std::int64_t width) {
    return RowSpec{{local.attention_rows, width}, share.compute, life::output_gradient};
  };
  return {.v = row(local.kv),
          .k = row(local.kv),
          .q = row(local.q),
          .gate = form.attention.output_gate ? row(local.q) : RowSpec{}};
}

AttentionScratch<RowSpec> attention_scratch(const LayerForm& form, const LayerShare& share) {
  const LocalShape& local = share.local;
  const ContextSplit& split = share.context;
  const std::int64_t own = local.attention_rows;
  const std::int64_t tokens = share.attended_tokens();
  const auto row = [&](std::int64_t rows, std::int64_t width) {
    return RowSpec{{rows, width}, share.compute, life::shared};
  };
  AttentionScratch<RowSpec> rows;
  rows.d_context = row(own, local.q);
  if (form.attention.output_gate) rows.gated = row(own, local.q);
  if (divides_norm(form, share)) rows.norm_sums = {{2, own}, DType::f32, life::shared};
  if (split.ring * split.gather > 1) {
    const std::int64_t held = split.ring > 1 ? 2 : split.gather;
    rows.k = rows.v = rows.d_k = rows.d_v = row(held * tokens, share.attended_kv());
  }
  if (split.ring > 1) {
    rows.part_q = row(tokens, share.attended_q());
    rows.part_k = rows.part_v = row(tokens, share.attended_kv());
    rows.part_logsumexp = {{share.attended_heads()}, DType::f32, life::shared};
  }
  if (share.head_ranks() == 1) return rows;
  rows.local_v = rows.local_k = row(own, local.kv);
  rows.local_q = row(own, local.q);
  rows.d_attended = row(tokens, share.attended_q());
  const bool gathers = local.head_ranks > 1 && !share.moves_heads_at_once;
  rows.packed = row(own * (gathers ? local.head_ranks : 1), local.q);
  return rows;
}

Products attention_products(const LayerForm& form, const LocalShape& local) {
  const std::int64_t rows = local.attention_rows;
  Products products{{BlockPart::qkv, rows, form.hidden, local.q},
                    {BlockPart::qkv, rows, form.hidden, local.kv},
                    {BlockPart::qkv, rows, form.hidden, local.kv}};
  const bool gate = form.attention.output_gate;
  if (gate) products.push_back({BlockPart::qkv, rows, form.hidden, local.q});
  products.push_back({BlockPart::attention, rows, 0, local.q, 0, form.keys, form.attention.limits});
  if (gate) products.push_back({BlockPart::projection, rows, 0, local.q});
  products.push_back({BlockPart::projection, rows, local.q, form.hidden, local.stream_rows});
  return products;
}

Exchanges attention_exchanges(const LayerForm& form, const LayerShare& share) {
  return region_exchanges(form, share, Cargo::attention, BlockPart::qkv, BlockPart::projection,
                          share.split.attention, share.overlap.attention);
}

LayerCalls attention_head_calls(const LayerShare& share) {
  if (share.split.attention != SplitBy::tokens) return {};
  const bool at_once = share.moves_heads_at_once;
  const std::int64_t parts = at_once ? 1 : share.local.head_ranks;
  return calls_of_heads(share,
                        {.operation = at_once ? all_to_all : all_gather,
                         .group = tensor_group,
                         .ranks = share.mesh.tp},
                        share.local.attention_rows * parts);
}

LayerCalls attention_norm_calls(const LayerForm& form, const LayerShare& share) {
  if (!divides_norm(form, share)) return {};
  LayerCall call{.operation = all_reduce,
                 .cargo = Cargo::norm_sums,
                 .group = tensor_group,
                 .ranks = share.mesh.tp,
                 .part = BlockPart::qkv,
                 .rows = share.local.attention_rows,
                 .width = 2};
  LayerCalls calls{call};
  call.part = {};
  call.backward = true;
  calls.push_back(call);
  return calls;
}

LayerCalls attention_context_calls(const LayerShare& share) {
  const ContextSplit& split = share.context;
  const std::int64_t tokens = share.local.tokens;
  LayerCalls calls;
  if (split.heads > 1) {
    append(calls,
           calls_of_heads(
               share, {.operation = all_to_all, .group = heads_kind(split), .ranks = split.heads},
               tokens));
  }
  if (split.ring > 1) {
    // Keys and values are separate messages to the next rank, sent while this rank works on the
    // present ones; in B their gradients follow.
    const std::int64_t messages = 2 * (split.ring - 1);
    for (const GroupOperation operation : {send, receive}) {
      append(calls, calls_of_keys(share,
                                  {.operation = operation,
                                   .group = ring_kind(split),
                                   .ranks = split.ring,
                                   .rows = tokens},
                                  messages, 2 * messages));
    }
  }
  if (split.gather > 1) {
    LayerCall all{
        .group = group_over({Axis::cp}), .ranks = share.mesh.cp, .rows = split.gather * tokens};
    append(calls, calls_of_keys(share, all, 2, 2));  // in B, keys and values are gathered again,
    all.operation = reduce_scatter;
    append(calls, calls_of_keys(share, all, 0, 2));  // and their gradients are summed
  }
  return calls;
}

}  // namespace trainctl
