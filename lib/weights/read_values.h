// Numbers of files as fp32: conversion, and boxes of stored matrices in bounded memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "base/dtype.h"
#include "weights/stored_weights.h"

namespace trainctl {

/// Whether values of that dtype can be weights: fp32, bf16, fp16.
bool is_weight_type(DType dtype);

/// `count` stored values, which need not be aligned, to to[0], to[stride], to[2 * stride], ...
void convert_values(DType dtype, const char* stored, std::int64_t count, float* to,
                    std::int64_t stride);
/// fp32 values to stored ones, fp32 or bf16.
void store_values(DType dtype, const float* from, std::int64_t count, char* stored);

/// Formats of one byte that no tensor here has. Both can be NaN, neither infinite.
enum class ByteFormat : std::uint8_t {
  none,
  e4m3,  // a sign, 4 bits of exponent, 3 of fraction
  e8m0,  // 8 bits of exponent: powers of two, of scales
};

/// A stored row-major matrix of `width` columns: gives bytes from its byte `begin`.
struct StoredMatrix {
  DType dtype = DType::f32;
  std::int64_t width = 1;
  std::function<void(std::int64_t begin, std::span<char> out)> bytes;
  ByteFormat format = ByteFormat::none;  // else instead of dtype
};

/// The box of a stored matrix, or with `transposed` its transpose: element (i, j) of the box goes
/// to out[i * box.columns + j], or to out[j * box.rows + i]. Rows that are long are read one by
/// one, short ones with what lies between them.
void read_box(const StoredMatrix& matrix, const MatrixBox& box, bool transposed, float* out);

}  // namespace trainctl
