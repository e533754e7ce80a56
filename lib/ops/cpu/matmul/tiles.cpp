// Compiled for every level; words_avx512.h has the registers. The blocking follows Goto and van de
// Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008): products sum one chunk of the
// summed dim at a time. b is packed once for all threads; each thread packs a block of a, which
// stays in its second-level cache. Tiles of c stay in registers.
#ifndef __AVX512F__
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/dtype.h"
#include "base/integers.h"
#include "base/parallel_for.h"
#include "ops/cpu/matmul/pack.h"
#include "ops/cpu/matmul/products.h"
#include "ops/elements.h"
#ifdef __AVX512F__
#include "ops/cpu/matmul/words_avx512.h"
#endif

namespace trainctl {

namespace {

#ifndef __AVX512F__

// Registers of 8 lanes, for the tiles of CPUs with AVX2, as words_avx512.h has those of 16.

struct Lanes8 {
  static constexpr std::int64_t lanes = 8;
  static constexpr std::int64_t tile_rows = 6;    // 6 x 2 sums, 2 of b, 1 of a: 15 of 16 registers
  static constexpr std::int64_t step_words = 1;   // a row's packed words are a multiple of this
  static constexpr std::int64_t max_words = 256;  // chunk length along the summed dim
  static constexpr std::int64_t min_rows = 1;     // the library would allocate in every call
  static constexpr std::int64_t min_columns = 1;
  static constexpr std::int64_t block_strips = 24;  // strips of a packed together: 192 KiB

  using Vector = __m256i;
  using Sums = __m256;
  using Mask = std::int64_t;  // the number of leading lanes

  static Mask mask(std::int64_t count) { return count; }

  static Vector no_words() { return _mm256_setzero_si256(); }
  static Vector load_words(const std::uint32_t* from) {
    return _mm256_load_si256(reinterpret_cast<const Vector*>(from));
  }
  static void store_words(std::uint32_t* to, Vector words) {
    _mm256_store_si256(reinterpret_cast<Vector*>(to), words);
  }
  static Vector repeat(std::uint32_t word) { return _mm256_set1_epi32(static_cast<int>(word)); }

  static Sums no_sums() { return _mm256_setzero_ps(); }
  static Sums add(Sums a, Sums b) { return _mm256_add_ps(a, b); }
  static Sums load_sums(const float* from) { return _mm256_load_ps(from); }
  static void store_sums(float* to, Sums sums) { _mm256_store_ps(to, sums); }

  static Sums load(const float* from, Mask mask) {
    return mask == lanes ? _mm256_loadu_ps(from) : _mm256_maskload_ps(from, bits_of(mask));
  }
  static Sums load(const bf16* from, Mask mask) { return widen(load_halves(from, mask), bf16{}); }
  static Sums load(const fp16* from, Mask mask) { return widen(load_halves(from, mask), fp16{}); }
  static void store(float* to, Mask mask, Sums value) {
    if (mask == lanes) {
      _mm256_storeu_ps(to, value);
    } else {
      _mm256_maskstore_ps(to, bits_of(mask), value);
    }
  }
  static void store(bf16* to, Mask mask, Sums value) { store_halves(to, mask, to_bf16(value)); }
  static void store(fp16* to, Mask mask, Sums value) {
    store_halves(to, mask, _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
  }

  /// Transposes an 8 x 8 block of words.
  static void transpose(Vector (&block)[8]) {
    Vector pairs[8];
    for (int i = 0; i < 8; i += 2) {
      pairs[i] = _mm256_unpacklo_epi32(block[i], block[i + 1]);
      pairs[i + 1] = _mm256_unpackhi_epi32(block[i], block[i + 1]);
    }
    Vector fours[8];
    for (int i = 0; i < 8; i += 4) {
      fours[i] = _mm256_unpacklo_epi64(pairs[i], pairs[i + 2]);
      fours[i + 1] = _mm256_unpackhi_epi64(pairs[i], pairs[i + 2]);
      fours[i + 2] = _mm256_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
      fours[i + 3] = _mm256_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
    }
    // Half h of fours[4 g + c] now holds column 4 h + c of rows 4 g to 4 g + 3.
    for (int c = 0; c < 4; ++c) {
      block[c] = _mm256_permute2x128_si256(fours[c], fours[4 + c], 0x20);
      block[4 + c] = _mm256_permute2x128_si256(fours[c], fours[4 + c], 0x31);
    }
  }

 protected:
  static Vector bits_of(Mask mask) {
    const Vector place = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(mask)), place);
  }
  /// Loads up to 8 values of 16 bits, followed by zeros.
  static __m128i load_halves(const void* from, std::int64_t count) {
    if (count >= lanes) return _mm_loadu_si128(static_cast<const __m128i*>(from));
    alignas(16) std::uint16_t values[lanes] = {};
    if (count > 0) std::memcpy(values, from, static_cast<std::size_t>(count) * 2);
    return _mm_load_si128(reinterpret_cast<const __m128i*>(values));
  }
  static void store_halves(void* to, std::int64_t count, __m128i halves) {
    if (count >= lanes) {
      _mm_storeu_si128(static_cast<__m128i*>(to), halves);
    } else {
      std::memcpy(to, &halves, static_cast<std::size_t>(count) * 2);
    }
  }
  static Sums widen(__m128i halves, fp16) { return _mm256_cvtph_ps(halves); }
  static Sums widen(__m128i halves, bf16) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
  }
  /// Rounds to nearest even; NaN stays NaN.
  static __m128i to_bf16(Sums value) {
    const Vector bits = _mm256_castps_si256(value);
    const Vector odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const Vector rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const Vector quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const Vector nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
    const Vector high = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
  }
};

