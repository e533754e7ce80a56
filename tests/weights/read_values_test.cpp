// Boxes of stored matrices, and how much is held and read for them.
#include "weights/stored_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>

#include "../data/scratch_folder.h"
#include "base/dtype.h"
#include "catch.h"
#include "plan/tables/params.h"
#include "weights/export.h"

using namespace trainctl;
using namespace trainctl::testing;

namespace {

/// A matrix in memory that counts what is read of it.
struct Counted {
  std::string bytes;
  std::int64_t largest = 0;
  std::int64_t total = 0;

  StoredMatrix matrix(DType dtype, std::int64_t width) {
    return {dtype, width, [this](std::int64_t begin, std::span<char> out) {
              REQUIRE(begin + std::ssize(out) <= std::ssize(bytes));
              std::memcpy(out.data(), bytes.data() + begin, out.size());
              largest = std::max(largest, std::ssize(out));
              total += std::ssize(out);
            }};
  }
};

std::vector<float> read(const StoredMatrix& matrix, const MatrixBox& box, bool transposed) {
  std::vector<float> out(static_cast<std::size_t>(box.elements()), -1.0F);
  read_box(matrix, box, transposed, out.data());
  return out;
}

/// Gives zeros and remembers the largest box.
struct Zeros : StoredWeights {
  void read(const std::string&, const MatrixBox& box, float* out) const override {
    largest = std::max(largest, box.elements());
    std::fill_n(out, box.elements(), 0.0F);
  }
  mutable std::int64_t largest = 0;
};

}  // namespace

TEST_CASE("a box of a matrix and of its transpose") {
  std::vector<float> values(7 * 5);
  std::iota(values.begin(), values.end(), 0.0F);
  Counted stored{packed(values)};
  const StoredMatrix matrix = stored.matrix(DType::f32, 5);
  for (const MatrixBox& box :
       {MatrixBox{.rows = 7, .columns = 5}, MatrixBox{.row = 2, .rows = 3, .columns = 5},
        MatrixBox{.row = 1, .rows = 4, .column = 2, .columns = 2},
        MatrixBox{.row = 6, .rows = 1, .column = 4, .columns = 1},
        MatrixBox{.row = 3, .rows = 0, .columns = 5}}) {
    const auto plain = read(matrix, box, false);
    const auto turned = read(matrix, box, true);
    for (std::int64_t i = 0; i < box.rows; ++i) {
      for (std::int64_t j = 0; j < box.columns; ++j) {
        const auto expected = static_cast<float>((box.row + i) * 5 + box.column + j);
        REQUIRE(plain[static_cast<std::size_t>(i * box.columns + j)] == expected);
        REQUIRE(turned[static_cast<std::size_t>(j * box.rows + i)] == expected);
      }
    }
  }
}

TEST_CASE("fp32, bf16 and fp16 become fp32, also where they are not aligned") {
  const float value = 1.7F;
  const auto one = [](DType dtype, const std::string& bytes) {
    float found = 0;
    const std::string shifted = "x" + bytes;
    convert_values(dtype, shifted.data() + 1, 1, &found, 1);
    return found;
  };
  CHECK(one(DType::f32, packed<float>({value})) == value);
  CHECK(one(DType::bf16, packed<bf16>({to_bf16(value)})) == to_float(to_bf16(value)));
  CHECK(one(DType::f16, packed<fp16>({to_fp16(value)})) == to_float(to_fp16(value)));
  CHECK(is_weight_type(DType::f16));
  CHECK_FALSE(is_weight_type(DType::i32));
}

TEST_CASE("formats of one byte become fp32") {
  const auto read_byte = [](ByteFormat format, int byte) {
    Counted stored{std::string(1, static_cast<char>(byte))};
    StoredMatrix matrix = stored.matrix(DType::f32, 1);
    matrix.format = format;
    return read(matrix, {.rows = 1, .columns = 1}, false).front();
  };
  const auto e4m3 = [&](int byte) { return read_byte("e4m3", byte); };
  CHECK(e4m3(0x00) == 0.0F);
  CHECK(std::signbit(e4m3(0x80)));
  CHECK(e4m3(0x01) == 0x1p-9F);
  CHECK(e4m3(0x07) == 7 * 0x1p-9F);
  CHECK(e4m3(0x08) == 0x1p-6F);
  CHECK(e4m3(0x38) == 1.0F);
  CHECK(e4m3(0xbc) == -1.5F);
  CHECK(e4m3(0x7e) == 448.0F);
  CHECK(std::isnan(e4m3(0x7f)));
  CHECK(std::isnan(e4m3(0xff)));
  CHECK(read_byte("e8m0", 127) == 1.0F);
  CHECK(read_byte("e8m0", 0) == 0x1p-127F);
  CHECK(read_byte("e8m0", 254) == 0x1p127F);
  CHECK(std::isnan(read_byte("e8m0", 255)));
}

TEST_CASE("reading holds a few MiB, and long rows are read without their neighbours") {
  constexpr std::int64_t width = 100'000;
  Counted stored{std::string(static_cast<std::size_t>(40 * width * 2), '\0')};
  const StoredMatrix matrix = stored.matrix(DType::bf16, width);
  read(matrix, {.rows = 40, .columns = width}, false);
  CHECK(stored.total == 40 * width * 2);
  CHECK(stored.largest <= elements_at_a_time * 4);
  stored = {stored.bytes};
  read(matrix, {.rows = 40, .column = width / 2, .columns = width / 2}, false);
  CHECK(stored.total == 40 * width);
  stored = {stored.bytes};
  read(matrix, {.rows = 40, .column = 7, .columns = 100}, true);  // short: with what lies between
  CHECK(stored.largest <= elements_at_a_time * 4);
  CHECK(stored.total <= 40 * width * 2);
}

TEST_CASE("exporting reads a few MiB at a time") {
  ModelConfig config;
  config.family = "gpt2";
  config.num_layers = 1;
  config.hidden_size = 64;
  config.num_attention_heads = 2;
  config.seq_length = 4;
  config.vocab_size = 40'000;
  const ScratchFolder folder;
  const Zeros zeros;
  write_model(folder.path(), model_shape(config), zeros, {.stored = DType::bf16});
  CHECK(zeros.largest > 0);
  CHECK(zeros.largest <= elements_at_a_time);
  CHECK(std::filesystem::file_size(folder / "model.safetensors") > 2 * 40'000 * 64);
}
