#include <atomic>
#include <cmath>

#include "base/dtype.h"
#include "base/integers.h"
#include "ops/cpu/attention/pack.h"
#include "ops/cpu/attention/rows.h"
#include "ops/cpu/kernels.h"

namespace trainctl {

namespace {

/// A query block with the state of the online softmax over key blocks.
template <class Dot>
struct ForwardBlock {
  QueryBlock place;
  typename Dot::Unit* q;  // [block_queries, row_units]
  float* out;             // [block_queries, padded], before division by sum
  float* highest;         // [block_queries], largest scaled score
  float* sum;             // [block_queries]
  std::int32_t* first_key;
  float largest;  // largest scaled score before the cap
};

/// key = max(key, other), atomically, because several threads work on blocks of one head.
inline void raise(std::uint32_t& key, std::uint32_t other) {
  const std::atomic_ref<std::uint32_t> shared(key);
  std::uint32_t before = shared.load(std::memory_order_relaxed);
  while (before < other &&
         !shared.compare_exchange_weak(before, other, std::memory_order_relaxed)) {
  }
}

template <class Dot, class T>
class ForwardItem {
 public:
  using Unit = typename Dot::Unit;

  ForwardItem(const AttentionArgs& args, Arena& arena)
      : args_(args),
        size_(args.shape.head_dim),
        k_(arena.take<Unit>(size_.row_units() * block_keys)),
        v_(arena.take<Unit>(block_keys / Dot::depth * size_.padded)),
        scores_(arena.take<float>(block_queries * block_keys)),
        weights_(arena.take<Unit>(Dot::depth == 1 ? 0 : block_queries * block_keys / 2)),
        rescale_(arena.take<float>(block_queries)),
        factors_(arena.take<float>(block_keys)) {
    if constexpr (Dot::depth == 1) weights_ = scores_;
    for (ForwardBlock<Dot>& block : blocks_) {
      block.q = arena.take<Unit>(block_queries * size_.row_units());
      block.out = arena.take<float>(block_queries * size_.padded);
      block.highest = arena.take<float>(block_queries);
      block.sum = arena.take<float>(block_queries);
      block.first_key = arena.take<std::int32_t>(block_queries);
    }
  }

  static constexpr std::int64_t blocks_per_item = 6;

  /// Processes blocks [begin, end) of the list, at most blocks_per_item.
  void run(std::int64_t sequence, std::int64_t kv_head, std::int64_t begin, std::int64_t end) {
    const BlockList list(args_.shape);
    const TokenRuns all_keys = args_.shape.keys();
    std::int64_t begin_key = std::numeric_limits<std::int64_t>::max();
    std::int64_t end_key = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      ForwardBlock<Dot>& block = blocks_[i - begin];
      block.place = list.block(sequence, kv_head, i);
      open(block);
      begin_key = std::min(begin_key, block.place.begin_key());
      end_key = std::max(end_key, block.place.end_key());
    }
    for (std::int64_t number = 0; number < key_blocks_of(all_keys); ++number) {
      const KeyBlock keys = key_block(all_keys, sequence, number);
      if (keys.end() <= begin_key || keys.position >= end_key) continue;
      pack_transposed(HeadRows<T>(args_.k, keys.row, keys.count, kv_head, size_.dim), size_, k_);
      pack_row_groups(HeadRows<T>(args_.v, keys.row, keys.count, kv_head, size_.dim),
                      round_up(keys.count, Dot::row_step), size_, v_);
      for (std::int64_t i = 0; i < end - begin; ++i) {
        const Overlap part = overlap(blocks_[i].place, keys);
        if (!part.empty()) attend(blocks_[i], part);
      }
    }
    for (std::int64_t i = 0; i < end - begin; ++i) close(blocks_[i]);
  }

 private:
  void open(ForwardBlock<Dot>& block) {
    QueryBlock& place = block.place;
    const std::int64_t rows = place.template rows<Dot>();
    set_first_keys(args_.first_position, args_.shape.limits, place, block.first_key);
    pack_rows(HeadRows<T>(args_.q, place.row, place.count, place.head, size_.dim), rows, size_,
              block.q);
    std::fill(block.out, block.out + rows * size_.padded, 0.0F);
    std::fill(block.highest, block.highest + rows, -infinity);
    std::fill(block.sum, block.sum + rows, 0.0F);
    block.largest = -infinity;
  }

  /// Computes scores of the block's queries with the packed keys, weights, and sums of values.
  void attend(ForwardBlock<Dot>& block, const Overlap& part) {
    const std::int64_t rows = block.place.template rows<Dot>();
    Dot::template product<SumStart::zero>(
        rows, part.columns, {block.q, size_.row_units(), 1, k_, block_keys, scores_, block_keys},
        [&](std::int64_t column) { return part.first_row(column); },
        [&](std::int64_t) {
          return Range{0, size_.units};
        });
    if (!args_.largest.empty()) find_largest(block, part);
    for (std::int64_t row = 0; row < rows; ++row) weigh_row(block, part, row);
    Dot::template product<SumStart::scaled>(
        rows, size_.padded,
        {weights_, block_keys / Dot::depth, 1, v_, size_.padded, block.out, size_.padded, rescale_},
        [](std::int64_t) { return std::int64_t{0}; },
        [&](std::int64_t row) {
          const std::int64_t last = part.last(row + Dot::row_step - 1);
          return Range{0, (last + Dot::depth - 1) / Dot::depth};
        });
  }

