#include "plan/model/attention.h"

namespace trainctl {

namespace {

using enum GroupOperation;

void append(LayerCalls& calls, const LayerCalls& more) {
  calls.insert(calls.end(), more.begin(), more.end());
}

/// `like` with the heads of `rows` tokens: there with the parts that make them, and back.
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

/// Keys and values of this rank's tokens, as attention has them: `forward` messages or gathers in
/// F, `backward` in B.
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

}  // namespace

Products attention_products(const LayerForm& form, const LocalShape& local) {
  const std::int64_t rows = local.attention_rows;
  return {{BlockPart::qkv, rows, form.hidden, local.q},
          {BlockPart::qkv, rows, form.hidden, local.kv},
          {BlockPart::qkv, rows, form.hidden, local.kv},
          {BlockPart::attention, rows, 0, local.q, 0, form.keys},
          {BlockPart::projection, rows, local.q, form.hidden, local.stream_rows}};
}

Exchanges attention_exchanges(const LayerForm& form, const LayerShare& share) {
  return region_exchanges(form, share,
                          {.cargo = Cargo::attention,
                           .first = BlockPart::qkv,
                           .last = BlockPart::projection,
                           .split = share.split.attention,
                           .overlap = share.overlap.attention});
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
    // Each in two messages to the next rank, while this rank works on those it has; in B their
    // gradients follow them.
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
    append(calls, calls_of_keys(share, all, 2, 2));  // B needs them once more,
    all.operation = reduce_scatter;
    append(calls, calls_of_keys(share, all, 0, 2));  // and adds up their gradients
  }
  return calls;
}

}  // namespace trainctl
