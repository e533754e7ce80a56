// Models in Hugging Face's form: names and forms of tensors, families, config.json, and files of
// weights.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/dtype.h"
#include "base/file.h"
#include "base/shape.h"
#include "config/upstream/hugging_face.h"
#include "plan/tables/model.h"
#include "weights/safetensors.h"
#include "weights/stored_weights.h"

namespace trainctl {

/// One tensor of a Hugging Face model. Our parameters are stacked in it along the output dim;
/// GPT-2's Conv1D matrices are [in, out], the transpose of ours.
struct HuggingFaceTensor {
  struct Piece {
    std::string ours;
    std::int64_t rows = 0;   // rows of our parameter, without the padding of the vocabulary
    std::int64_t first = 0;  // first row of our parameter; the experts' rows are consecutive
  };
  std::string name;
  std::vector<Piece> pieces;  // if empty, all zeros: a bias that the model does not have
  Shape shape;                // shape of the tensor in the file
  bool transposed = false;
  bool keeps_fp32 = false;  // stored in fp32 in files of any type
};

/// The forms of tensors that vary between files.
struct TensorForms {
  // Whether files hold all experts in two tensors, one for down and one for gate and up; otherwise,
  // and in written files, in one tensor for each matrix of each expert.
  bool experts_together = false;
  HuggingFaceNorms norms = "usual";
  bool long_qk_names = false;  // names such as query_layernorm instead of q_norm
  bool fused_qkv = false;      // q, k and v in one matrix
  bool fused_gate_up = false;  // gate and up of an MLP in one matrix
};
/// Updates `forms` by the name of a tensor in a file.
void note_form(const std::string& name, TensorForms& forms);
/// The forms in which the model is written; `preferred` as for hugging_face_type.
TensorForms written_forms(const ModelShape& model, const std::string& preferred = "");

/// All tensors of a model. In GPT-2 models their names have the prefix "transformer.".
std::vector<HuggingFaceTensor> hugging_face_tensors(const ModelShape& model,
                                                    const TensorForms& forms);

/// The model_type of the model: "gpt2", or the type of config/upstream/hugging_face.h that has the
/// model or is nearest to it. Where several types have the model, `preferred` if it is among these,
/// else the first.
std::string hugging_face_type(const ModelShape& model, const std::string& preferred = "");

/// Why transformers has no such network, one sentence without a final period; "" if it has one.
std::string unknown_to_hugging_face(const ModelShape& model);

/// Whether the name is that of a buffer that older files hold in addition to the parameters.
bool is_ignored_there(const std::string& name, const ModelShape& model);

// Properties of a model that plain GPT-2 and Llama models lack, and which the files of other
// projects for such models cannot express.

/// The first key of section model by which it differs from such models, for example
/// "sliding_window"; "" if there is none.
std::string unusual_form(const ModelShape& model);

// The Hugging Face family of a model without experts, and the properties that other families lack.

/// Properties of a llama model without experts that the family does not have, each as half a
/// sentence: "has no biases of the MLP". Empty if the family has the model.
std::vector<std::string> differences(const ModelShape& model, const HuggingFaceFamily& family);

/// The first family without a difference, or the one with the fewest.
const HuggingFaceFamily& nearest_family(const ModelShape& model);

/// The window of the model's layers; 0 if none. If kinds have several windows, the first one.
std::int64_t window_of(const ModelShape& model);

// config.json and generation_config.json of an exported model, and the tokens that they name.

/// Ids of special tokens, as far as they are known.
struct SpecialTokens {
  std::optional<std::int64_t> begin;
  std::vector<std::int64_t> end;  // each ends a text
  std::optional<std::int64_t> padding;
};

/// The special tokens of a model directory, from generation_config.json, else from config.json. Ids
/// that are not integers are left out.
SpecialTokens read_special_tokens(const std::filesystem::path& directory);

/// model_type of a model directory; "" if its config.json has none or does not exist.
std::string read_model_type(const std::filesystem::path& directory);

/// The text of config.json for transformers, old and new versions, which must have the model
/// (unknown_to_hugging_face); `preferred` as for hugging_face_type.
std::string hugging_face_config(const ModelShape& model, DType stored, const SpecialTokens& tokens,
                                const std::string& preferred = "");
/// The text of generation_config.json; "" when no token is known.
std::string generation_config(const SpecialTokens& tokens);

/// Names of the files that a tokenizer may consist of.
std::span<const char* const> tokenizer_files();
/// Copies the tokenizer files that `from` has, each whole or not at all, and returns their names.
/// `fence`: of the folder `to`, if it has one. Throws Error{io}, Error{bad_data} for a link out of
/// the directory, and errors of the fence.
std::vector<std::string> copy_tokenizer(const std::filesystem::path& from,
                                        const std::filesystem::path& to,
                                        const Fence* fence = nullptr);

// The safetensors files of a model directory: one model.safetensors, or the shards that
// model.safetensors.index.json lists.

/// Refuses a file that, with symbolic links resolved, is not a regular file in the directory; in
/// the cache of Hugging Face's hub (a directory in "snapshots") it may lie anywhere in that model's
/// folder. Throws Error{missing_input | bad_data}.
void check_inside(const std::filesystem::path& directory, const std::filesystem::path& file);

/// Opens all safetensors files of the directory. Checks that each lies in it, and that the index
/// and the shards name the same tensors. Pickles are never read. Throws Error{missing_input |
/// bad_data} with file and tensor.
std::vector<SafetensorsFile> open_model_files(const std::filesystem::path& directory);

// The weights of a Hugging Face model directory by our names.

class HuggingFaceWeights : public StoredWeights {
 public:
  /// Opens the directory's files and compares all of their tensors with the model. Types: fp32,
  /// bf16, fp16, and F8_E4M3 with the scales that quantization_config of config.json describes.
  /// Only the text part of a model with vision is read. A tied embedding may be stored as the head,
  /// or as both with equal values. Throws Error{missing_input | bad_data}, naming every tensor that
  /// is missing, unknown to the model, or of another shape or type.
  HuggingFaceWeights(const std::filesystem::path& directory, const ModelShape& model);
  ~HuggingFaceWeights() override;
  void read(const std::string& name, const MatrixBox& box, float* out) const override;

 private:
  struct Part;
  std::vector<SafetensorsFile> files_;
  std::unordered_map<std::string, std::vector<Part>> parts_;
};

}  // namespace trainctl
