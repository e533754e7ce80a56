// The blocking follows Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication"
// (2008): a chunk of the summed dim at a time, b packed once for all threads, a block of a packed
// by each thread so that it stays in its second-level cache, tiles of c in registers.
#include <algorithm>
#include <cstdint>

#include "base/fp16.h"
#include "base/parallel_for.h"
#include "ops/cpu/matmul/pack.h"
#include "ops/cpu/matmul/tiles.h"
#include "ops/elements.h"

namespace trainctl {

namespace {

constexpr std::int64_t tile_rows = 14;     // 14 x 2 sums, 2 of b and 1 of a fill 31 of 32 registers
constexpr std::int64_t tile_columns = 32;  // two strips of b
constexpr std::int64_t most_words = 512;   // of the summed dim per chunk
constexpr std::int64_t block_strips = 12;  // of a, packed together: 288 KiB

/// sums = strip a x the two strips at b, over `words` steps.
template <class Words>
void multiply_tile(const std::uint32_t* a, const std::uint32_t* b, std::int64_t words,
                   float* sums) {
  const std::uint32_t* right = b + words * strip_lanes;
  __m512 sum[tile_rows][2];
  for (auto& row : sum) row[0] = row[1] = _mm512_setzero_ps();
  for (std::int64_t word = 0; word < words; ++word) {
    const __m512i b0 = _mm512_load_si512(b + word * strip_lanes);
    const __m512i b1 = _mm512_load_si512(right + word * strip_lanes);
    for (std::int64_t row = 0; row < tile_rows; ++row) {
      const __m512i left = _mm512_set1_epi32(static_cast<int>(a[word * strip_lanes + row]));
      sum[row][0] = Words::multiply_add(left, b0, sum[row][0]);
      sum[row][1] = Words::multiply_add(left, b1, sum[row][1]);
    }
  }
  for (std::int64_t row = 0; row < tile_rows; ++row) {
    _mm512_store_ps(sums + row * tile_columns, sum[row][0]);
    _mm512_store_ps(sums + row * tile_columns + 16, sum[row][1]);
  }
}

/// Asks for the lines of c that a tile will write, while its sums are still being made.
void prefetch_tile(const void* c, std::int64_t row_bytes, std::int64_t rows,
                   std::int64_t tile_bytes) {
  const char* row = static_cast<const char*>(c);
  for (std::int64_t at = 0; at < rows; ++at, row += row_bytes) {
    for (std::int64_t line = 0; line < tile_bytes; line += 64) __builtin_prefetch(row + line, 1, 3);
  }
}

__m512 load(const float* from, __mmask16 mask) { return _mm512_maskz_loadu_ps(mask, from); }
__m512 load(const bf16* from, __mmask16 mask) {
  const __m256i half = _mm256_maskz_loadu_epi16(mask, from);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}
__m512 load(const fp16* from, __mmask16 mask) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, from));
}
void store(float* to, __mmask16 mask, __m512 value) { _mm512_mask_storeu_ps(to, mask, value); }
void store(bf16* to, __mmask16 mask, __m512 value) {
  _mm256_mask_storeu_epi16(to, mask, to_bf16(value));
}
void store(fp16* to, __mmask16 mask, __m512 value) {
  _mm256_mask_storeu_epi16(to, mask, _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
}

/// target = sums + source + bias, for the part of a tile that c has.
template <class From, class To>
struct TileStore {
  const From* source;  // or null
  const float* bias;   // or null
  To* target;
  std::int64_t source_stride, target_stride;

  void run(const float* sums, std::int64_t rows, std::int64_t columns) const {
    for (std::int64_t column = 0; column < columns; column += 16) {
      const auto mask =
          static_cast<__mmask16>(low_bits(std::min<std::int64_t>(16, columns - column)));
      const __m512 offset = bias == nullptr ? _mm512_setzero_ps() : load(bias + column, mask);
      for (std::int64_t row = 0; row < rows; ++row) {
        __m512 value = _mm512_add_ps(_mm512_load_ps(sums + row * tile_columns + column), offset);
        if (source != nullptr) {
          value = _mm512_add_ps(value, load(source + row * source_stride + column, mask));
        }
        store(target + row * target_stride + column, mask, value);
      }
    }
  }
};

constexpr std::int64_t round_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

/// How one product is cut. Everything but `workers` follows from the shape and the scratch size.
struct Cut {
  std::int64_t workers;
  std::int64_t chunk;          // values of the summed dim that a tile sums before it is stored
  std::int64_t depth;          // values of the summed dim for which b is packed at a time
  std::int64_t rows, columns;  // of c that are finished before the next are begun
  std::int64_t b_words;        // room for packed b; after it come the sums, if any
  // Sums over several chunks that c cannot hold because it is bf16 or fp16: of all rows, or of each
  // thread's block only.
  bool keeps_sums, keeps_block;
};

/// All of the summed dim of some columns of b at once, where that leaves enough columns.
bool cut_whole_depth(const MatmulShape& s, std::int64_t words, std::int64_t room, Cut& cut) {
  constexpr std::int64_t fewest_columns = 256;
  const std::int64_t sum_rows =
      cut.keeps_sums ? thread_count() * block_strips * tile_rows : std::int64_t{0};
  const std::int64_t most = room / (words + sum_rows) / tile_columns * tile_columns;
  if (most < std::min(fewest_columns, round_up(s.n, tile_columns))) return false;
  const std::int64_t passes = (s.n + most - 1) / most;
  cut.columns = round_up((s.n + passes - 1) / passes, tile_columns);
  cut.b_words = words * cut.columns;
  cut.depth = s.k;
  cut.rows = s.m;
  cut.keeps_block = cut.keeps_sums;
  return true;
}

/// One chunk of the summed dim at a time, with the sums of as many rows as there is room for.
void cut_by_chunk(const MatmulShape& s, std::int64_t chunk_words, std::int64_t room, Cut& cut) {
  constexpr std::int64_t columns_with_sums = 768;
  cut.depth = cut.chunk;
  cut.b_words = cut.keeps_sums ? std::min(room / 2, columns_with_sums * chunk_words) : room;
  cut.columns = std::min(round_up(s.n, tile_columns),
                         cut.b_words / chunk_words / tile_columns * tile_columns);
  cut.rows = s.m;
  if (cut.keeps_sums && cut.columns > 0) {
    cut.rows = std::min(s.m, (room - cut.b_words) / cut.columns / tile_rows * tile_rows);
  }
}

Cut cut_of(const MatmulShape& s, std::int64_t values, std::int64_t scratch_bytes) {
  constexpr std::int64_t flops_per_worker = 2'000'000;
  Cut cut{};
  cut.workers = std::clamp<std::int64_t>(2 * s.m * s.n * s.k / flops_per_worker, 1, thread_count());
  const std::int64_t words = (s.k + values - 1) / values;
  const std::int64_t chunks = (words + most_words - 1) / most_words;
  const std::int64_t chunk_words =
      std::min(round_up((words + chunks - 1) / chunks, 16), most_words);
  cut.chunk = chunk_words * values;
  cut.keeps_sums = chunks > 1 && s.result != DType::f32;
  const std::int64_t a_words = thread_count() * block_strips * strip_lanes * chunk_words;
  const std::int64_t room = scratch_bytes / 4 - a_words;
  const bool whole = cut.keeps_sums && cut_whole_depth(s, words, room, cut);
  if (!whole) cut_by_chunk(s, chunk_words, room, cut);
  return cut;
}

template <class Words, class Out>
class Product {
 public:
  Product(const OpContext& context, const Matmul& args)
      : args_(args),
        s_(shape_of(args)),
        cut_(cut_of(s_, Words::values, context.scratch_bytes)),
        a_{static_cast<const std::byte*>(args.a.data), s_.m, s_.k, args.a.shape[1],
           !args.transpose_a},
        b_{static_cast<const std::byte*>(args.b.data), s_.n, s_.k, args.b.shape[1],
           args.transpose_b},
        a_packed_(reinterpret_cast<std::uint32_t*>(context.scratch)),
        a_words_(block_strips * strip_lanes * (cut_.chunk / Words::values)),
        b_packed_(a_packed_ + thread_count() * a_words_),
        sums_(reinterpret_cast<float*>(b_packed_ + cut_.b_words)) {}

  bool fits() const { return cut_.columns > 0 && cut_.rows > 0; }

  void run() const {
    for (std::int64_t column = 0; column < s_.n; column += cut_.columns) {
      for (std::int64_t row = 0; row < s_.m; row += cut_.rows) {
        const Area area{row, std::min(cut_.rows, s_.m - row), column,
                        std::min(cut_.columns, s_.n - column)};
        for (std::int64_t begin = 0; begin < s_.k; begin += cut_.depth) {
          const Depth depth{begin, std::min(begin + cut_.depth, s_.k)};
          pack_b(area, depth);
          multiply_area(area, depth);
        }
      }
    }
  }

 private:
  /// A part of c.
  struct Area {
    std::int64_t row, rows, column, columns;
  };
  /// A part of the summed dim.
  struct Depth {
    std::int64_t begin, end;
  };
  /// One thread's part of an area, in strips of a and panels (pairs of strips) of b.
  struct Share {
    std::int64_t first_strip, last_strip, first_panel, last_panel;
  };

  template <class Body>
  void for_chunks(const Depth& depth, const Body& body) const {
    for (std::int64_t begin = depth.begin; begin < depth.end; begin += cut_.chunk) {
      body(Depth{begin, std::min(begin + cut_.chunk, depth.end)});
    }
  }

  /// Where the panels of a chunk begin.
  std::uint32_t* packed_b(const Area& area, const Depth& depth, const Depth& chunk) const {
    return b_packed_ +
           (chunk.begin - depth.begin) / Words::values * round_up(area.columns, tile_columns);
  }

  void pack_b(const Area& area, const Depth& depth) const {
    const std::int64_t strips = round_up(area.columns, tile_columns) / strip_lanes;
    PackSource source = b_;
    source.lanes = area.columns;
    source.data += area.column * (args_.transpose_b ? b_.memory_columns : 1) * value_bytes;
    constexpr std::int64_t words_per_worker = 1 << 14;
    const std::int64_t grain = words_per_worker / (words_of(depth) * strip_lanes) + 1;
    parallel_for(strips, grain, [&](std::int64_t first, std::int64_t last) {
      for_chunks(depth, [&](const Depth& chunk) {
        pack_strips<Words>(source, {first, last, strip_lanes, chunk.begin, chunk.end},
                           packed_b(area, depth, chunk) + first * words_of(chunk) * strip_lanes);
      });
    });
  }

  void multiply_area(const Area& area, const Depth& depth) const {
    const std::int64_t strips = (area.rows + tile_rows - 1) / tile_rows;
    const std::int64_t panels = (area.columns + tile_columns - 1) / tile_columns;
    // Few strips do not split evenly: then every thread takes all rows of some columns.
    const bool by_rows = strips >= 16 * cut_.workers;
    parallel_for(cut_.workers, 1, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t worker = first; worker < last; ++worker) {
        const auto part = [&](std::int64_t count, bool split, std::int64_t at) {
          return split ? count * at / cut_.workers : (at == worker ? 0 : count);
        };
        multiply_share({part(strips, by_rows, worker), part(strips, by_rows, worker + 1),
                        part(panels, !by_rows, worker), part(panels, !by_rows, worker + 1)},
                       area, depth, worker);
      }
    });
  }

  void multiply_share(const Share& share, const Area& area, const Depth& depth,
                      std::int64_t worker) const {
    constexpr std::int64_t block_rows = block_strips * tile_rows;
    std::uint32_t* a_packed = a_packed_ + worker * a_words_;
    PackSource source = a_;
    source.lanes = area.rows;
    source.data += area.row * (args_.transpose_a ? 1 : a_.memory_columns) * value_bytes;
    for (std::int64_t strip = share.first_strip; strip < share.last_strip; strip += block_strips) {
      const std::int64_t last = std::min(strip + block_strips, share.last_strip);
      float* sums =
          sums_ + (cut_.keeps_block ? worker * block_rows : strip * tile_rows) * cut_.columns;
      for_chunks(depth, [&](const Depth& chunk) {
        pack_strips<Words>(source, {strip, last, tile_rows, chunk.begin, chunk.end}, a_packed);
        const std::uint32_t* b = packed_b(area, depth, chunk);
        for (std::int64_t panel = share.first_panel; panel < share.last_panel; ++panel) {
          multiply_panel(area, chunk, {strip, last, panel, panel + 1}, {a_packed, b, sums});
        }
      });
    }
  }

  struct Packed {
    const std::uint32_t* a;
    const std::uint32_t* b;
    float* sums;  // of the first strip, where c cannot hold them
  };

  /// The tiles of a block of strips with one panel.
  void multiply_panel(const Area& area, const Depth& chunk, const Share& block,
                      const Packed& packed) const {
    const std::int64_t words = words_of(chunk);
    const std::int64_t column = block.first_panel * tile_columns;
    const std::int64_t columns = std::min(tile_columns, area.columns - column);
    for (std::int64_t strip = block.first_strip; strip < block.last_strip; ++strip) {
      const std::int64_t row = strip * tile_rows;
      const std::int64_t at = strip - block.first_strip;
      const Place place{std::min(tile_rows, area.rows - row), columns, area.column + column,
                        args_.c.as<Out>() + (area.row + row) * s_.n + area.column + column,
                        packed.sums + at * tile_rows * cut_.columns + column};
      prefetch_tile(place.c, s_.n * size_of(s_.result), place.rows, columns * size_of(s_.result));
      alignas(64) float sums[tile_rows * tile_columns];
      multiply_tile<Words>(packed.a + at * words * strip_lanes, packed.b + column * words, words,
                           sums);
      store_tile(place, chunk, sums);
    }
  }

  /// Where a tile goes.
  struct Place {
    std::int64_t rows, columns, column;
    Out* c;
    float* kept;
  };

  /// Adds a tile to what earlier chunks left, or starts it.
  void store_tile(const Place& at, const Depth& chunk, const float* sums) const {
    const bool starts = chunk.begin == 0;
    const bool ends = chunk.end == s_.k;
    const float* bias = s_.bias && starts ? args_.bias.as<float>() + at.column : nullptr;
    const Out* old = !starts || s_.accumulate ? at.c : nullptr;
    const std::int64_t stride = cut_.columns;
    if (!cut_.keeps_sums) {
      TileStore<Out, Out>{old, bias, at.c, s_.n, s_.n}.run(sums, at.rows, at.columns);
    } else if (starts) {
      TileStore<Out, float>{old, bias, at.kept, s_.n, stride}.run(sums, at.rows, at.columns);
    } else if (ends) {
      TileStore<float, Out>{at.kept, bias, at.c, stride, s_.n}.run(sums, at.rows, at.columns);
    } else {
      TileStore<float, float>{at.kept, bias, at.kept, stride, stride}.run(sums, at.rows,
                                                                          at.columns);
    }
  }

  static std::int64_t words_of(const Depth& depth) {
    return (depth.end - depth.begin + Words::values - 1) / Words::values;
  }

  static constexpr std::int64_t value_bytes = Words::value_bytes;
  const Matmul& args_;
  MatmulShape s_;
  Cut cut_;
  PackSource a_, b_;
  std::uint32_t* a_packed_;
  std::int64_t a_words_;  // of one thread
  std::uint32_t* b_packed_;
  float* sums_;
};

template <class Words, class Out>
bool run_product(const OpContext& context, const Matmul& args) {
  const Product<Words, Out> product(context, args);
  if (!product.fits()) return false;
  product.run();
  return true;
}

}  // namespace

bool matmul_tiles(const OpContext& context, const Matmul& args) {
  const MatmulShape s = shape_of(args);
  // Packing pays only where each operand is used by several tiles' worth of the other.
  if (s.m < tile_rows || s.n < tile_columns) return false;
  if (s.operand == DType::f32) return run_product<FloatWords, float>(context, args);
  if (s.operand == DType::f16) {
    return s.result == DType::f32 ? run_product<Fp16Words, float>(context, args)
                                  : run_product<Fp16Words, fp16>(context, args);
  }
  if (s.result == DType::f32) return run_product<Bf16Words, float>(context, args);
  return run_product<Bf16Words, bf16>(context, args);
}

}  // namespace trainctl
