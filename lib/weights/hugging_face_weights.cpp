#include "weights/hugging_face_weights.h"

#include <algorithm>
#include <cassert>
#include <map>
#include <set>

#include "base/error.h"
#include "weights/hugging_face_files.h"
#include "weights/hugging_face_names.h"
#include "weights/read_values.h"

namespace trainctl {

namespace {

constexpr std::size_t most_listed = 20;

struct Found {
  const SafetensorsFile* file = nullptr;
  const SafetensorsEntry* entry = nullptr;
};
using Tensors = std::map<std::string, Found>;

Tensors all_tensors(const std::vector<SafetensorsFile>& files) {
  Tensors tensors;
  for (const SafetensorsFile& file : files) {
    for (const auto& [name, entry] : file.entries()) tensors[name] = {&file, &entry};
  }
  return tensors;
}

/// The original GPT-2 files have no "transformer." prefix.
const Found* find(const Tensors& tensors, const std::string& name, std::string& stored_name) {
  constexpr std::string_view prefix = "transformer.";
  stored_name = name;
  auto found = tensors.find(name);
  if (found == tensors.end() && name.starts_with(prefix)) {
    found = tensors.find(name.substr(prefix.size()));
    if (found != tensors.end()) stored_name = found->first;
  }
  return found == tensors.end() ? nullptr : &found->second;
}

ExpertTensors form_of(const Tensors& tensors) {
  const bool together = std::any_of(tensors.begin(), tensors.end(), [](const auto& tensor) {
    return is_of_all_experts(tensor.first);
  });
  return together ? ExpertTensors::together : ExpertTensors::each;
}

std::string tensor_of(const Found& found, const std::string& name) {
  return found.file->path().string() + ": tensor '" + name + "'";
}

/// "" when a tensor is as the model needs it.
std::string mismatch(const Found& found, const std::string& name, const HuggingFaceTensor& wanted) {
  const SafetensorsEntry& entry = *found.entry;
  const std::string is = tensor_of(found, name) + " at byte " + std::to_string(entry.offset) +
                         " is " + entry.shape.to_string() + " " + entry.stored;
  if (entry.shape != wanted.shape) return is + ", the model needs " + wanted.shape.to_string();
  if (!entry.dtype || !is_weight_type(*entry.dtype)) return is + ", expected F32, BF16 or F16";
  return "";
}

StoredMatrix matrix_of(const Found& found) {
  const SafetensorsFile* file = found.file;
  const SafetensorsEntry* entry = found.entry;
  const Shape& shape = entry->shape;
  return {
      *entry->dtype, shape.rank() == 1 ? 1 : shape.back(),
      [file, entry](std::int64_t begin, std::span<char> out) { file->read(*entry, begin, out); }};
}

/// A bias that the model does not have may be in the file as zeros.
std::string not_zero(const Found& found, const std::string& name) {
  std::vector<float> values(static_cast<std::size_t>(found.entry->shape.numel()));
  read_box(matrix_of(found), {.rows = std::ssize(values)}, false, values.data());
  const bool zeros = std::all_of(values.begin(), values.end(), [](float x) { return x == 0.0F; });
  return zeros ? "" : tensor_of(found, name) + " is not zero, and the model has no such bias";
}

void refuse(const std::filesystem::path& directory, const std::vector<std::string>& wrong) {
  if (wrong.empty()) return;
  std::string text = directory.string() + " does not hold the model's weights:";
  for (std::size_t i = 0; i < std::min(wrong.size(), most_listed); ++i) text += "\n  " + wrong[i];
  if (wrong.size() > most_listed) {
    text += "\n  and " + std::to_string(wrong.size() - most_listed) + " more";
  }
  throw Error(ExitCode::bad_data, text);
}

}  // namespace

HuggingFaceWeights::HuggingFaceWeights(const std::filesystem::path& directory,
                                       const ModelShape& model)
    : files_(open_model_files(directory)) {
  const Tensors tensors = all_tensors(files_);
  std::vector<std::string> wrong;
  std::set<std::string> known;
  for (const HuggingFaceTensor& wanted : hugging_face_tensors(model, form_of(tensors))) {
    std::string name;
    const Found* found = find(tensors, wanted.name, name);
    known.insert(name);
    if (found == nullptr) {
      if (!wanted.pieces.empty()) wrong.push_back("tensor '" + wanted.name + "' is missing");
      continue;
    }
    std::string problem = mismatch(*found, name, wanted);
    if (problem.empty() && wanted.pieces.empty()) problem = not_zero(*found, name);
    if (!problem.empty()) wrong.push_back(problem);
    std::int64_t first = 0;
    for (const HuggingFaceTensor::Piece& piece : wanted.pieces) {
      parts_[piece.ours].push_back({found->file, found->entry, piece.first,
                                    piece.first + piece.rows, first, wanted.transposed});
      first += piece.rows;
    }
  }
  for (const auto& [name, found] : tensors) {
    if (known.contains(name) || is_ignored_there(name, model)) continue;
    wrong.push_back(tensor_of(found, name) + " is not a tensor of this model");
  }
  refuse(directory, wrong);
}

void HuggingFaceWeights::read(const std::string& name, const MatrixBox& box, float* out) const {
  const auto found = parts_.find(name);
  require(found != parts_.end(), ExitCode::internal, "no stored tensor for " + name);
  for (const Part& part : found->second) {
    const std::int64_t begin = std::max(box.row, part.begin);
    const std::int64_t rows = std::min(box.row + box.rows, part.end) - begin;
    if (rows <= 0) continue;
    const std::int64_t row = begin - part.begin + part.first;
    MatrixBox there{.row = row, .rows = rows, .column = box.column, .columns = box.columns};
    if (part.transposed) {
      there = {.row = box.column, .rows = box.columns, .column = row, .columns = rows};
    }
    read_box(matrix_of({part.file, part.entry}), there, part.transposed,
             out + (begin - box.row) * box.columns);
  }
}

}  // namespace trainctl
