#include "weights/export.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/file.h"
#include "base/json_text.h"
#include "weights/hugging_face.h"
#include "weights/safetensors.h"
#include "weights/stored_weights.h"

namespace trainctl {

namespace {

using Json = nlohmann::ordered_json;

/// Writes [rows, columns] values of one parameter at output row `first` of the stacked tensor.
void place_rows(const HuggingFaceTensor& tensor, const std::vector<float>& values,
                std::int64_t first, std::int64_t rows, const Tensor& to) {
  const std::int64_t size = size_of(to.dtype);
  const std::int64_t columns = std::ssize(values) / rows;
  auto* stored = static_cast<char*>(to.data);
  if (!tensor.transposed) {
    return store_values(to.dtype, values.data(), rows * columns, stored + first * columns * size);
  }
  const std::int64_t all_rows = tensor.shape[1];
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      const std::int64_t at = column * all_rows + first + row;
      store_values(to.dtype, &values[static_cast<std::size_t>(row * columns + column)], 1,
                   stored + at * size);
    }
  }
}

/// Reads one whole tensor, some rows of our parameters at a time.
void fill(const HuggingFaceTensor& tensor, const StoredWeights& weights, const Tensor& to) {
  if (tensor.pieces.empty()) {
    std::memset(to.data, 0, static_cast<std::size_t>(to.bytes()));
    return;
  }
  const bool is_matrix = tensor.shape.rank() == 2;
  const std::int64_t columns = !is_matrix ? 1 : tensor.shape[tensor.transposed ? 0 : 1];
  const std::int64_t at_a_time = std::max<std::int64_t>(1, elements_at_a_time / columns);
  std::vector<float> values;
  std::int64_t first = 0;
  for (const HuggingFaceTensor::Piece& piece : tensor.pieces) {
    for (std::int64_t row = 0; row < piece.rows; row += at_a_time) {
      const std::int64_t rows = std::min(at_a_time, piece.rows - row);
      values.resize(static_cast<std::size_t>(rows * columns));
      weights.read(piece.ours, {.row = piece.first + row, .rows = rows, .columns = columns},
                   values.data());
      place_rows(tensor, values, first + row, rows, to);
    }
    first += piece.rows;
  }
}

DType type_of(const HuggingFaceTensor& tensor, DType stored) {
  return tensor.keeps_fp32 ? DType::f32 : stored;
}

std::int64_t bytes_of(const HuggingFaceTensor& tensor, DType stored) {
  return tensor.shape.numel() * size_of(type_of(tensor, stored));
}

/// Divides the tensors among files, in order: each file is as full as allowed, at least one tensor.
std::vector<std::vector<HuggingFaceTensor>> cut(std::vector<HuggingFaceTensor> tensors,
                                                const ModelFiles& files) {
  std::vector<std::vector<HuggingFaceTensor>> shards(1);
  std::int64_t held = 0;
  for (HuggingFaceTensor& tensor : tensors) {
    const std::int64_t bytes = bytes_of(tensor, files.stored);
    const bool full = files.shard_bytes > 0 && held + bytes > files.shard_bytes;
    if (full && !shards.back().empty()) {
      shards.emplace_back();
      held = 0;
    }
    held += bytes;
    shards.back().push_back(std::move(tensor));
  }
  return shards;
}

std::string five_digits(std::size_t number) {
  const std::string text = std::to_string(number);
  return std::string(text.size() < 5 ? 5 - text.size() : 0, '0') + text;
}

std::string name_of_shard(std::size_t index, std::size_t count) {
  if (count == 1) return "model.safetensors";
  return "model-" + five_digits(index + 1) + "-of-" + five_digits(count) + ".safetensors";
}

void write_text(const std::filesystem::path& path, const std::string& text,
                const ModelFiles& files) {
  WholeFile file(path, 0644, files.fence);
  file.write(text);
  file.publish();
}

void write_index(const std::filesystem::path& directory,
                 const std::vector<std::vector<HuggingFaceTensor>>& shards,
                 const ModelFiles& files) {
  std::int64_t total = 0;
  Json map = Json::object();
  for (std::size_t i = 0; i < shards.size(); ++i) {
    for (const HuggingFaceTensor& tensor : shards[i]) {
      total += bytes_of(tensor, files.stored);
      map[tensor.name] = name_of_shard(i, shards.size());
    }
  }
  const Json index{{"metadata", {{"total_size", total}}}, {"weight_map", map}};
  write_text(directory / "model.safetensors.index.json",
             json_text(index, JsonText::Style::indent_2) + "\n", files);
}

}  // namespace

void write_model(const std::filesystem::path& directory, const ModelShape& model,
                 const StoredWeights& weights, const ModelFiles& files, std::span<std::byte> work) {
  const auto shards = cut(hugging_face_tensors(model, written_forms(model, files.type)), files);
  for (std::size_t i = 0; i < shards.size(); ++i) {
    std::vector<TensorToWrite> tensors;
    for (const HuggingFaceTensor& tensor : shards[i]) {
      tensors.push_back({tensor.name, tensor.shape, type_of(tensor, files.stored),
                         [&](const Tensor& to) { fill(tensor, weights, to); }});
    }
    write_safetensors(directory / name_of_shard(i, shards.size()), std::move(tensors), work,
                      files.fence);
  }
  if (shards.size() > 1) write_index(directory, shards, files);
  if (!unknown_to_hugging_face(model).empty()) return;
  const std::string generation = generation_config(files.tokens);
  if (!generation.empty()) write_text(directory / "generation_config.json", generation, files);
  write_text(directory / "config.json",
             hugging_face_config(model, files.stored, files.tokens, files.type), files);
}

void HeldWeights::read(const std::string& name, const MatrixBox& box, float* out) const {
  const Tensor whole = parameter_(name);
  assert(whole.dtype == DType::f32);
  const std::int64_t width = whole.shape.rank() == 1 ? 1 : whole.shape.back();
  const float* values = whole.as<float>() + box.row * width + box.column;
  for (std::int64_t row = 0; row < box.rows; ++row) {
    std::copy_n(values + row * width, box.columns, out + row * box.columns);
  }
}

}  // namespace trainctl
