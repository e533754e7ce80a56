#include "base/dtype.h"
#include "ops/cpu/attention/pack.h"
#include "ops/cpu/attention/rows.h"
#include "ops/cpu/kernels.h"

namespace trainctl {

namespace {

/// A query block with its state while it is combined with the key blocks of an item.
template <class Dot>
struct BackwardBlock {
  using Unit = typename Dot::Unit;

  QueryBlock place;
  Unit *q, *d_out;                // [block_queries, row_units]
  Unit *q_groups, *d_out_groups;  // [block_queries / depth, padded]
  float* dq;                      // [block_queries, padded], before scaling
  float* logsumexp;               // [block_queries]
  float* mean;                    // [block_queries]: sum of d_out * out
  std::int32_t* first_key;

  BackwardBlock(const HeadSize<Dot>& size, Arena& arena)
      : q(arena.take<Unit>(block_queries * size.row_units())),
        d_out(arena.take<Unit>(block_queries * size.row_units())),
        q_groups(q),
        d_out_groups(d_out),
        dq(arena.take<float>(block_queries * size.padded)),
        logsumexp(arena.take<float>(block_queries)),
        mean(arena.take<float>(block_queries)),
        first_key(arena.take<std::int32_t>(block_queries)) {
    if constexpr (Dot::depth > 1) {
      q_groups = arena.take<Unit>(block_queries / Dot::depth * size.padded);
      d_out_groups = arena.take<Unit>(block_queries / Dot::depth * size.padded);
    }
  }
};

/// The gradients that a pass over query and key blocks computes.
struct Wanted {
  bool queries, keys;
};

template <class Dot, class T>
class BackwardItem {
 public:
  using Unit = typename Dot::Unit;

  /// Allocates memory for the gradients of `key_blocks` blocks of keys.
  BackwardItem(const AttentionArgs& args, Arena& arena, std::int64_t key_blocks)
      : args_(args),
        size_(args.shape.head_dim),
        k_columns_(arena.take<Unit>(size_.row_units() * block_keys)),
        v_columns_(arena.take<Unit>(size_.row_units() * block_keys)),
        k_(arena.take<Unit>(block_keys / Dot::depth * size_.padded)),
        weights_(arena.take<float>(block_queries * block_keys)),
        d_scores_(arena.take<float>(block_queries * block_keys)),
        factors_(arena.take<float>(block_keys)),
        parts_(arena.take<float>(block_keys)),
        blocks_{{size_, arena}, {size_, arena}, {size_, arena}, {size_, arena}},
        dk_(arena.take<float>(key_blocks * block_keys * size_.padded)),
        dv_(arena.take<float>(key_blocks * block_keys * size_.padded)) {
    if constexpr (Dot::depth > 1) {
      d_score_rows_ = arena.take<Unit>(block_queries * block_keys / Dot::depth);
      d_score_groups_ = arena.take<Unit>(block_queries * block_keys / Dot::depth);
      weight_groups_ = arena.take<Unit>(block_queries * block_keys / Dot::depth);
    } else {
      d_score_rows_ = d_scores_;
      d_score_groups_ = d_scores_;
      weight_groups_ = weights_;
    }
  }

  static constexpr std::int64_t blocks_at_once = 4;

  /// Computes dk and dv of the key blocks [keys.begin, keys.end). If these are all keys, also
  /// computes dq of all queries.
  void run_keys(std::int64_t sequence, std::int64_t kv_head, Range keys) {
    const AttentionShape& shape = args_.shape;
    const TokenRuns all_keys = shape.keys();
    const std::int64_t room = (keys.end - keys.begin) * block_keys * size_.padded;
    std::fill(dk_, dk_ + room, 0.0F);
    std::fill(dv_, dv_ + room, 0.0F);
    const std::int64_t blocks = BlockList(shape).size();
    const Wanted wanted{keys.end - keys.begin == key_blocks_of(all_keys), true};
    for (std::int64_t i = 0; i < blocks; i += blocks_at_once) {
      pass(sequence, kv_head, {i, std::min(i + blocks_at_once, blocks)}, keys, wanted);
    }
    for (std::int64_t number = keys.begin; number < keys.end; ++number) {
      const KeyBlock block = key_block(all_keys, sequence, number);
      const std::int64_t slot = (number - keys.begin) * block_keys;
      for (std::int64_t i = 0; i < block.count; ++i) {
        const std::int64_t row = (block.row + i) * shape.kv_heads + kv_head;
        write_row(dk_ + (slot + i) * size_.padded, shape.scale, size_.dim,
                  args_.dk.as<T>() + row * size_.dim);
        write_row(dv_ + (slot + i) * size_.padded, 1.0F, size_.dim,
                  args_.dv.as<T>() + row * size_.dim);
      }
    }
  }