// Words of the register tiles on CPUs with AVX2, FMA and F16C (x86-64-v3): 8 lanes. 16-bit values
// are converted to fp32 when packed.

struct FloatWords : Lanes8 {
  static constexpr std::int64_t values = 1;
  static constexpr std::int64_t value_bytes = 4;  // bytes of a value in memory

  static Sums multiply_add(Vector a, Vector b, Sums sum) {
    return _mm256_fmadd_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), sum);
  }
  /// Loads 8 words of one row: the values in the next `bytes` bytes at `from`, then zeros.
  static Vector along(const std::byte* from, std::int64_t bytes) {
    return across(from, 0, false, bytes / value_bytes);
  }
  /// Loads the words of up to 8 lanes, which are contiguous at `from`.
  static Vector across(const std::byte* from, std::int64_t, bool, Mask count) {
    if (count >= lanes) return _mm256_loadu_si256(reinterpret_cast<const Vector*>(from));
    return _mm256_maskload_epi32(reinterpret_cast<const int*>(from), bits_of(count));
  }
};

/// 16-bit values that are converted to fp32 when packed.
template <class Half>
struct WidenedWords : FloatWords {
  static constexpr std::int64_t value_bytes = 2;

  static Vector along(const std::byte* from, std::int64_t bytes) {
    return across(from, 0, false, bytes / value_bytes);
  }
  static Vector across(const std::byte* from, std::int64_t, bool, Mask count) {
    return _mm256_castps_si256(widen(load_halves(from, count), Half{}));
  }
};

using Fp16Words = WidenedWords<fp16>;
using Bf16Words = WidenedWords<bf16>;

#endif

template <class Words>
constexpr std::int64_t tile_columns = 2 * Words::lanes;  // two strips of b

/// sums = product of strip a and the two strips at b, over `words` steps.
template <class Words>
void multiply_strips(const std::uint32_t* a, const std::uint32_t* b, std::int64_t words,
                     float* sums) {
  constexpr std::int64_t lanes = Words::lanes;
  const std::uint32_t* right = b + words * lanes;
  typename Words::Sums sum[Words::tile_rows][2];
  for (auto& row : sum) row[0] = row[1] = Words::no_sums();
  for (std::int64_t word = 0; word < words; ++word) {
    const auto b0 = Words::load_words(b + word * lanes);
    const auto b1 = Words::load_words(right + word * lanes);
    for (std::int64_t row = 0; row < Words::tile_rows; ++row) {
      const auto left = Words::repeat(a[word * lanes + row]);
      sum[row][0] = Words::multiply_add(left, b0, sum[row][0]);
      sum[row][1] = Words::multiply_add(left, b1, sum[row][1]);
    }
  }
  for (std::int64_t row = 0; row < Words::tile_rows; ++row) {
    Words::store_sums(sums + row * tile_columns<Words>, sum[row][0]);
    Words::store_sums(sums + row * tile_columns<Words> + lanes, sum[row][1]);
  }
}

