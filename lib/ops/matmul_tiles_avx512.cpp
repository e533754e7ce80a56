// The blocking follows Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication"
// (2008): a chunk of the summed dim at a time, b packed once for all threads, a block of a packed by
// each thread so that it stays in its second-level cache, tiles of c in registers.
#include <algorithm>
#include <cstdint>

#include "base/parallel_for.h"
#include "ops/elements.h"
#include "ops/matmul_tiles.h"
#include "ops/matmul_words.h"

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
void store(float* to, __mmask16 mask, __m512 value) { _mm512_mask_storeu_ps(to, mask, value); }
void store(bf16* to, __mmask16 mask, __m512 value) {
  _mm256_mask_storeu_epi16(to, mask, (__m256i)_mm512_cvtneps_pbh(value));
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
      const auto mask = static_cast<__mmask16>(low_bits(std::min<std::int64_t>(16, columns - column)));
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

/// How one product is cut. Everything but `workers` follows from shape and scratch size.
struct Cut {
  std::int64_t workers, chunk;  // chunk: values of the summed dim
  std::int64_t rows, columns;   // of c that are worked on between two packings of b
  std::int64_t b_words;         // room for packed b, followed by fp32 sums where c cannot hold them
  bool keeps_sums;
};

Cut cut_of(const MatmulShape& s, std::int64_t values, std::int64_t scratch_bytes) {
  constexpr std::int64_t flops_per_worker = 2'000'000;
  Cut cut{};
  cut.workers = std::clamp<std::int64_t>(2 * s.m * s.n * s.k / flops_per_worker, 1, thread_count());
  const std::int64_t words = (s.k + values - 1) / values;
  const std::int64_t chunks = (words + most_words - 1) / most_words;
  const std::int64_t chunk_words = std::min(round_up((words + chunks - 1) / chunks, 16), most_words);
  cut.chunk = chunk_words * values;
  cut.keeps_sums = chunks > 1 && s.result != DType::f32;
  const std::int64_t a_words = thread_count() * block_strips * strip_lanes * chunk_words;
  const std::int64_t room = scratch_bytes / 4 - a_words;
  constexpr std::int64_t columns_with_sums = 768;  // few, so that their sums leave room for rows
  cut.b_words = cut.keeps_sums ? std::min(room / 2, columns_with_sums * chunk_words) : room;
  cut.columns = std::min(round_up(s.n, tile_columns), cut.b_words / chunk_words / 32 * 32);
  cut.rows = s.m;
  if (cut.keeps_sums && cut.columns > 0) {
    const std::int64_t fitting = (room - cut.b_words) / cut.columns / tile_rows * tile_rows;
    cut.rows = std::min(s.m, fitting);
  }
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
        for (std::int64_t depth = 0; depth < s_.k; depth += cut_.chunk) {
          const std::int64_t end = std::min(depth + cut_.chunk, s_.k);
          pack_b(area, depth, end);
          multiply_area(area, depth, end);
        }
      }
    }
  }

 private:
  /// A part of c.
  struct Area {
    std::int64_t row, rows, column, columns;
  };
  /// One thread's part of an area, in strips of a and panels (pairs of strips) of b.
  struct Share {
    std::int64_t first_strip, last_strip, first_panel, last_panel;
  };

  void pack_b(const Area& area, std::int64_t depth, std::int64_t end) const {
    const std::int64_t strips = round_up(area.columns, tile_columns) / strip_lanes;
    const std::int64_t words = words_of(end - depth);
    PackSource source = b_;
    source.lanes -= area.column;
    source.data += area.column * (args_.transpose_b ? b_.memory_columns : 1) * value_bytes;
    parallel_for(strips, (1 << 14) / (words * strip_lanes) + 1,
                 [&](std::int64_t first, std::int64_t last) {
                   pack_strips<Words>(source, {first, last, strip_lanes, depth, end},
                                      b_packed_ + first * words * strip_lanes);
                 });
  }

  void multiply_area(const Area& area, std::int64_t depth, std::int64_t end) const {
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
                       area, {depth, end}, a_packed_ + worker * a_words_);
      }
    });
  }

  struct Depth {
    std::int64_t begin, end;
  };

  void multiply_share(const Share& share, const Area& area, const Depth& depth,
                      std::uint32_t* a_packed) const {
    const std::int64_t words = words_of(depth.end - depth.begin);
    PackSource source = a_;
    source.lanes = area.rows;
    source.data += area.row * (args_.transpose_a ? 1 : a_.memory_columns) * value_bytes;
    for (std::int64_t strip = share.first_strip; strip < share.last_strip; strip += block_strips) {
      const std::int64_t last = std::min(strip + block_strips, share.last_strip);
      pack_strips<Words>(source, {strip, last, tile_rows, depth.begin, depth.end}, a_packed);
      for (std::int64_t panel = share.first_panel; panel < share.last_panel; ++panel) {
        const std::uint32_t* b = b_packed_ + panel * 2 * words * strip_lanes;
        for (std::int64_t at = strip; at < last; ++at) {
          alignas(64) float sums[tile_rows * tile_columns];
          prefetch_at(area, at * tile_rows, panel * tile_columns);
          multiply_tile<Words>(a_packed + (at - strip) * words * strip_lanes, b, words, sums);
          store_tile(area, depth, at * tile_rows, panel * tile_columns, sums);
        }
      }
    }
  }

  void prefetch_at(const Area& area, std::int64_t row, std::int64_t column) const {
    const Out* c = args_.c.as<Out>() + (area.row + row) * s_.n + area.column + column;
    prefetch_tile(c, s_.n * size_of(s_.result), std::min(tile_rows, area.rows - row),
                  std::min(tile_columns, area.columns - column) * size_of(s_.result));
  }

  /// Adds a tile at (row, column) of the area to what earlier chunks left, or starts it.
  void store_tile(const Area& area, const Depth& depth, std::int64_t row, std::int64_t column,
                  const float* sums) const {
    const std::int64_t rows = std::min(tile_rows, area.rows - row);
    const std::int64_t columns = std::min(tile_columns, area.columns - column);
    const bool starts = depth.begin == 0;
    const bool ends = depth.end == s_.k;
    Out* c = args_.c.as<Out>() + (area.row + row) * s_.n + area.column + column;
    float* kept = sums_ + row * cut_.columns + column;
    const float* bias =
        s_.bias && starts ? args_.bias.as<float>() + area.column + column : nullptr;
    const Out* old = !starts || s_.accumulate ? c : nullptr;
    if (!cut_.keeps_sums || (starts && ends)) {
      TileStore<Out, Out>{old, bias, c, s_.n, s_.n}.run(sums, rows, columns);
    } else if (starts) {
      TileStore<Out, float>{old, bias, kept, s_.n, cut_.columns}.run(sums, rows, columns);
    } else if (ends) {
      TileStore<float, Out>{kept, bias, c, cut_.columns, s_.n}.run(sums, rows, columns);
    } else {
      TileStore<float, float>{kept, bias, kept, cut_.columns, cut_.columns}.run(sums, rows,
                                                                               columns);
    }
  }

  static std::int64_t words_of(std::int64_t depth) {
    return (depth + Words::values - 1) / Words::values;
  }

  static constexpr std::int64_t value_bytes = 4 / Words::values;
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
  if (s.result == DType::f32) return run_product<Bf16Words, float>(context, args);
  return run_product<Bf16Words, bf16>(context, args);
}

}  // namespace trainctl
