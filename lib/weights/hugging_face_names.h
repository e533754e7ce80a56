// How the parameters of a model are named and laid out in Hugging Face's files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/shape.h"
#include "config/upstream/hugging_face.h"
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

/// How files hold what belongs together.
struct TensorForms {
  ExpertTensors experts = ExpertTensors::each;
  HuggingFaceNorms norms = HuggingFaceNorms::usual;
  bool long_qk_names = false;  // query_layernorm instead of q_norm
  bool fused_qkv = false;      // one matrix of q, k and v
  bool fused_gate_up = false;  // one of an MLP's gate and up
};
/// Adds what the name of a file's tensor says.
void note_form(const std::string& name, TensorForms& forms);
/// Those in which the model is written; `preferred` as for hugging_face_type.
TensorForms written_forms(const ModelShape& model, const std::string& preferred = "");

/// All tensors of a model. GPT-2's have the prefix "transformer.".
std::vector<HuggingFaceTensor> hugging_face_tensors(const ModelShape& model,
                                                    const TensorForms& forms);

/// "gpt2", or a type of config/upstream/hugging_face.h: the one that has the model, or is
/// nearest to it. Of several, `preferred` if it is one of them, else the first.
std::string hugging_face_type(const ModelShape& model, const std::string& preferred = "");

/// Why transformers has no such network, one sentence without a final period; "" if it has.
std::string unknown_to_hugging_face(const ModelShape& model);

/// A buffer that files of older versions hold beside the parameters.
bool is_ignored_there(const std::string& name, const ModelShape& model);

}  // namespace trainctl