/// Prefetches the lines of c that a tile will write, while its sums are being computed.
void prefetch_tile(const void* c, std::int64_t row_bytes, std::int64_t rows,
                   std::int64_t tile_bytes) {
  const char* row = static_cast<const char*>(c);
  for (std::int64_t at = 0; at < rows; ++at, row += row_bytes) {
    for (std::int64_t line = 0; line < tile_bytes; line += 64) __builtin_prefetch(row + line, 1, 3);
  }
}

/// target = sums + source + bias, for the part of a tile that lies inside c.
template <class Words, class From, class To>
struct TileStore {
  const From* source;  // may be null
  const float* bias;   // may be null
  To* target;
  std::int64_t source_stride, target_stride;

  void run(const float* sums, std::int64_t rows, std::int64_t columns) const {
    constexpr std::int64_t lanes = Words::lanes;
    for (std::int64_t column = 0; column < columns; column += lanes) {
      const auto mask = Words::mask(std::min(lanes, columns - column));
      const auto offset = bias == nullptr ? Words::no_sums() : Words::load(bias + column, mask);
      for (std::int64_t row = 0; row < rows; ++row) {
        const float* tile_row = sums + row * tile_columns<Words> + column;
        auto value = Words::add(Words::load_sums(tile_row), offset);
        if (source != nullptr) {
          value = Words::add(value, Words::load(source + row * source_stride + column, mask));
        }
        Words::store(target + row * target_stride + column, mask, value);
      }
    }
  }
};

/// The division of one product. All members except `workers` follow from shape and scratch size.
struct Cut {
  std::int64_t workers;
  std::int64_t chunk;          // values of the summed dim that a tile sums before it is stored
  std::int64_t depth;          // values of the summed dim for which b is packed at a time
  std::int64_t rows, columns;  // size of a part of c, completed before the next starts
  std::int64_t b_words;        // memory for packed b; sums, if any, follow it
  // Whether scratch has sums over several chunks, because c is bf16 or fp16 and cannot hold these:
  // for all rows, or with keeps_block only for each thread's block.
  bool keeps_sums, keeps_block;
};

/// Divides a product for `Words`; `room` is in words of 4 bytes.
template <class Words>
struct Cutter {
  static constexpr std::int64_t columns_of_tile = tile_columns<Words>;
  static constexpr std::int64_t strip_rows = Words::tile_rows;
  const MatmulShape& s;
  Cut cut{};

  /// Packs the whole summed dim for some columns of b at once, if this leaves enough columns.
  bool whole_depth(std::int64_t words, std::int64_t room) {
    constexpr std::int64_t fewest_columns = 256;
    const std::int64_t sum_rows =
        cut.keeps_sums ? thread_count() * Words::block_strips * strip_rows : std::int64_t{0};
    const std::int64_t most = room / (words + sum_rows) / columns_of_tile * columns_of_tile;
    if (most < std::min(fewest_columns, round_up(s.n, columns_of_tile))) return false;
    const std::int64_t passes = (s.n + most - 1) / most;
    cut.columns = round_up((s.n + passes - 1) / passes, columns_of_tile);
    cut.b_words = words * cut.columns;
    cut.depth = s.k;
    cut.rows = s.m;
    cut.keeps_block = cut.keeps_sums;
    return true;
  }

  /// Packs one chunk of the summed dim at a time, and keeps sums of all rows that fit `room`.
  void by_chunk(std::int64_t chunk_words, std::int64_t room) {
    constexpr std::int64_t columns_with_sums = 768;
    cut.depth = cut.chunk;
    cut.b_words = cut.keeps_sums ? std::min(room / 2, columns_with_sums * chunk_words) : room;
    cut.columns = std::min(round_up(s.n, columns_of_tile),
                           cut.b_words / chunk_words / columns_of_tile * columns_of_tile);
    cut.rows = s.m;
    if (cut.keeps_sums && cut.columns > 0) {
      cut.rows = std::min(s.m, (room - cut.b_words) / cut.columns / strip_rows * strip_rows);
    }
  }

