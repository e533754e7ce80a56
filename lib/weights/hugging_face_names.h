// How the parameters of a model are named and laid out in Hugging Face's files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/shape.h"
#include "plan/tables/model.h"

namespace trainctl {

/// One tensor there. Our parameters are stacked in it along the output dim; GPT-2's Conv1D matrices
/// are [in, out], the transpose of ours.
struct HuggingFaceTensor {
  struct Piece {
    std::string ours;
    std::int64_t rows = 0;   // without the padding of the vocabulary
    std::int64_t first = 0;  // of our rows: those of all experts follow each other
  };
  std::string name;
  std::vector<Piece> pieces;  // none: all zeros, a bias that the model does not have
  Shape shape;                // there
  bool transposed = false;
  bool keeps_fp32 = false;  // in files of any type
};

/// How files hold experts: a tensor for each matrix of each expert, which is what is written; or
/// two for all experts, gate and up in one.
enum class ExpertTensors : std::uint8_t { each, together };

/// All tensors of a model. GPT-2's have the prefix "transformer.".
std::vector<HuggingFaceTensor> hugging_face_tensors(const ModelShape& model,
                                                    ExpertTensors experts = ExpertTensors::each);
/// Whether a tensor is one of those for all experts.
bool is_of_all_experts(const std::string& name);

/// "gpt2", "llama", "qwen2", "qwen3" or "smollm3"; with experts "dots1", "mixtral", "qwen2_moe" or
/// "qwen3_moe".
std::string hugging_face_type(const ModelShape& model);

/// Why transformers has no such network, one sentence without a final period; "" if it has.
std::string unknown_to_hugging_face(const ModelShape& model);

/// A buffer that files of older versions hold beside the parameters.
bool is_ignored_there(const std::string& name, const ModelShape& model);

}  // namespace trainctl
