#include "weights/hugging_face_weights.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <map>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "weights/hugging_face_files.h"
#include "weights/hugging_face_names.h"
#include "weights/read_values.h"

namespace trainctl {

namespace {

constexpr std::size_t most_listed = 20;
constexpr std::int64_t most_config_bytes = 1 << 20;

using Found = FileTensor;
using Tensors = std::map<std::string, Found>;

/// Tensors of models that see images lie beside those of the text, which have one of these in
/// front.
constexpr std::pair<std::string_view, std::string_view> prefixes_of_text[] = {
    {"model.language_model.", "model."}, {"language_model.", ""}};
constexpr std::string_view parts_with_eyes[] = {
    "vision_tower.",       "multi_modal_projector.",       "visual.",
    "model.vision_tower.", "model.multi_modal_projector.", "model.visual."};

bool is_of_eyes(const std::string& name) {
  return std::ranges::any_of(parts_with_eyes,
                             [&](std::string_view part) { return name.starts_with(part); });
}

/// As a model of text alone has it; others stay as they are.
std::string name_in_text(const std::string& name) {
  for (const auto& [theirs, plain] : prefixes_of_text) {
    if (name.starts_with(theirs)) return std::string(plain) + name.substr(theirs.size());
  }
  return name;
}

std::string tensor_of(const Found& found, const std::string& name) {
  return found.file->path().string() + ": tensor '" + name + "'";
}

/// The name that a tensor has in its file.
std::string name_in_file(const Found& found) {
  for (const auto& [name, entry] : found.file->entries()) {
    if (&entry == found.entry) return name;
  }
  return "";
}

/// By the names that models of text have. Of a model that sees images the other tensors are left
/// out; one line counts them. Throws Error{bad_data} for two tensors that have one such name.
Tensors all_tensors(const std::vector<SafetensorsFile>& files) {
  Tensors tensors;
  bool sees = false;
  std::int64_t left_out = 0;
  for (const SafetensorsFile& file : files) {
    for (const auto& [name, entry] : file.entries()) sees = sees || name_in_text(name) != name;
  }
  for (const SafetensorsFile& file : files) {
    for (const auto& [name, entry] : file.entries()) {
      const bool skipped = sees && is_of_eyes(name);
      left_out += skipped ? 1 : 0;
      if (skipped) continue;
      const std::string plain = sees ? name_in_text(name) : name;
      const Found found{&file, &entry};
      const auto [other, is_first] = tensors.emplace(plain, found);
      require(is_first, ExitCode::bad_data,
              tensor_of(found, name) + " and '" + name_in_file(other->second) + "' are both '" +
                  plain + "' of the model of text");
    }
  }
  if (left_out > 0) {
    log_info(files.front().path().parent_path().string() + ": " + std::to_string(left_out) +
             " tensors of images are left out");
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

/// "" when a tensor is as the model needs it. `scaled`: the files may have 8 bits with scales.
std::string mismatch(const Found& found, const std::string& name, const HuggingFaceTensor& wanted,
                     bool scaled) {
  const SafetensorsEntry& entry = *found.entry;
  const std::string is = tensor_of(found, name) + " at byte " + std::to_string(entry.offset) +
                         " is " + entry.shape.to_string() + " " + entry.stored;
  if (entry.shape != wanted.shape) return is + ", the model needs " + wanted.shape.to_string();
  if (needs_scales(entry) && entry.shape.rank() == 2 && !wanted.transposed) {
    return scaled ? "" : is + ", which needs a quantization_config of fp8 in config.json";
  }
  if (!entry.dtype || !is_weight_type(*entry.dtype)) return is + ", expected F32, BF16 or F16";
  return "";
}

/// "model.layers.0.mlp.up_proj.weight_scale_inv"
std::string name_of_scales(const std::string& name) { return name + "_scale_inv"; }

/// Sets the scales of a tensor that needs them; "" if they are as its blocks need them.
std::string find_scales(const Tensors& tensors, const std::string& name, ScaledTensor& tensor) {
  const std::string scales = name_of_scales(name);
  const auto found = tensors.find(scales);
  if (found == tensors.end()) {
    return tensor_of(tensor.values, name) + " is F8_E4M3 and needs '" + scales +
           "', which is missing";
  }
  const SafetensorsEntry& entry = *found->second.entry;
  const Shape wanted = shape_of_scales(tensor.values.entry->shape, tensor.blocks);
  const bool one = wanted.rank() == 0 && entry.shape == Shape{1};
  const std::string is =
      tensor_of(found->second, scales) + " is " + entry.shape.to_string() + " " + entry.stored;
  if (entry.shape != wanted && !one) {
    return is + ", the blocks of quantization_config need " + wanted.to_string();
  }
  if (!can_be_scales(entry)) return is + ", expected F32, BF16, F16 or F8_E8M0";
  tensor.scales = found->second;
  return "";
}

constexpr const char* head_name = "lm_head.weight";

/// The embedding of a tied model, of which a file may have only the head.
bool is_tied_embedding(const HuggingFaceTensor& wanted, const ModelShape& model) {
  return model.tied && wanted.pieces.size() == 1 &&
         wanted.pieces.front().ours == "embedding.token.weight";
}

/// "" if a tied model's head has the values of its embedding, bit for bit once both are fp32.
std::string other_head(const Found& head, const Found& embedding, const HuggingFaceTensor& wanted) {
  std::string problem = mismatch(head, head_name, wanted, false);
  if (!problem.empty()) return problem;
  const std::int64_t width = wanted.shape[1];
  const std::int64_t rows_at_once = std::max<std::int64_t>(1, elements_at_a_time / width);
  std::vector<float> one, other;
  for (std::int64_t row = 0; row < wanted.shape[0]; row += rows_at_once) {
    const std::int64_t rows = std::min(rows_at_once, wanted.shape[0] - row);
    const MatrixBox box{.row = row, .rows = rows, .column = 0, .columns = width};
    one.resize(static_cast<std::size_t>(box.elements()));
    other.resize(one.size());
    read_tensor({head}, box, false, one.data());
    read_tensor({embedding}, box, false, other.data());
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

/// Scales of what goes into products, which are made in no such format here.
bool is_scale_of_activations(const std::string& name) {
  return name.ends_with(".activation_scale") || name.ends_with(".input_scale");
}

/// A bias that the model does not have may be in the file as zeros.
std::string not_zero(const Found& found, const std::string& name) {
  std::vector<float> values(static_cast<std::size_t>(found.entry->shape.numel()));
  read_tensor({found}, {.rows = std::ssize(values)}, false, values.data());
  const bool zeros = std::all_of(values.begin(), values.end(), [](float x) { return x == 0.0F; });
  return zeros ? "" : tensor_of(found, name) + " is not zero, and the model has no such bias";
}

/// As its config.json says; nothing where it is not there.
std::optional<HuggingFaceBlocks> blocks_of_model(const std::filesystem::path& directory) {
  const std::filesystem::path file = directory / "config.json";
  if (kind_of_file(file) != FileKind::regular) return std::nullopt;
  return read_hugging_face_blocks(read_beginning(file, most_config_bytes));
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
  const std::optional<HuggingFaceBlocks> blocks = blocks_of_model(directory);
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
    std::string problem = mismatch(*found, name, wanted, blocks.has_value());
    ScaledTensor tensor{.values = *found, .blocks = blocks.value_or(HuggingFaceBlocks{})};
    if (problem.empty() && needs_scales(*found->entry)) {
      problem = find_scales(tensors, name, tensor);
      known.insert(name_of_scales(name));
    }
    if (problem.empty() && wanted.pieces.empty()) problem = not_zero(*found, name);
    if (problem.empty() && head != tensors.end() && name != head_name) {
      problem = other_head(head->second, *found, wanted);
    }
    if (!problem.empty()) wrong.push_back(problem);
    std::int64_t first = 0;
    for (const HuggingFaceTensor::Piece& piece : wanted.pieces) {
      parts_[piece.ours].push_back(
          {tensor, piece.first, piece.first + piece.rows, first, wanted.transposed});
      first += piece.rows;
    }
  }
  std::int64_t left_out = 0;
  for (const auto& [name, found] : tensors) {
    if (known.contains(name) || is_ignored_there(name, model)) continue;
    if (blocks && is_scale_of_activations(name)) {
      ++left_out;
      continue;
    }
    wrong.push_back(tensor_of(found, name) + " is not a tensor of this model");
  }
  refuse(directory, wrong);
  if (left_out > 0) {
    log_info(directory.string() + ": " + std::to_string(left_out) +
             " scales of activations are left out: products here have activations as they are");
  }
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
    read_tensor(part.tensor, there, part.transposed, out + (begin - box.row) * box.columns);
  }
}

}  // namespace trainctl
