// The functions of cuBLASLt that the CUDA module calls: column-major products with sums in fp32,
// with the checks that the library makes and some that it does not: an algorithm is used for what
// it was proposed for only, operands are as aligned as was promised, and all bytes lie within
// allocations.
#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <type_traits>
#include <vector>

#include "base/dtype.h"
#include "base/integers.h"
#include "machine.h"
#include "planted.h"
#include "product_times.h"

using namespace cuda_on_host;

namespace {

struct Operation {
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cudaDataType_t scale = CUDA_R_32F;
  std::int32_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  std::int32_t bias_type = -1;
  std::int64_t bias_stride = 0;  // from one product of a batch to the next
  const void* aux = nullptr;
  std::int64_t aux_stride = 0;
  std::int32_t multiprocessors = 0;  // 0: all
  // The scales of a and b in FP8, and how they lie (cublasLtMatmulMatrixScale_t).
  const void* scales_a = nullptr;
  const void* scales_b = nullptr;
  std::int32_t mode_a = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
  std::int32_t mode_b = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
  std::int8_t fast = 0;

  bool is(std::initializer_list<cublasLtEpilogue_t> any) const {
    return std::ranges::any_of(any, [this](auto one) { return epilogue == one; });
  }
  bool adds_bias() const { return is({CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_GELU_AUX_BIAS}); }
  bool sums_b() const { return is({CUBLASLT_EPILOGUE_BGRADB}); }
  bool has_gelu() const {
    return is({CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_AUX_BIAS});
  }
  bool has_gelu_gradient() const { return is({CUBLASLT_EPILOGUE_DGELU}); }
  bool has_aux() const { return has_gelu() || has_gelu_gradient(); }
  bool has_vector() const { return adds_bias() || sums_b(); }
};

struct Layout {
  cudaDataType_t type;
  std::uint64_t rows, columns;
  std::int64_t stride;  // from one column to the next
  std::int32_t count = 1;
  std::int64_t batch_stride = 0;  // from one matrix of a batch to the next
};

struct Preference {
  std::size_t workspace_bytes = 0;
  std::uint32_t alignments[4] = {256, 256, 256, 256};  // of a, b, c, d
};

/// The product for which an algorithm was proposed, as the words of cublasLtMatmulAlgo_t.
using Words = std::array<std::uint64_t, 8>;

Operation& of(cublasLtMatmulDesc_t operation) { return *reinterpret_cast<Operation*>(operation); }
Layout& of(cublasLtMatrixLayout_t layout) { return *reinterpret_cast<Layout*>(layout); }

cublasStatus_t refuse_with(cublasStatus_t status, const char* why) {
  std::fprintf(stderr, "cuBLASLt on the host: %s\n", why);
  return status;
}

template <class T>
cublasStatus_t store_attribute(T& member, const void* value, std::size_t bytes) {
  if (bytes != sizeof member)
    return refuse_with(CUBLAS_STATUS_INVALID_VALUE, "an attribute's size");
  std::memcpy(&member, value, sizeof member);
  return CUBLAS_STATUS_SUCCESS;
}

std::size_t size_of(cudaDataType_t type) {
  return type == CUDA_R_32F ? 4 : type == CUDA_R_8F_E4M3 ? 1 : 2;
}

std::size_t bytes_of(const Layout& layout) {
  const std::int64_t last = (layout.count - 1) * layout.batch_stride;
  return (static_cast<std::uint64_t>(last) +
          (layout.columns - 1) * static_cast<std::uint64_t>(layout.stride) + layout.rows) *
         size_of(layout.type);
}

/// E4M3: 4 bits of exponent around 7, 3 of fraction; below 2^-6 the leading 1 is missing.
float from_e4m3(std::uint8_t code) {
  const int exponent = code >> 3 & 15;
  const float fraction = static_cast<float>(code & 7) / 8;
  const float size =
      exponent == 0 ? std::ldexp(fraction, -6) : std::ldexp(1 + fraction, exponent - 7);
  return std::copysign((code & 0x7f) == 0x7f ? NAN : size, (code & 0x80) != 0 ? -1.0F : 1.0F);
}

/// A number as a product in TF32 reads it: 10 bits of fraction, rounded to nearest even.
float to_tf32(float value) {
  auto bits = std::bit_cast<std::uint32_t>(value);
  bits += 0xfffU + (bits >> 13 & 1U);
  return std::bit_cast<float>(bits & ~0x1fffU);
}

float read(const void* from, std::uint64_t index, cudaDataType_t type) {
  if (type == CUDA_R_32F) return static_cast<const float*>(from)[index];
  if (type == CUDA_R_8F_E4M3) return from_e4m3(static_cast<const std::uint8_t*>(from)[index]);
  const std::uint16_t bits = static_cast<const std::uint16_t*>(from)[index];
  return type == CUDA_R_16BF ? trainctl::to_float(trainctl::bf16{bits})
                             : trainctl::to_float(trainctl::fp16{bits});
}

void write(void* to, std::uint64_t index, cudaDataType_t type, float value) {
  if (type == CUDA_R_32F) {
    static_cast<float*>(to)[index] = value;
  } else {
    static_cast<std::uint16_t*>(to)[index] =
        type == CUDA_R_16BF ? trainctl::to_bf16(value).bits : trainctl::to_fp16(value).bits;
  }
}

bool is_known(cudaDataType_t type) {
  return type == CUDA_R_32F || type == CUDA_R_16BF || type == CUDA_R_16F || type == CUDA_R_8F_E4M3;
}

bool is_block(std::int32_t mode) {
  return mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F ||
         mode == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
}

/// The first requirement of FP8 on devices of compute capability 9.0 that a product violates; null
/// if it meets all.
const char* flaw_of_fp8(const Operation& operation, const Layout& a, const Layout& b,
                        const Layout& d) {
  if (a.type != CUDA_R_8F_E4M3) {
    const bool scaled = operation.scales_a != nullptr || operation.scales_b != nullptr;
    return scaled || operation.fast != 0 ? "scales or fast sums of numbers that are not FP8"
                                         : nullptr;
  }
  if (operation.transpose_a != CUBLAS_OP_T || operation.transpose_b != CUBLAS_OP_N) {
    return "the sum of FP8 is not along columns of both";
  }
  for (const Layout* layout : {&a, &b, &d}) {
    if (layout->rows % 16 != 0 || layout->columns % 16 != 0 || layout->stride % 16 != 0) {
      return "extents of FP8 are not multiples of 16";
    }
  }
  for (const std::int32_t mode : {operation.mode_a, operation.mode_b}) {
    if (mode != CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F &&
        mode != CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F && !is_block(mode)) {
      return "scales that are not known on the host";
    }
  }
  const bool by_block = is_block(operation.mode_a);
  if (by_block != is_block(operation.mode_b) ||
      (!by_block && operation.mode_a != operation.mode_b)) {
    return "scales of two kinds that do not go together";
  }
  if (by_block && operation.mode_a == operation.mode_b &&
      operation.mode_a == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F) {
    return "both operands have a scale for 128 x 128 elements";
  }
  if (by_block && operation.fast != 0) return "fast sums with scales of blocks";
  return nullptr;
}

/// How many scales an operand [rows, k] has.
std::uint64_t scale_count(std::int32_t mode, std::uint64_t rows, std::uint64_t k) {
  const std::uint64_t blocks = (k + 127) / 128;
  switch (mode) {
    case CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F: return rows;
    case CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F: return rows * blocks;
    case CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F:
      return (rows + 127) / 128 * ((blocks + 3) / 4 * 4);
    default: return 1;
  }
}

/// Multiplies [rows, k] values by their scales. Scales of strips lie next to those of other rows;
/// those of blocks along the sum, and each row of blocks begins at a multiple of four.
void apply_scales(std::vector<float>& values, std::uint64_t rows, std::int32_t mode,
                  const void* scales) {
  if (scales == nullptr) return;
  const std::uint64_t k = values.size() / rows;
  const std::uint64_t padded = ((k + 127) / 128 + 3) / 4 * 4;
  for (std::uint64_t row = 0; row < rows; ++row) {
    for (std::uint64_t i = 0; i < k; ++i) {
      const std::uint64_t at =
          mode == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F    ? row
          : mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F     ? i / 128 * rows + row
          : mode == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F ? row / 128 * padded + i / 128
                                                                : 0;
      values[row * k + i] *= static_cast<const float*>(scales)[at];
    }
  }
}

const char* flaw_of_batch(const Operation& operation, const Layout& a, const Layout& b,
                          const Layout& c, const Layout& d) {
  if (a.count < 1) return "a batch of none";
  for (const Layout* layout : {&b, &c, &d}) {
    if (layout->count != a.count) return "batches of different sizes";
  }
  for (const Layout* layout : {&a, &b, &d}) {
    if (layout->batch_stride < 0) return "a batch goes backwards";
  }
  if (d.count == 1) return nullptr;
  if (c.batch_stride != d.batch_stride) return "c is not as d";
  if (d.batch_stride < static_cast<std::int64_t>(d.columns) * d.stride) {
    return "results of a batch overlap";
  }
  const std::uint64_t length = operation.sums_b() ? d.columns : d.rows;
  if (operation.has_vector() && operation.bias_stride < static_cast<std::int64_t>(length)) {
    return "vectors of a batch overlap";
  }
  return operation.has_aux() ? "a batch with an auxiliary matrix" : nullptr;
}

const char* flaw_of_epilogue(const Operation& operation, const Layout& d) {
  if (!operation.is({CUBLASLT_EPILOGUE_DEFAULT}) && !operation.has_vector() &&
      !operation.has_aux()) {
    return "an epilogue that is not known on the host";
  }
  if (operation.has_vector() && operation.bias == nullptr) return "an epilogue without its vector";
  if (operation.has_vector() && operation.bias_type != d.type) {
    return "a bias must be of the result's type";
  }
  if (!operation.has_aux()) return nullptr;
  if (operation.aux == nullptr) return "an epilogue without its matrix";
  if (operation.aux_stride < static_cast<std::int64_t>(d.rows)) {
    return "columns of the epilogue's matrix overlap";
  }
  if (operation.aux_stride % 8 != 0) {
    return "the stride of the epilogue's matrix is not divisible by 8";
  }
  return nullptr;
}

/// The first flaw of a product that its description shows; null if there is none.
const char* flaw_of(const Operation& operation, const Layout& a, const Layout& b, const Layout& c,
                    const Layout& d) {
  const auto rows = [](const Layout& layout, bool transposed) {
    return transposed ? layout.columns : layout.rows;
  };
  const bool ta = operation.transpose_a == CUBLAS_OP_T;
  const bool tb = operation.transpose_b == CUBLAS_OP_T;
  for (const Layout* layout : {&a, &b, &c, &d}) {
    if (layout->rows == 0 || layout->columns == 0) return "a matrix without elements";
    if (layout->stride < static_cast<std::int64_t>(layout->rows)) return "columns overlap";
    if (!is_known(layout->type)) return "an element type that is not known on the host";
  }
  if (operation.multiprocessors < 0 || operation.multiprocessors > multiprocessors_on_host) {
    return "more multiprocessors than the device has";
  }
  const bool tf32 = operation.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  if ((operation.compute != CUBLAS_COMPUTE_32F && !tf32) || operation.scale != CUDA_R_32F) {
    return "only sums and scales of fp32 are known on the host";
  }
  if (tf32 && a.type != CUDA_R_32F) return "TF32 of numbers that are not fp32";
  if (d.type == CUDA_R_8F_E4M3) return "a result in FP8 is not known on the host";
  if (const char* flaw = flaw_of_fp8(operation, a, b, d)) return flaw;
  if (rows(a, ta) != d.rows || rows(b, !tb) != d.columns || rows(a, !ta) != rows(b, tb)) {
    return "the extents of the matrices do not fit";
  }
  if (c.rows != d.rows || c.columns != d.columns || c.type != d.type || c.stride != d.stride) {
    return "c is not as d";
  }
  if (const char* flaw = flaw_of_batch(operation, a, b, c, d)) return flaw;
  const bool free_result = d.type == CUDA_R_32F || a.type == CUDA_R_8F_E4M3;
  if (a.type != b.type || (!free_result && d.type != a.type)) return "types do not fit";
  return flaw_of_epilogue(operation, d);
}

/// Whether the library has this product; if not, the request is still a valid one.
bool is_supported(const Operation& operation, const Layout& d) {
  return !operation.has_aux() || d.type != CUDA_R_32F;
}

/// The largest power of two up to 256 that divides the address.
std::uint32_t alignment_of(const void* data) {
  const auto address = reinterpret_cast<std::uintptr_t>(data) | 256U;
  return static_cast<std::uint32_t>(address & (~address + 1));
}

/// Alignments that an algorithm was promised, in the words: of a, b, c, d, vector and aux.
std::uint32_t promised_alignment(const Words& words, int operand) {
  return static_cast<std::uint32_t>(words[6] >> (50 - 10 * operand) & 1023);
}
/// Its place among those that were proposed, in the bits that alignments leave.
std::uint64_t proposal_of(const Words& words) { return words[6] >> 60; }
std::size_t promised_workspace(const Words& words) { return words[7] & 0xffffffff; }

Words words_of(const Operation& operation, const Layout& a, const Layout& b, const Layout& d,
               const Preference& preference,
               const std::array<std::uint32_t, 2>& vector_alignments) {
  const auto word = [](std::uint64_t high, std::uint64_t low) { return high << 32 | low; };
  const std::array batch{static_cast<std::int64_t>(d.count),
                         a.batch_stride,
                         b.batch_stride,
                         d.batch_stride,
                         operation.bias_stride,
                         static_cast<std::int64_t>(operation.multiprocessors),
                         static_cast<std::int64_t>(operation.compute),
                         std::int64_t{operation.mode_a},
                         std::int64_t{operation.mode_b},
                         std::int64_t{operation.fast}};
  const std::uint64_t of_batch =
      trainctl::fnv1a({reinterpret_cast<const char*>(batch.data()), sizeof batch});
  std::uint64_t alignments = 0;
  for (const std::uint32_t alignment : preference.alignments) {
    alignments = alignments << 10 | alignment;
  }
  for (const std::uint32_t alignment : vector_alignments) alignments = alignments << 10 | alignment;
  return {word(a.rows, a.columns) ^ of_batch,
          word(b.rows, b.columns),
          word(static_cast<std::uint64_t>(a.type), static_cast<std::uint64_t>(d.type)),
          word(static_cast<std::uint64_t>(operation.transpose_a),
               static_cast<std::uint64_t>(operation.transpose_b)),
          word(static_cast<std::uint64_t>(a.stride), static_cast<std::uint64_t>(b.stride)),
          word(static_cast<std::uint64_t>(d.stride), operation.epilogue),
          alignments,
          word(static_cast<std::uint64_t>(operation.aux_stride), preference.workspace_bytes)};
}

/// op(x) as fp32: element (row, column) at [row * columns + column].
std::vector<float> widened(const void* x, const Layout& layout, bool transposed) {
  const std::uint64_t rows = transposed ? layout.columns : layout.rows;
  const std::uint64_t columns = transposed ? layout.rows : layout.columns;
  std::vector<float> all(rows * columns);
  const auto stride = static_cast<std::uint64_t>(layout.stride);
  for (std::uint64_t row = 0; row < rows; ++row) {
    for (std::uint64_t column = 0; column < columns; ++column) {
      const std::uint64_t at = transposed ? row * stride + column : column * stride + row;
      all[row * columns + column] = read(x, at, layout.type);
    }
  }
  return all;
}

struct Product {
  Operation operation;
  Layout layout_a, layout_b, layout_d;
  const void *a, *b, *c;
  void* d;
  float alpha, beta;
  std::byte* workspace;
  std::size_t workspace_bytes;
  std::uint64_t proposal = 0;
  bool turned = false;
};

/// Whether sums are taken in another order, as they may be where the library knows of less
/// alignment, of other multiprocessors or of a batch.
bool is_turned(const Operation& operation, const Layout& d, const Preference& promised) {
  const bool loose = promised.alignments[0] < 256;
  const bool confined = operation.multiprocessors > 0;
  return (loose != confined) != (d.count > 1);
}

/// The epilogue of one element.
float after(const Operation& operation, float sum, std::uint64_t row, std::uint64_t column,
            cudaDataType_t type) {
  constexpr float root = 0.797884560802865356F;  // sqrt(2/pi)
  constexpr float cubic = 0.044715F;
  const std::uint64_t beside = column * static_cast<std::uint64_t>(operation.aux_stride) + row;
  if (operation.adds_bias()) sum += read(operation.bias, row, type);
  if (operation.has_gelu()) {
    write(const_cast<void*>(operation.aux), beside, type, sum);
    return 0.5F * sum * (1.0F + std::tanh(root * (sum + cubic * sum * sum * sum)));
  }
  if (!operation.has_gelu_gradient()) return sum;
  const float x = read(operation.aux, beside, type);
  const float t = std::tanh(root * (x + cubic * x * x * x));
  const float slope = root * (1.0F + 3.0F * cubic * x * x);
  return sum * (0.5F * (1.0F + t) + 0.5F * x * (1.0F - t * t) * slope);
}

void multiply_one(const Product& p) {
  // b^T of op(b), so that rows of both run along the sum.
  std::vector<float> a = widened(p.a, p.layout_a, p.operation.transpose_a == CUBLAS_OP_T);
  std::vector<float> b = widened(p.b, p.layout_b, p.operation.transpose_b != CUBLAS_OP_T);
  if (p.operation.compute == CUBLAS_COMPUTE_32F_FAST_TF32) {
    for (std::vector<float>* operand : {&a, &b})
      std::ranges::transform(*operand, operand->begin(), to_tf32);
  }
  apply_scales(a, p.layout_d.rows, p.operation.mode_a, p.operation.scales_a);
  apply_scales(b, p.layout_d.columns, p.operation.mode_b, p.operation.scales_b);
  if (planted("tf32")) {
    for (std::vector<float>* operand : {&a, &b}) {
      for (float& value : *operand) value = trainctl::to_float(trainctl::to_bf16(value));
    }
  }
  const std::uint64_t m = p.layout_d.rows;
  const std::uint64_t n = p.layout_d.columns;
  const std::uint64_t k = a.size() / m;
  for (std::uint64_t column = 0; column < n; ++column) {
    for (std::uint64_t row = 0; row < m; ++row) {
      // Eight sums side by side, as the vector code of any machine can have them, and fewer by
      // later proposals.
      float parts[8] = {};
      const std::uint64_t lanes = 8U >> p.proposal;
      const float* left = a.data() + row * k;
      const float* right = b.data() + column * k;
      std::uint64_t i = 0;
      for (; i + lanes <= k; i += lanes) {
        for (std::uint64_t j = 0; j < lanes; ++j) parts[j] += left[i + j] * right[i + j];
      }
      for (; i < k; ++i) parts[0] += left[i] * right[i];
      if (p.turned) std::ranges::reverse(parts);
      float sum = 0;
      for (const float part : parts) sum += part;
      sum *= p.alpha;
      const std::uint64_t at = column * static_cast<std::uint64_t>(p.layout_d.stride) + row;
      if (p.beta != 0) sum += p.beta * read(p.c, at, p.layout_d.type);
      write(p.d, at, p.layout_d.type, after(p.operation, sum, row, column, p.layout_d.type));
    }
  }
  if (p.operation.sums_b()) {
    for (std::uint64_t column = 0; column < n; ++column) {
      float sum = 0;
      for (std::uint64_t i = 0; i < k; ++i) sum += b[column * k + i];
      write(const_cast<void*>(p.operation.bias), column, p.layout_d.type, sum);
    }
  }
}

/// That many elements further.
template <class T>
T* further(T* data, std::int64_t elements, cudaDataType_t type) {
  if (data == nullptr) return data;
  using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
  return static_cast<Byte*>(data) + elements * static_cast<std::int64_t>(size_of(type));
}

void multiply(const Product& p) {
  for (std::int64_t i = 0; i < (planted("one_of_batch") ? 1 : p.layout_d.count); ++i) {
    Product one = p;
    one.a = further(p.a, i * p.layout_a.batch_stride, p.layout_a.type);
    one.b = further(p.b, i * p.layout_b.batch_stride, p.layout_b.type);
    one.c = further(p.c, i * p.layout_d.batch_stride, p.layout_d.type);
    one.d = further(p.d, i * p.layout_d.batch_stride, p.layout_d.type);
    one.operation.bias = further(p.operation.bias, i * p.operation.bias_stride, p.layout_d.type);
    multiply_one(one);
  }
  // The workspace is the library's: what others keep there is lost.
  const std::size_t touched = std::min<std::size_t>(p.workspace_bytes, 64 << 10);
  std::memset(p.workspace, 0xff, touched);
  std::memset(p.workspace + p.workspace_bytes - touched, 0xff, touched);
}

/// Its operands are still there.
bool is_whole(const Product& p) {
  const std::byte* begin = nullptr;
  const auto all = {p.a,
                    p.b,
                    p.operation.scales_a,
                    p.operation.scales_b,
                    static_cast<const void*>(p.d),
                    static_cast<const void*>(p.workspace)};
  return std::ranges::all_of(all, [&](const void* operand) {
    return operand == nullptr || Machine::get().find(operand, &begin) != nullptr;
  });
}

void multiply_on(int device, const Product& p) {
  Machine& machine = Machine::get();
  if (machine.at(device).error != cudaSuccess) return;
  if (is_whole(p)) {
    machine.at(device).product_time +=
        note_product(device, p.proposal, p.operation.multiprocessors);
    return multiply(p);
  }
  machine.fail(device, cudaErrorIllegalAddress, "memory was freed before it was multiplied");
}

/// Whether an operand is device memory, whole, and as aligned as its algorithm supposes.
const char* flaw_of(const void* data, std::size_t bytes, std::uint64_t alignment) {
  const std::byte* begin = nullptr;
  if (Machine::get().find(data, &begin) == nullptr) return "an operand is not device memory";
  if (!Machine::get().is_whole(data, bytes)) return "an operand reaches beyond its allocation";
  if (reinterpret_cast<std::uintptr_t>(data) % alignment != 0) {
    return "an operand is less aligned than the algorithm supposes";
  }
  return nullptr;
}

const char* flaw_of(const Product& p, const Words& words) {
  const auto flaw_at = [&words](const void* data, std::size_t bytes, int operand) {
    return flaw_of(data, bytes, promised_alignment(words, operand));
  };
  const Operation& operation = p.operation;
  if (const char* flaw = flaw_at(p.a, bytes_of(p.layout_a), 0)) return flaw;
  if (const char* flaw = flaw_at(p.b, bytes_of(p.layout_b), 1)) return flaw;
  if (const char* flaw = flaw_at(p.d, bytes_of(p.layout_d), 3)) return flaw;
  if (operation.has_vector()) {
    const std::uint64_t own = operation.sums_b() ? p.layout_d.columns : p.layout_d.rows;
    const std::int64_t before = (p.layout_d.count - 1) * operation.bias_stride;
    const std::uint64_t count = static_cast<std::uint64_t>(before) + own;
    if (const char* flaw = flaw_at(operation.bias, count * size_of(p.layout_d.type), 4))
      return flaw;
  }
  if (operation.has_aux()) {
    Layout layout = p.layout_d;
    layout.stride = operation.aux_stride;
    if (const char* flaw = flaw_at(operation.aux, bytes_of(layout), 5)) return flaw;
    if (operation.aux == p.d) return "the epilogue's matrix is the result";
  }
  const std::uint64_t k =
      operation.transpose_a == CUBLAS_OP_T ? p.layout_a.rows : p.layout_a.columns;
  const auto flaw_of_scales = [k](const void* scales, std::int32_t mode, std::uint64_t rows) {
    return scales == nullptr ? nullptr : flaw_of(scales, 4 * scale_count(mode, rows, k), 16);
  };
  if (const char* flaw = flaw_of_scales(operation.scales_a, operation.mode_a, p.layout_d.rows))
    return flaw;
  if (const char* flaw = flaw_of_scales(operation.scales_b, operation.mode_b, p.layout_d.columns))
    return flaw;
  if (p.workspace_bytes < promised_workspace(words)) {
    return "the workspace is smaller than was promised";
  }
  return flaw_of(p.workspace, p.workspace_bytes, 256);
}

}  // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  static int library = 0;
  *handle = reinterpret_cast<cublasLtHandle_t>(&library);
  return CUBLAS_STATUS_SUCCESS;
}

