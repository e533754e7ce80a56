// Blocking as in tiles.cpp, with one difference: tile registers multiply so fast that the sums of a
// thread's block stay in scratch, in its level-2 cache, until they are complete, and are then
// stored to c row by row.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/parallel_for.h"
#include "ops/cpu/matmul/pack.h"
#include "ops/cpu/matmul/products.h"
#include "ops/cpu/matmul/words_avx512.h"
#include "ops/cpu/vector/tile_registers.h"

namespace trainctl {

// Packing for tile registers, which are loaded with whole rows.

/// Loads a square block of a strip, row by row; a row has the words of consecutive steps.
template <class Words>
void load_block(const PackSource& source, const PackRange& range, std::int64_t strip,
                std::int64_t word, WordBlock<Words>& block) {
  if (source.depth_is_inner) {
    const std::int64_t value = range.begin + word * Words::values;
    load_rows<Words>(source, range, strip, value * Words::value_bytes, block);
    return;
  }
  for (std::int64_t step = 0; step < Words::lanes; ++step) {
    block[step] = load_step<Words>(source, range, strip, word + step);
  }
  Words::transpose(block);
}

/// Like pack_strips, but orders the words of a square block by row instead of by step.
template <class Words>
void pack_blocks(const PackSource& source, const PackRange& range, std::uint32_t* to) {
  constexpr std::int64_t edge = Words::lanes;
  const std::int64_t words = words_for<Words>(range.end - range.begin);
  const std::int64_t group = source.depth_is_inner ? 1 : 16;  // strips that are read together
  for (std::int64_t first = range.first; first < range.last; first += group) {
    for (std::int64_t word = 0; word < words; word += edge) {
      for (std::int64_t strip = first; strip < std::min(first + group, range.last); ++strip) {
        WordBlock<Words> block;
        load_block<Words>(source, range, strip, word, block);
        std::uint32_t* place = to + ((strip - range.first) * words + word) * edge;
        for (std::int64_t row = 0; row < edge; ++row) {
          Words::store_words(place + row * edge, block[row]);
        }
      }
    }
  }
}

// A tile of c on CPUs with AMX, computed from packed strips. Internal to lib/ops/cpu.

/// Words packed for tile registers: steps are padded to whole registers.
struct TileWords : Bf16Pairs {
  static constexpr std::int64_t step_words = 16;
};

/// The two strips of each operand of a tile, with `words` steps each: a from pack_blocks, b from
/// pack_strips. For each register of words that it multiplies, the tile prefetches four cache lines
/// from `later` on.
struct TileOperands {
  const std::uint32_t *a, *b, *later;
  std::int64_t words;
};

/// sums[32, 32] = a b if `starts`, else sums += a b.
inline void multiply_tile(const TileOperands& tile, bool starts, const TileSums& sums) {
  constexpr std::int64_t lanes = TileWords::lanes;
  const std::int64_t strip = tile.words * lanes;
  const std::uint32_t* later = tile.later;
  sums.load(starts);
  for (std::int64_t at = 0; at < strip; at += lanes * lanes) {
    for (int line = 0; line < 4; ++line, later += lanes) __builtin_prefetch(later, 0, 2);
    add_tile_product({tile.a + at, tile.a + strip + at, lanes},
                     {tile.b + at, tile.b + strip + at, lanes});
  }
  sums.store();
}

namespace {

constexpr std::int64_t lanes = TileWords::lanes;
constexpr std::int64_t edge = 2 * lanes;  // size of a tile
// A chunk of both operands of a tile fits into the level-1 cache. The sums of a thread's block, its
// part of a and a chunk of b fit into the level-2 cache (1.3 MiB).
constexpr std::int64_t max_chunk_words = 128;
constexpr std::int64_t block_tiles = 8;  // along rows
constexpr std::int64_t block_columns = 768;

constexpr std::int64_t tiles_of(std::int64_t values) { return (values + edge - 1) / edge; }

/// The distance between rows of sums, in floats, chosen so that rows do not all begin in the same
/// cache set.
constexpr std::int64_t stride_of(std::int64_t columns) { return columns + lanes; }

/// The division of one product. The order of each element's sum follows from the shape alone,
/// independent of the number of threads.
struct AmxCut {
  std::int64_t workers;
  std::int64_t chunk_words;    // length of the summed dim for which a is packed at a time
  std::int64_t depth_words;    // length of the summed dim for which b is packed at a time
  std::int64_t rows, columns;  // size of a part of c, in multiples of a tile's size
  bool all_rows;               // sums are kept for all rows, not for each thread's block
};

class AmxCutter {
 public:
  AmxCutter(const MatmulShape& shape, std::int64_t scratch_bytes)
      : s_(shape), words_(words_for<TileWords>(s_.k)) {
    constexpr std::int64_t flops_per_worker = 8'000'000;
    cut.workers =
        std::clamp<std::int64_t>(2 * s_.m * s_.n * s_.k / flops_per_worker, 1, thread_count());
    const std::int64_t chunks = (words_ + max_chunk_words - 1) / max_chunk_words;
    const std::int64_t steps = (words_ / TileWords::step_words + chunks - 1) / chunks;
    cut.chunk_words = steps * TileWords::step_words;
    room_ = scratch_bytes / 4 - thread_count() * block_tiles * edge * cut.chunk_words;
    for (std::int64_t most = block_columns; most >= block_columns / 3; most -= edge) {
      if (with_blocks(most)) return;
    }
    with_all_rows();
  }