  /// Computes dq for the queries of at most blocks_at_once blocks.
  void run_queries(std::int64_t sequence, std::int64_t kv_head, Range blocks) {
    pass(sequence, kv_head, blocks, {0, key_blocks_of(args_.shape.keys())}, {true, false});
  }

 private:
  /// Combines query blocks with the key blocks [keys.begin, keys.end).
  void pass(std::int64_t sequence, std::int64_t kv_head, Range blocks, Range keys, Wanted wanted) {
    const BlockList list(args_.shape);
    const TokenRuns all_keys = args_.shape.keys();
    const std::int64_t count = blocks.end - blocks.begin;
    std::int64_t end_key = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      blocks_[i].place = list.block(sequence, kv_head, blocks.begin + i);
      end_key = std::max(end_key, blocks_[i].place.end_key());
    }
    if (!wanted.queries && !any_key_before(all_keys, end_key, keys.begin, keys.end)) return;
    std::int64_t begin_key = end_key;
    for (std::int64_t i = 0; i < count; ++i) {
      open(blocks_[i]);
      begin_key = std::min(begin_key, blocks_[i].place.begin_key());
    }
    for (std::int64_t number = keys.begin; number < keys.end; ++number) {
      const KeyBlock here = key_block(all_keys, sequence, number);
      if (here.end() <= begin_key || here.position >= end_key) continue;
      pack_keys(here, kv_head, wanted);
      slot_ = (number - keys.begin) * block_keys;
      for (std::int64_t i = 0; i < count; ++i) {
        const Overlap part = overlap(blocks_[i].place, here);
        if (!part.empty()) add_gradients(blocks_[i], part, wanted);
      }
    }
    for (std::int64_t i = 0; wanted.queries && i < count; ++i) close(blocks_[i]);
  }

  void pack_keys(const KeyBlock& keys, std::int64_t kv_head, Wanted wanted) {
    const HeadRows<T> k(args_.k, keys.row, keys.count, kv_head, size_.dim);
    const HeadRows<T> v(args_.v, keys.row, keys.count, kv_head, size_.dim);
    pack_transposed(k, size_, k_columns_);
    pack_transposed(v, size_, v_columns_);
    if (wanted.queries) pack_row_groups(k, round_up(keys.count, Dot::row_step), size_, k_);
  }

  void open(BackwardBlock<Dot>& block) {
    QueryBlock& place = block.place;
    const std::int64_t rows = place.template rows<Dot>();
    const AttentionShape& shape = args_.shape;
    set_first_keys(args_.first_position, shape.limits, place, block.first_key);
    const HeadRows<T> q(args_.q, place.row, place.count, place.head, size_.dim);
    const HeadRows<T> out(args_.out, place.row, place.count, place.head, size_.dim);
    const HeadRows<T> d_out(args_.d_out, place.row, place.count, place.head, size_.dim);
    pack_rows(q, rows, size_, block.q);
    pack_rows(d_out, rows, size_, block.d_out);
    if constexpr (Dot::depth > 1) {
      pack_row_groups(q, rows, size_, block.q_groups);
      pack_row_groups(d_out, rows, size_, block.d_out_groups);
    }
    std::fill(block.dq, block.dq + rows * size_.padded, 0.0F);
    const float* logsumexp = args_.logsumexp.as<float>() +
                             (place.sequence * shape.heads + place.head) * shape.query_length +
                             place.first;
    std::fill(std::copy(logsumexp, logsumexp + place.count, block.logsumexp),
              block.logsumexp + rows, 0.0F);
    std::fill(block.mean, block.mean + rows, 0.0F);
    for (std::int64_t row = 0; row < place.count; ++row) {
      block.mean[row] = dot_row(d_out.row(row), out.row(row), size_.dim);
    }
  }