  void find_largest(ForwardBlock<Dot>& block, const Overlap& part) const {
    const std::uint8_t* real =
        args_.real.empty() ? nullptr : args_.real.as<std::uint8_t>() + block.place.row;
    for (std::int64_t row = 0; row < block.place.count; ++row) {
      if (real != nullptr && real[row] == 0) continue;
      const float* scores = scores_ + row * block_keys;
      const std::int64_t last = part.last(row);
      float largest = -infinity;
#pragma omp simd reduction(max : largest)
      for (std::int64_t i = part.first(block.place, row); i < last; ++i) {
        largest = largest < scores[i] ? scores[i] : largest;
      }
      block.largest = std::max(block.largest, largest * args_.shape.scale);
    }
  }

  void weigh_row(ForwardBlock<Dot>& block, const Overlap& part, std::int64_t row) {
    float* scores = scores_ + row * block_keys;
    const std::int64_t last = part.last(row);
    const std::int64_t first = part.first(block.place, row);
    std::int64_t columns = 0;
    rescale_[row] = 1.0F;
    if (first < last) {
      const float cap = args_.shape.cap;
      if (cap > 0) take_parts_of_cap(scores, args_.shape.scale / cap, row_columns(last));
      const float scale = cap > 0 ? cap : args_.shape.scale;
      columns = mask_row(scores, first, last);
      const float before = block.highest[row];
      const float highest = std::max(before, row_max(scores, columns) * scale);
      rescale_[row] = fast_exp(before - highest);
      const float sum = exponentials(scores, scale, highest, columns);
      block.highest[row] = highest;
      block.sum[row] = block.sum[row] * rescale_[row] + sum;
      if (args_.dropout.key.probability > 0.0F) {
        fill_factors(args_.dropout, block.place, row, part.key, columns, factors_);
        for (std::int64_t i = 0; i < columns; ++i) scores[i] *= factors_[i];
      }
    }
    const std::int64_t padded = padded_columns<Dot>(last);
    std::fill(scores + columns, scores + padded, 0.0F);
    if constexpr (Dot::depth == 2) {
      Dot::pack_row(scores, padded, weights_ + row * block_keys / 2);
    }
  }

  void close(const ForwardBlock<Dot>& block) {
    const QueryBlock& place = block.place;
    const AttentionShape& shape = args_.shape;
    float* logsumexp = args_.logsumexp.as<float>() +
                       (place.sequence * shape.heads + place.head) * shape.query_length +
                       place.first;
    for (std::int64_t row = 0; row < place.count; ++row) {
      const float scale = block.sum[row] > 0 ? 1.0F / block.sum[row] : 0.0F;  // 0 if it sees no key
      write_row(block.out + row * size_.padded, scale, size_.dim,
                args_.out.as<T>() + ((place.row + row) * shape.heads + place.head) * size_.dim);
      logsumexp[row] = block.highest[row] + std::log(block.sum[row]);
    }
    if (args_.largest.empty()) return;
    raise(static_cast<std::uint32_t*>(args_.largest.data)[place.head], ordered_key(block.largest));
  }

  const AttentionArgs& args_;
  HeadSize<Dot> size_;
  Unit* k_;         // [row_units, block_keys]
  Unit* v_;         // [block_keys / depth, padded]
  float* scores_;   // [block_queries, block_keys]
  Unit* weights_;   // [block_queries, block_keys], as units
  float* rescale_;  // [block_queries]
  float* factors_;  // [block_keys]
  ForwardBlock<Dot> blocks_[blocks_per_item];
};

template <class Dot, class T>
void forward(const OpContext& context, const AttentionArgs& args) {
  using Item = ForwardItem<Dot, T>;
  const std::int64_t pairs = args.shape.sequences * args.shape.kv_heads;
  const std::int64_t blocks = BlockList(args.shape).size();
  const std::int64_t parts = (blocks + Item::blocks_per_item - 1) / Item::blocks_per_item;
  run_items(context, pairs * parts, products_of(args.shape), [&](std::int64_t item, Arena arena) {
    [[maybe_unused]] const typename Dot::Registers registers{};
    const std::int64_t part = parts - 1 - item / pairs;
    const std::int64_t pair = item % pairs;
    Item(args, arena)
        .run(pair / args.shape.kv_heads, pair % args.shape.kv_heads, blocks * part / parts,
             blocks * (part + 1) / parts);
  });
}

}  // namespace

void attention_forward_cpu(const OpContext& context, const AttentionArgs& args) {
  with_dot(args.q.dtype, [&]<class Dot, class T>() { forward<Dot, T>(context, args); });
}

}  // namespace trainctl