  AmxCut cut{};

 private:
  /// Tries to keep sums only for each thread's block. If c is fp32, it can hold sums of a part of
  /// the summed dim, so one thread's scratch suffices.
  bool with_blocks(std::int64_t max_columns) {
    constexpr std::int64_t max_words = 1024;
    split_columns(max_columns);
    const std::int64_t sums = thread_count() * block_tiles * edge * stride_of(cut.columns);
    cut.rows = tiles_of(s_.m) * edge;
    cut.depth_words = depth_in(room_ - sums);
    if (s_.result != DType::f32) return cut.depth_words == words_;
    if (words_ > max_words) {
      cut.depth_words = std::min(cut.depth_words, max_words / cut.chunk_words * cut.chunk_words);
    }
    return cut.depth_words > 0;
  }

  void with_all_rows() {
    split_columns(block_columns);
    cut.all_rows = true;
    const std::int64_t b_words = cut.chunk_words * cut.columns;
    const std::int64_t max_rows = (room_ - b_words) / stride_of(cut.columns) / edge * edge;
    cut.rows = std::min(max_rows, tiles_of(s_.m) * edge);
    cut.depth_words = depth_in(room_ - cut.rows * stride_of(cut.columns));
  }

  void split_columns(std::int64_t most) {
    const std::int64_t tiles = tiles_of(s_.n);
    const std::int64_t passes = (tiles * edge + most - 1) / most;
    cut.columns = (tiles + passes - 1) / passes * edge;
  }

  /// Words along the summed dim that fit into `room`, in whole chunks unless all fit.
  std::int64_t depth_in(std::int64_t room) const {
    const std::int64_t most = std::max<std::int64_t>(room, 0) / cut.columns;
    return most >= words_ ? words_ : most / cut.chunk_words * cut.chunk_words;
  }

  const MatmulShape& s_;
  std::int64_t words_;
  std::int64_t room_;
};

/// A part of c, in units of tiles.
struct Tiles {
  std::int64_t first_row, last_row, first_column, last_column;
};

/// A part of the summed dim, in values.
struct Depth {
  std::int64_t begin, end;
  std::int64_t words() const { return words_for<TileWords>(end - begin); }
};

template <class Out>
class AmxProduct {
 public:
  AmxProduct(const OpContext& context, const Matmul& args)
      : args_(args),
        s_(shape_of(args)),
        cut_(AmxCutter(s_, context.scratch_bytes).cut),
        a_{static_cast<const std::byte*>(args.a.data), s_.m, s_.k, args.a.shape[1],
           !args.transpose_a},
        b_{static_cast<const std::byte*>(args.b.data), s_.n, s_.k, args.b.shape[1],
           args.transpose_b},
        a_packed_(reinterpret_cast<std::uint32_t*>(context.scratch)),
        b_packed_(a_packed_ + thread_count() * a_words()),
        sums_(reinterpret_cast<float*>(b_packed_ + cut_.depth_words * cut_.columns)) {}

  bool fits() const { return cut_.rows > 0 && cut_.depth_words > 0; }