std::size_t cublasLtGetVersion() { return version_on_host(); }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* operation,
                                        cublasComputeType_t compute, cudaDataType_t scale) {
  auto* made = new Operation;
  made->compute = compute;
  made->scale = scale;
  *operation = reinterpret_cast<cublasLtMatmulDesc_t>(made);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  Operation& of_it = of(operation);
  const auto set = [&](auto& member) { return store_attribute(member, value, bytes); };
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return set(of_it.transpose_a);
    case CUBLASLT_MATMUL_DESC_TRANSB: return set(of_it.transpose_b);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return set(of_it.epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return set(of_it.bias);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: return set(of_it.bias_type);
    case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE: return set(of_it.bias_stride);
    case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET: return set(of_it.multiprocessors);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER: return set(of_it.scales_a);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER: return set(of_it.scales_b);
    case CUBLASLT_MATMUL_DESC_A_SCALE_MODE: return set(of_it.mode_a);
    case CUBLASLT_MATMUL_DESC_B_SCALE_MODE: return set(of_it.mode_b);
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM: return set(of_it.fast);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: return set(of_it.aux);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: return set(of_it.aux_stride);
    default: return refuse_with(CUBLAS_STATUS_NOT_SUPPORTED, "an attribute that is not known");
  }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type,
                                          std::uint64_t rows, std::uint64_t columns,
                                          std::int64_t stride) {
  *layout = reinterpret_cast<cublasLtMatrixLayout_t>(new Layout{type, rows, columns, stride});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, std::size_t bytes) {
  return attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT
             ? store_attribute(of(layout).count, value, bytes)
         : attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET
             ? store_attribute(of(layout).batch_stride, value, bytes)
             : refuse_with(CUBLAS_STATUS_NOT_SUPPORTED, "an attribute that is not known");
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete &of(layout);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation) {
  delete &of(operation);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete reinterpret_cast<Preference*>(preference);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, std::size_t bytes) {
  auto& of_it = *reinterpret_cast<Preference*>(preference);
  const auto set = [&](auto& member) { return store_attribute(member, value, bytes); };
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return set(of_it.workspace_bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return set(of_it.alignments[0]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return set(of_it.alignments[1]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return set(of_it.alignments[2]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return set(of_it.alignments[3]);
    default: return refuse_with(CUBLAS_STATUS_NOT_SUPPORTED, "a preference that is not known");
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* found) {
  *found = 0;
  if (const char* flaw = flaw_of(of(operation), of(a), of(b), of(c), of(d))) {
    return refuse_with(CUBLAS_STATUS_NOT_SUPPORTED, flaw);
  }
  if (!is_supported(of(operation), of(d))) return CUBLAS_STATUS_NOT_SUPPORTED;
  // The alignments of the bias vector and of the auxiliary matrix are read off their addresses.
  Words words =
      words_of(of(operation), of(a), of(b), of(d), *reinterpret_cast<const Preference*>(preference),
               {alignment_of(of(operation).bias), alignment_of(of(operation).aux)});
  for (; *found < std::min(most, proposed_algorithms); ++*found) {
    cublasLtMatmulHeuristicResult_t& one = results[*found];
    std::memcpy(one.algo.data, words.data(), sizeof one.algo.data);
    one.workspaceSize = promised_workspace(words);
    one.state = CUBLAS_STATUS_SUCCESS;
    words[6] += std::uint64_t{1} << 60;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t operation, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t layout_a, const void* b,
                              cublasLtMatrixLayout_t layout_b, const void* beta, const void* c,
                              cublasLtMatrixLayout_t layout_c, void* d,
                              cublasLtMatrixLayout_t layout_d, const cublasLtMatmulAlgo_t* algo,
                              void* workspace, std::size_t workspace_bytes, cudaStream_t stream) {
  if (const char* flaw =
          flaw_of(of(operation), of(layout_a), of(layout_b), of(layout_c), of(layout_d))) {
    return refuse_with(CUBLAS_STATUS_INVALID_VALUE, flaw);
  }
  Machine& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  Words words;
  std::memcpy(words.data(), algo->data, sizeof words);
  const std::uint64_t proposal = proposal_of(words);
  words[6] -= proposal << 60;
  Preference promised;
  promised.workspace_bytes = promised_workspace(words);
  for (int i = 0; i < 4; ++i) promised.alignments[i] = promised_alignment(words, i);
  if (words != words_of(of(operation), of(layout_a), of(layout_b), of(layout_d), promised,
                        {promised_alignment(words, 4), promised_alignment(words, 5)})) {
    return refuse_with(CUBLAS_STATUS_INVALID_VALUE,
                       "the algorithm was proposed for another product");
  }
  Product product{of(operation),
                  of(layout_a),
                  of(layout_b),
                  of(layout_d),
                  a,
                  b,
                  c,
                  d,
                  *static_cast<const float*>(alpha),
                  *static_cast<const float*>(beta),
                  static_cast<std::byte*>(workspace),
                  workspace_bytes,
                  proposal,
                  is_turned(of(operation), of(layout_d), promised)};
  if (planted("no_bias")) product.operation.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  if (planted("no_sums")) product.beta = 0;
  if (const char* flaw = flaw_of(product, words))
    return refuse_with(CUBLAS_STATUS_INVALID_VALUE, flaw);
  const int device = stream->device;
  stream->multiplies = true;
  machine.count(Enqueued::product);
  machine.give(stream, [product, device] {
    return Work{[product, device] {
                  multiply_on(device, product);
                  return true;
                },
                nullptr};
  });
  return CUBLAS_STATUS_SUCCESS;
}

const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    default: return "a status of cuBLASLt";
  }
}

const char* cublasLtGetStatusString(cublasStatus_t status) { return cublasLtGetStatusName(status); }

}  // extern "C"
