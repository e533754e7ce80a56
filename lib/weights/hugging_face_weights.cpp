#include "weights/hugging_face_weights.h"

#include <algorithm>
#include <bit>
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

TensorForms forms_of(const Tensors& tensors) {
  TensorForms forms;
  for (const auto& [name, tensor] : tensors) note_form(name, forms);
  return forms;
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

constexpr const char* head_name = "lm_head.weight";

/// The embedding of a tied model, of which a file may have only the head.
bool is_tied_embedding(const HuggingFaceTensor& wanted, const ModelShape& model) {
  return model.tied && wanted.pieces.size() == 1 &&
         wanted.pieces.front().ours == "embedding.token.weight";
}

/// "" if a tied model's head has the values of its embedding, bit for bit once both are fp32.
std::string other_head(const Found& head, const Found& embedding, const HuggingFaceTensor& wanted) {
  std::string problem = mismatch(head, head_name, wanted);
  if (!problem.empty()) return problem;
  const std::int64_t width = wanted.shape[1];
  const std::int64_t rows_at_once = std::max<std::int64_t>(1, elements_at_a_time / width);
  std::vector<float> one, other;
  for (std::int64_t row = 0; row < wanted.shape[0]; row += rows_at_once) {
    const std::int64_t rows = std::min(rows_at_once, wanted.shape[0] - row);
    const MatrixBox box{.row = row, .rows = rows, .column = 0, .columns = width};
    one.resize(static_cast<std::size_t>(box.elements()));
    other.resize(one.size());
    read_box(matrix_of(head), box, false, one.data());
    read_box(matrix_of(embedding), box, false, other.data());
    for (std::size_t i = 0; i < one.size(); ++i) {
      if (std::bit_cast<std::uint32_t>(one[i]) == std::bit_cast<std::uint32_t>(other[i])) continue;
      return tensor_of(head, head_name) + " differs from the embedding in row " +
             std::to_string(row + static_cast<std::int64_t>(i) / width) +
             ", and config.json ties them; set tie_word_embeddings to false there to keep both, "
             "or remove the head";
    }
  }
  return "";
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
  for (const HuggingFaceTensor& wanted : hugging_face_tensors(model, forms_of(tensors))) {
    std::string name;
    const Found* found = find(tensors, wanted.name, name);
    const bool tied = is_tied_embedding(wanted, model);
    const auto head = tied ? tensors.find(head_name) : tensors.end();
    if (found == nullptr && head != tensors.end()) {
      name = head_name;
      found = &head->second;
    }
    known.insert(name);
    if (head != tensors.end()) known.insert(head_name);
    if (found == nullptr) {
      if (!wanted.pieces.empty()) wrong.push_back("tensor '" + wanted.name + "' is missing");
      continue;
    }
    std::string problem = mismatch(*found, name, wanted);
    if (problem.empty() && wanted.pieces.empty()) problem = not_zero(*found, name);
    if (problem.empty() && head != tensors.end() && name != head_name) {
      problem = other_head(head->second, *found, wanted);
    }
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