  /// The five products of a query block and a key block: first recomputes scores and gradients of
  /// weights, then adds to dq, dv and dk.
  void add_gradients(BackwardBlock<Dot>& block, const Overlap& part, Wanted wanted) {
    const std::int64_t rows = block.place.template rows<Dot>();
    const std::int64_t columns = row_columns(part.columns);  // as read by differentiate_row
    const auto first_row = [&](std::int64_t column) { return part.first_row(column); };
    const auto all_units = [&](std::int64_t) { return Range{0, size_.units}; };
    Dot::template product<SumStart::zero>(
        rows, columns,
        {block.q, size_.row_units(), 1, k_columns_, block_keys, weights_, block_keys}, first_row,
        all_units);
    Dot::template product<SumStart::zero>(
        rows, columns,
        {block.d_out, size_.row_units(), 1, v_columns_, block_keys, d_scores_, block_keys},
        first_row, all_units);
    for (std::int64_t row = 0; row < rows; ++row) differentiate_row(block, part, row);
    const auto row_zero = [](std::int64_t) { return std::int64_t{0}; };
    if (wanted.queries) {
      Dot::template product<SumStart::keep>(
          rows, size_.padded,
          {d_score_rows_, block_keys / Dot::depth, 1, k_, size_.padded, block.dq, size_.padded},
          row_zero, [&](std::int64_t row) {
            const std::int64_t last = part.last(row + Dot::row_step - 1);
            return Range{0, (last + Dot::depth - 1) / Dot::depth};
          });
    }
    if (!wanted.keys) return;
    const std::int64_t at = slot_ * size_.padded;
    const auto seeing_rows = [&](std::int64_t column) {
      return Range{part.first_row(column) / Dot::depth,
                   (block.place.count + Dot::depth - 1) / Dot::depth};
    };
    Dot::template product<SumStart::keep>(
        part.columns, size_.padded,
        {weight_groups_, 1, block_keys, block.d_out_groups, size_.padded, dv_ + at, size_.padded},
        row_zero, seeing_rows);
    Dot::template product<SumStart::keep>(
        part.columns, size_.padded,
        {d_score_groups_, 1, block_keys, block.q_groups, size_.padded, dk_ + at, size_.padded},
        row_zero, seeing_rows);
  }

  /// Converts a row of scores and gradients of weights in place to weights and score gradients.
  void differentiate_row(const BackwardBlock<Dot>& block, const Overlap& part, std::int64_t row) {
    float* weights = weights_ + row * block_keys;
    float* d_scores = d_scores_ + row * block_keys;
    const std::int64_t last = part.last(row);
    const std::int64_t first = part.first(block.place, row);
    std::int64_t columns = 0;
    if (first < last) {
      columns = score_weights(weights, first, last, block.logsumexp[row]);
      if (args_.dropout.key.probability > 0.0F) {
        fill_factors(args_.dropout, block.place, row, part.key, columns, factors_);
        differentiate(weights, d_scores, factors_, block.mean[row], columns);
      } else {
        differentiate(weights, d_scores, block.mean[row], columns);
      }
      if (args_.shape.cap > 0) differentiate_cap(parts_, d_scores, columns);
    }
    // Zeroes up to the columns of the later row, since products read pairs of rows.
    const std::int64_t padded = padded_columns<Dot>(part.last(row | 1));
    std::fill(weights + columns, weights + padded, 0.0F);
    std::fill(d_scores + columns, d_scores + padded, 0.0F);
    if constexpr (Dot::depth == 2) {
      Dot::pack_row(d_scores, padded, d_score_rows_ + row * block_keys / 2);
      if (row % 2 == 1) {
        const std::int64_t pair = row / 2 * block_keys;
        Dot::pack_row_pair(weights - block_keys, weights, padded, weight_groups_ + pair);
        Dot::pack_row_pair(d_scores - block_keys, d_scores, padded, d_score_groups_ + pair);
      }
    }
  }