  void run() const {
    for (std::int64_t column = 0; column < s_.n; column += cut_.columns) {
      for (std::int64_t row = 0; row < s_.m; row += cut_.rows) {
        const Tiles area{row / edge, tiles_of(std::min(row + cut_.rows, s_.m)), column / edge,
                         tiles_of(std::min(column + cut_.columns, s_.n))};
        const std::int64_t depth = cut_.depth_words * TileWords::values;
        for (std::int64_t begin = 0; begin < s_.k; begin += depth) {
          multiply_area(area, {begin, std::min(begin + depth, s_.k)});
        }
      }
    }
  }

 private:
  std::int64_t a_words() const { return block_tiles * edge * cut_.chunk_words; }  // per thread

  template <class Body>
  void for_chunks(const Depth& depth, const Body& body) const {
    const std::int64_t chunk = cut_.chunk_words * TileWords::values;
    for (std::int64_t begin = depth.begin; begin < depth.end; begin += chunk) {
      body(Depth{begin, std::min(begin + chunk, depth.end)});
    }
  }

  /// The start of a chunk of packed b, whose strips are consecutive.
  std::uint32_t* packed_b(const Depth& depth, const Depth& chunk) const {
    return b_packed_ + (chunk.begin - depth.begin) / TileWords::values * cut_.columns;
  }

  void multiply_area(const Tiles& area, const Depth& depth) const {
    const std::int64_t strips = 2 * (area.last_column - area.first_column);
    constexpr std::int64_t words_per_worker = 1 << 14;
    const std::int64_t grain = words_per_worker / (depth.words() * lanes) + 1;
    parallel_for(strips, grain, [&](std::int64_t first, std::int64_t last) {
      for_chunks(depth, [&](const Depth& chunk) {
        const std::int64_t skipped = 2 * area.first_column;
        pack_strips<TileWords>(b_, {skipped + first, skipped + last, lanes, chunk.begin, chunk.end},
                               packed_b(depth, chunk) + first * chunk.words() * lanes);
      });
    });
    parallel_for(cut_.workers, 1, [&](std::int64_t first, std::int64_t last) {
      const TileRegisters registers;
      for (std::int64_t worker = first; worker < last; ++worker) {
        multiply_share(share_of(area, worker), area, depth, worker);
      }
    });
  }

  /// Divides by rows if they split evenly, so that each row of a is packed once; else by columns.
  Tiles share_of(const Tiles& area, std::int64_t worker) const {
    const auto begin = [&](std::int64_t first, std::int64_t last, std::int64_t part) {
      return first + (last - first) * part / cut_.workers;
    };
    const std::int64_t rows = area.last_row - area.first_row;
    const std::int64_t idle = (rows + cut_.workers - 1) / cut_.workers * cut_.workers - rows;
    Tiles share = area;
    if (16 * idle <= rows) {
      share.first_row = begin(area.first_row, area.last_row, worker);
      share.last_row = begin(area.first_row, area.last_row, worker + 1);
    } else {
      share.first_column = begin(area.first_column, area.last_column, worker);
      share.last_column = begin(area.first_column, area.last_column, worker + 1);
    }
    return share;
  }

  void multiply_share(const Tiles& share, const Tiles& area, const Depth& depth,
                      std::int64_t worker) const {
    if (share.first_column == share.last_column) return;
    for (std::int64_t row = share.first_row; row < share.last_row; row += block_tiles) {
      Tiles block = share;
      block.first_row = row;
      block.last_row = std::min(row + block_tiles, share.last_row);
      const std::int64_t kept = cut_.all_rows ? row - area.first_row : worker * block_tiles;
      float* sums = sums_ + kept * edge * stride_of(cut_.columns);
      for_chunks(depth, [&](const Depth& chunk) {
        multiply_block(block, depth, chunk,
                       {a_packed_ + worker * a_words(), packed_b(depth, chunk), sums},
                       area.first_column);
      });
      if (depth.end == s_.k || !cut_.all_rows) {
        store(block, sums, area.first_column, depth.begin == 0 || cut_.all_rows);
      }
    }
  }

  struct Packed {
    std::uint32_t* a;
    const std::uint32_t* b;
    float* sums;
  };

