#include "nn/shared_keys.h"

#include "base/at.h"
#include "base/time_spent.h"
#include "ops/elementwise.h"

namespace trainctl {

namespace {

constexpr int key_tag = 0;
constexpr int gradient_tag = 2;

/// Runs of the tokens of ranks [first, first + count), whose rows are stored rank after rank.
std::vector<TokenRun> runs_of(const TokenPieces& tokens, std::int64_t sequences, std::int64_t first,
                              std::int64_t count) {
  std::vector<TokenRun> runs;
  for (std::int64_t rank = 0; rank < count; ++rank) {
    for (std::int64_t piece = 0; piece < tokens.pieces(); ++piece) {
      runs.push_back(
          {.position = tokens.position(first + rank, piece),
           .row = rank * sequences * tokens.rank_length() + piece * tokens.piece_length()});
    }
  }
  return runs;
}

/// Half `number` of a double buffer.
Tensor half(const Tensor& both, int number) {
  const std::int64_t rows = both.rows() / 2;
  return both.slice(number * rows, (number + 1) * rows);
}

SharedKeys::Pair half(const SharedKeys::Pair& both, int number) {
  return {half(both.k, number), half(both.v, number)};
}

void add_to(const Pass& pass, const Tensor& sum, const Tensor& more) {
  add(*pass.ops, {.a = sum, .b = more, .y = sum});
}

}  // namespace

/// A layer with fewer ranks per neighbourhood takes its part of the queries of the batch.
Tensor ContextParallel::local_queries(const Tensor& all) const {
  if (all.empty() || batch_ranks == split.heads) return all;
  const std::int64_t each = all.numel() / batch_ranks;
  const std::int64_t first = rank % batch_ranks / split.heads * split.heads;
  return all.slice(first * each, (first + split.heads) * each);
}

SharedKeys::SharedKeys(const ContextParallel& context, std::int64_t sequences) {
  const ContextSplit& split = context.split;
  if (split.ranks() == 1) return;
  const TokenPieces& tokens = context.tokens;
  gather_ = {.group = context.gather, .way = {.from = Layout::tokens, .to = Layout::replicated}};
  ring_ = context.ring;
  const std::int64_t step = context.length_step > 0 ? context.length_step : tokens.seq_length;
  query_step_ = step * split.heads / split.ranks();
  for (std::int64_t length = step; length < tokens.seq_length; length += step) {
    runs_.push_back(runs_at(context, sequences, length));
  }
  runs_.push_back(runs_at(context, sequences, tokens.seq_length));
}

SharedKeys::Runs SharedKeys::runs_at(const ContextParallel& context, std::int64_t sequences,
                                     std::int64_t length) {
  const ContextSplit& split = context.split;
  TokenPieces tokens = context.tokens;
  tokens.seq_length = length;
  const auto neighbourhood = [&](std::int64_t number, std::int64_t count) {
    return runs_of(tokens, sequences, number * split.heads, count * split.heads);
  };
  Runs runs{.form = {.length = tokens.piece_length(), .stride = tokens.rank_length()},
            .queries = neighbourhood(context.rank / split.heads, 1),
            .keys = {}};
  for (std::int64_t source = 0; source < split.ring; ++source) {
    runs.keys.push_back(neighbourhood(source, split.gather));
  }
  return runs;
}

AttentionShape SharedKeys::shape_with(AttentionShape shape, std::size_t source) const {
  if (runs_.empty()) return shape;
  const Runs& runs = at(runs_, (shape.query_length - 1) / query_step_);
  shape.query_runs = shape.key_runs = runs.form;
  shape.query_runs.runs = runs.queries;
  shape.key_runs.runs = runs.keys[source];
  shape.key_length = shape.key_runs.count() * runs.form.length;
  return shape;
}

std::size_t SharedKeys::source_in(int step) const {
  return static_cast<std::size_t>((ring_->rank() - step + ring_->size()) % ring_->size());
}

void SharedKeys::forward(const Pass& pass, AttentionArgs args, const Buffers& buffers) const {
  if (around_ring()) return forward_around(pass, args, buffers);
  args.shape = shape_with(args.shape, 0);
  if (gather_.group != nullptr) {
    gather_.forward(pass, args.k, buffers.all.k);
    gather_.forward(pass, args.v, buffers.all.v);
    args.k = buffers.all.k;
    args.v = buffers.all.v;
  }
  attention_forward(*pass.ops, args);
}

void SharedKeys::backward(const Pass& pass, AttentionArgs args, const Buffers& buffers) const {
  if (around_ring()) return backward_around(pass, args, buffers);
  args.shape = shape_with(args.shape, 0);
  if (gather_.group == nullptr) return attention_backward(*pass.ops, args);
  gather_.forward(pass, args.k, buffers.all.k);
  gather_.forward(pass, args.v, buffers.all.v);
  AttentionArgs all = args;
  all.k = buffers.all.k;
  all.v = buffers.all.v;
  all.dk = buffers.d_all.k;
  all.dv = buffers.d_all.v;
  attention_backward(*pass.ops, all);
  gather_.backward(pass, all.dk, args.dk);
  gather_.backward(pass, all.dv, args.dv);
}

/// Works on the own block, then on the previous rank's, and so on; merges results in this order.
void SharedKeys::forward_around(const Pass& pass, const AttentionArgs& args,
                                const Buffers& buffers) const {
  Pair block{args.k, args.v};
  for (int step = 0; step < ring_->size(); ++step) {
    const bool last = step + 1 == ring_->size();
    const Pair next = half(buffers.all, (step + 1) % 2);
    Messages messages{};
    if (!last) messages = pass_on(pass, block, next, key_tag);
    AttentionArgs one = args;
    one.shape = shape_with(args.shape, source_in(step));
    one.k = block.k;
    one.v = block.v;
    if (step > 0) {
      one.out = buffers.part_q;
      one.logsumexp = buffers.part_logsumexp.view(args.logsumexp.shape);
    }
    attention_forward(*pass.ops, one);
    if (step > 0) {
      attention_merge(*pass.ops, {.shape = one.shape,
                                  .out = args.out,
                                  .logsumexp = args.logsumexp,
                                  .other = one.out,
                                  .other_logsumexp = one.logsumexp});
    }
    await(pass, messages);
    block = next;
  }
}

/// The gradients of a block follow the block one step later: each rank adds its part to the sum
/// from the previous rank, and the last rank sends the sum to the block's owner.
void SharedKeys::backward_around(const Pass& pass, const AttentionArgs& args,
                                 const Buffers& buffers) const {
  Pair block{args.k, args.v};
  Messages sums{};
  for (int step = 0; step < ring_->size(); ++step) {
    const bool last = step + 1 == ring_->size();
    const Pair next = half(buffers.all, (step + 1) % 2);
    const Pair sum = half(buffers.d_all, step % 2);  // gradient of block for the next rank
    Messages messages{};
    if (!last) messages = pass_on(pass, block, next, key_tag);
    AttentionArgs one = args;
    one.shape = shape_with(args.shape, source_in(step));
    one.k = block.k;
    one.v = block.v;
    const Pair added = step == 0 ? Pair{args.dk, args.dv} : step == 1 ? sum : buffers.part;
    one.dk = added.k;
    one.dv = added.v;
    if (step > 0) one.dq = buffers.part_q;
    attention_backward(*pass.ops, one);
    if (step > 0) {
      add_to(pass, args.dq, one.dq);
      await(pass, sums);
      if (step > 1) {
        add_to(pass, sum.k, added.k);
        add_to(pass, sum.v, added.v);
      }
      sums = pass_on(pass, sum, half(buffers.d_all, (step + 1) % 2), gradient_tag);
    }
    await(pass, messages);
    block = next;
  }
  await(pass, sums);
  const Pair home = half(buffers.d_all, ring_->size() % 2);
  add_to(pass, args.dk, home.k);
  add_to(pass, args.dv, home.v);
}

SharedKeys::Messages SharedKeys::pass_on(const Pass& pass, const Pair& from, const Pair& to,
                                         int tag) const {
  const int next = (ring_->rank() + 1) % ring_->size();
  const int before = (ring_->rank() + ring_->size() - 1) % ring_->size();
  Stream& stream = *pass.ops->stream;
  return {ring_->receive(to.k, before, tag, stream), ring_->receive(to.v, before, tag + 1, stream),
          ring_->send(from.k, next, tag, stream), ring_->send(from.v, next, tag + 1, stream)};
}

void SharedKeys::await(const Pass& pass, const Messages& messages) {
  const AddTime timed(&TimeSpent::collectives);
  for (const Event& message : messages) {
    if (message.stream != nullptr) pass.ops->stream->wait(message);
  }
}

}  // namespace trainctl