  /// Converts a row of scores to weights; stores parts of the cap. Returns the number of columns.
  std::int64_t score_weights(float* scores, std::int64_t first, std::int64_t last, float shift) {
    const float cap = args_.shape.cap;
    if (cap > 0) {
      take_parts_of_cap(scores, args_.shape.scale / cap, row_columns(last));
      std::copy(scores, scores + row_columns(last), parts_);
    }
    const std::int64_t columns = mask_row(scores, first, last);
    exponentials(scores, cap > 0 ? cap : args_.shape.scale, shift, columns);
    return columns;
  }

  void close(const BackwardBlock<Dot>& block) {
    const QueryBlock& place = block.place;
    for (std::int64_t row = 0; row < place.count; ++row) {
      const std::int64_t at = (place.row + row) * args_.shape.heads + place.head;
      write_row(block.dq + row * size_.padded, args_.shape.scale, size_.dim,
                args_.dq.as<T>() + at * size_.dim);
    }
  }

  const AttentionArgs& args_;
  HeadSize<Dot> size_;
  Unit *k_columns_, *v_columns_;  // [row_units, block_keys]
  Unit* k_;                       // [block_keys / depth, padded]
  float *weights_, *d_scores_;    // [block_queries, block_keys]
  float *factors_, *parts_;       // [block_keys]: dropout factors; parts of the cap
  BackwardBlock<Dot> blocks_[blocks_at_once];
  float *dk_, *dv_;                        // [key blocks, block_keys, padded]; dk before scaling
  std::int64_t slot_ = 0;                  // row of the packed keys in dk and dv
  Unit* d_score_rows_;                     // [block_queries, block_keys / depth]
  Unit *d_score_groups_, *weight_groups_;  // [block_queries / depth, block_keys]
};

/// If gradients of all keys fit into scratch and there are enough items for the threads, an item is
/// one KV head of a sequence. Otherwise keys are divided among items, and a second round over the
/// same scores computes dq: it may share memory with d_out, which the first round still reads.
template <class Dot, class T>
void backward(const OpContext& context, const AttentionArgs& args) {
  using Item = BackwardItem<Dot, T>;
  const AttentionShape& shape = args.shape;
  Arena fixed(context.scratch);
  const Item without_keys(args, fixed, 0);
  const std::int64_t bytes_per_key = 2 * 4 * HeadSize<Dot>(shape.head_dim).padded;
  const std::int64_t room = (scratch_bytes_per_thread - fixed.used()) / bytes_per_key / block_keys;
  const std::int64_t key_blocks = key_blocks_of(shape.keys());
  const std::int64_t pairs = shape.sequences * shape.kv_heads;
  const std::int64_t wanted = std::min((thread_count() + pairs - 1) / pairs, key_blocks);
  const std::int64_t chunks = std::max((key_blocks + room - 1) / room, wanted);
  run_items(context, pairs * chunks, products_of(shape), [&](std::int64_t item, Arena arena) {
    [[maybe_unused]] const typename Dot::Registers registers{};
    const std::int64_t chunk = item / pairs;
    const Range keys{key_blocks * chunk / chunks, key_blocks * (chunk + 1) / chunks};
    const std::int64_t pair = item % pairs;
    Item(args, arena, keys.end - keys.begin)
        .run_keys(pair / shape.kv_heads, pair % shape.kv_heads, keys);
  });
  if (chunks == 1) return;
  const std::int64_t blocks = BlockList(shape).size();
  const std::int64_t parts = (blocks + Item::blocks_at_once - 1) / Item::blocks_at_once;
  run_items(context, pairs * parts, products_of(shape), [&](std::int64_t item, Arena arena) {
    [[maybe_unused]] const typename Dot::Registers registers{};
    const std::int64_t part = parts - 1 - item / pairs;
    const std::int64_t pair = item % pairs;
    Item(args, arena, 0)
        .run_queries(pair / shape.kv_heads, pair % shape.kv_heads,
                     {blocks * part / parts, blocks * (part + 1) / parts});
  });
}

}  // namespace

void attention_backward_cpu(const OpContext& context, const AttentionArgs& args) {
  with_dot(args.q.dtype, [&]<class Dot, class T>() { backward<Dot, T>(context, args); });
}

}  // namespace trainctl