  void multiply_block(const Tiles& block, const Depth& depth, const Depth& chunk,
                      const Packed& packed, std::int64_t first_column) const {
    const bool starts = chunk.begin == (cut_.all_rows ? 0 : depth.begin);
    pack_blocks<TileWords>(
        a_, {2 * block.first_row, 2 * block.last_row, lanes, chunk.begin, chunk.end}, packed.a);
    const std::int64_t words = chunk.words();
    const std::int64_t stride = stride_of(cut_.columns);
    for (std::int64_t column = block.first_column; column < block.last_column; ++column) {
      prefetch_a(block, depth, chunk, column);
      const std::int64_t place = (column - first_column) * edge;
      const std::uint32_t* b = packed.b + place * words;
      const std::uint32_t* later = b + edge * words;  // next tile
      for (std::int64_t row = 0; row < block.last_row - block.first_row; ++row) {
        multiply_tile({packed.a + row * edge * words, b, later, words}, starts,
                      {packed.sums + row * edge * stride + place, stride});
        later += edge * words / block_tiles;
      }
    }
  }

  /// Prefetches the part of a that is packed after this chunk, in portions for the block's columns.
  void prefetch_a(const Tiles& block, const Depth& depth, const Depth& chunk,
                  std::int64_t column) const {
    const bool goes_on = chunk.end < depth.end;
    const std::int64_t first_row = (goes_on ? block.first_row : block.last_row) * edge;
    const std::int64_t last_row = std::min(first_row + block_tiles * edge, s_.m);
    const std::int64_t begin = goes_on ? chunk.end : depth.begin;
    const std::int64_t end = std::min(begin + cut_.chunk_words * TileWords::values, depth.end);
    const std::int64_t first = a_.depth_is_inner ? first_row : begin;  // rows in memory
    const std::int64_t last = a_.depth_is_inner ? last_row : end;
    const std::int64_t place = (a_.depth_is_inner ? begin : first_row) * TileWords::value_bytes;
    const std::int64_t bytes =
        (a_.depth_is_inner ? end - begin : last_row - first_row) * TileWords::value_bytes;
    const std::int64_t row_bytes = a_.memory_columns * TileWords::value_bytes;
    const std::int64_t parts = block.last_column - block.first_column;
    const std::int64_t part = column - block.first_column;
    for (std::int64_t row = first + (last - first) * part / parts;
         row < first + (last - first) * (part + 1) / parts; ++row) {
      const std::byte* from = a_.data + row * row_bytes + place;
      for (std::int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(from + at, 0, 2);
    }
  }

  /// c = sums or c += sums, with the bias added at the start of the summed dim.
  void store(const Tiles& block, const float* sums, std::int64_t first_column, bool starts) const {
    const std::int64_t begin = block.first_column * edge;
    const std::int64_t end = std::min(block.last_column * edge, s_.n);
    const float* bias = s_.bias && starts ? args_.bias.as<float>() : nullptr;
    const bool adds = s_.accumulate || !starts;
    for (std::int64_t row = block.first_row * edge; row < std::min(block.last_row * edge, s_.m);
         ++row, sums += stride_of(cut_.columns)) {
      Out* c = args_.c.as<Out>() + row * s_.n;
      for (std::int64_t column = begin; column < end; column += lanes) {
        const auto mask = TileWords::mask(std::min(lanes, end - column));
        auto value = TileWords::load_sums(sums + (column - first_column * edge));
        if (bias != nullptr) value = TileWords::add(value, TileWords::load(bias + column, mask));
        if (adds) value = TileWords::add(value, TileWords::load(c + column, mask));
        TileWords::store(c + column, mask, value);
      }
    }
  }

  const Matmul& args_;
  MatmulShape s_;
  AmxCut cut_;
  PackSource a_, b_;
  std::uint32_t* a_packed_;
  std::uint32_t* b_packed_;
  float* sums_;
};

template <class Out>
bool run_amx(const OpContext& context, const Matmul& args) {
  const MatmulShape s = shape_of(args);
  const bool small = s.m < edge || s.n < edge;
  if (small && !only_for_tiles(args)) return false;
  const AmxProduct<Out> product(context, args);
  if (!product.fits()) return false;
  product.run();
  return true;
}

}  // namespace

bool matmul_amx(const OpContext& context, const Matmul& args) {
  return args.c.dtype == DType::f32 ? run_amx<float>(context, args) : run_amx<bf16>(context, args);
}

}  // namespace trainctl