  Cut run(std::int64_t scratch_bytes) {
    constexpr std::int64_t flops_per_worker = 2'000'000;
    cut.workers =
        std::clamp<std::int64_t>(2 * s.m * s.n * s.k / flops_per_worker, 1, thread_count());
    const std::int64_t words = words_for<Words>(s.k);
    const std::int64_t chunks = (words + Words::max_words - 1) / Words::max_words;
    const std::int64_t chunk_words =
        std::min(round_up((words + chunks - 1) / chunks, 16), Words::max_words);
    cut.chunk = chunk_words * Words::values;
    cut.keeps_sums = chunks > 1 && s.result != DType::f32;
    const std::int64_t a_words = thread_count() * Words::block_strips * Words::lanes * chunk_words;
    const std::int64_t room = scratch_bytes / 4 - a_words;
    const bool whole = cut.keeps_sums && whole_depth(words, room);
    if (!whole) by_chunk(chunk_words, room);
    return cut;
  }
};

template <class Words, class Out>
class Product {
 public:
  Product(const OpContext& context, const Matmul& args)
      : args_(args),
        s_(shape_of(args)),
        cut_(Cutter<Words>{s_}.run(context.scratch_bytes)),
        a_{static_cast<const std::byte*>(args.a.data), s_.m, s_.k, args.a.shape[1],
           !args.transpose_a},
        b_{static_cast<const std::byte*>(args.b.data), s_.n, s_.k, args.b.shape[1],
           args.transpose_b},
        a_packed_(reinterpret_cast<std::uint32_t*>(context.scratch)),
        a_words_(Words::block_strips * lanes * (cut_.chunk / Words::values)),
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

  /// The start of a chunk's packed panels.
  std::uint32_t* packed_b(const Area& area, const Depth& depth, const Depth& chunk) const {
    return b_packed_ +
           (chunk.begin - depth.begin) / Words::values * round_up(area.columns, columns_of_tile);
  }

  void pack_b(const Area& area, const Depth& depth) const {
    const std::int64_t strips = round_up(area.columns, columns_of_tile) / lanes;
    PackSource source = b_;
    source.lanes = area.columns;
    source.data += area.column * (args_.transpose_b ? b_.memory_columns : 1) * value_bytes;
    constexpr std::int64_t words_per_worker = 1 << 14;
    const std::int64_t grain = words_per_worker / (words_of(depth) * lanes) + 1;
    parallel_for(strips, grain, [&](std::int64_t first, std::int64_t last) {
      for_chunks(depth, [&](const Depth& chunk) {
        pack_strips<Words>(source, {first, last, lanes, chunk.begin, chunk.end},
                           packed_b(area, depth, chunk) + first * words_of(chunk) * lanes);
      });
    });
  }

  void multiply_area(const Area& area, const Depth& depth) const {
    const std::int64_t strips = (area.rows + strip_rows - 1) / strip_rows;
    const std::int64_t panels = (area.columns + columns_of_tile - 1) / columns_of_tile;
    // A few strips do not split evenly; then each thread gets all rows of some columns.
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
    constexpr std::int64_t block_rows = Words::block_strips * strip_rows;
    std::uint32_t* a_packed = a_packed_ + worker * a_words_;
    PackSource source = a_;
    source.lanes = area.rows;
    source.data += area.row * (args_.transpose_a ? 1 : a_.memory_columns) * value_bytes;
    for (std::int64_t strip = share.first_strip; strip < share.last_strip;
         strip += Words::block_strips) {
      const std::int64_t last = std::min(strip + Words::block_strips, share.last_strip);
      float* sums =
          sums_ + (cut_.keeps_block ? worker * block_rows : strip * strip_rows) * cut_.columns;
      for_chunks(depth, [&](const Depth& chunk) {
        pack_strips<Words>(source, {strip, last, strip_rows, chunk.begin, chunk.end}, a_packed);
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
    float* sums;  // sums of the first strip, if c cannot hold them
  };

  /// Multiplies a block of strips with one panel, tile by tile.
  void multiply_panel(const Area& area, const Depth& chunk, const Share& block,
                      const Packed& packed) const {
    const std::int64_t words = words_of(chunk);
    const std::int64_t column = block.first_panel * columns_of_tile;
    const std::int64_t columns = std::min(columns_of_tile, area.columns - column);
    for (std::int64_t strip = block.first_strip; strip < block.last_strip; ++strip) {
      const std::int64_t row = strip * strip_rows;
      const std::int64_t at = strip - block.first_strip;
      const Place place{std::min(strip_rows, area.rows - row), columns, area.column + column,
                        args_.c.as<Out>() + (area.row + row) * s_.n + area.column + column,
                        packed.sums + at * strip_rows * cut_.columns + column};
      prefetch_tile(place.c, s_.n * size_of(s_.result), place.rows, columns * size_of(s_.result));
      alignas(64) float sums[strip_rows * columns_of_tile];
      multiply_strips<Words>(packed.a + at * words * lanes, packed.b + column * words, words, sums);
      store_tile(place, chunk, sums);
    }
  }

  /// The destination of a tile.
  struct Place {
    std::int64_t rows, columns, column;
    Out* c;
    float* kept;
  };

  /// Adds a tile to the sums of earlier chunks, or starts these.
  void store_tile(const Place& at, const Depth& chunk, const float* sums) const {
    const bool starts = chunk.begin == 0;
    const bool ends = chunk.end == s_.k;
    const float* bias = s_.bias && starts ? args_.bias.as<float>() + at.column : nullptr;
    const Out* old = !starts || s_.accumulate ? at.c : nullptr;
    const std::int64_t stride = cut_.columns;
    if (!cut_.keeps_sums) {
      TileStore<Words, Out, Out>{old, bias, at.c, s_.n, s_.n}.run(sums, at.rows, at.columns);
    } else if (starts) {
      TileStore<Words, Out, float>{old, bias, at.kept, s_.n, stride}.run(sums, at.rows, at.columns);
    } else if (ends) {
      TileStore<Words, float, Out>{at.kept, bias, at.c, stride, s_.n}.run(sums, at.rows,
                                                                          at.columns);
    } else {
      TileStore<Words, float, float>{at.kept, bias, at.kept, stride, stride}.run(sums, at.rows,
                                                                                 at.columns);
    }
  }

  static std::int64_t words_of(const Depth& depth) {
    return words_for<Words>(depth.end - depth.begin);
  }

  static constexpr std::int64_t value_bytes = Words::value_bytes;
  static constexpr std::int64_t lanes = Words::lanes;
  static constexpr std::int64_t strip_rows = Words::tile_rows;
  static constexpr std::int64_t columns_of_tile = tile_columns<Words>;
  const Matmul& args_;
  MatmulShape s_;
  Cut cut_;
  PackSource a_, b_;
  std::uint32_t* a_packed_;
  std::int64_t a_words_;  // per thread
  std::uint32_t* b_packed_;
  float* sums_;
};

/// Returns false, with nothing done, if the library is better or scratch is too small.
template <class Words, class Out>
bool run_product(const OpContext& context, const Matmul& args) {
  const MatmulShape s = shape_of(args);
  const bool small = s.m < Words::min_rows || s.n < Words::min_columns;
  if (small && !only_for_tiles(args)) return false;
  const Product<Words, Out> product(context, args);
  if (!product.fits()) return false;
  product.run();
  return true;
}

/// Selects the type of c.
template <class Words, class Narrow>
bool run(const OpContext& context, const Matmul& args) {
  return args.c.dtype == DType::f32 ? run_product<Words, float>(context, args)
                                    : run_product<Words, Narrow>(context, args);
}

}  // namespace

bool matmul_tiles(const OpContext& context, const Matmul& args) {
  if constexpr (Bf16Words::values > 1) {  // this level is for bf16 only (cpu/level.h)
    return run<Bf16Words, bf16>(context, args);
  } else {
    switch (args.a.dtype) {
      case DType::f16: return run<Fp16Words, fp16>(context, args);
      case DType::bf16: return run<Bf16Words, bf16>(context, args);
      default: return run_product<FloatWords, float>(context, args);
    }
  }
}

}  // namespace trainctl
