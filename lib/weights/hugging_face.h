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

/// How files hold what belongs together.
struct TensorForms {
  // Two tensors for all experts, gate and up in one; else one for each matrix of each expert, which
  // is what is written.
  bool experts_together = false;
  HuggingFaceNorms norms = HuggingFaceNorms::usual;
  bool long_qk_names = false;  // query_layernorm instead of q_norm
  bool fused_qkv = false;      // one matrix of q, k and v
  bool fused_gate_up = false;  // one of an MLP's gate and up
};
/// Adds what the name of a file's tensor says.
void note_form(const std::string& name, TensorForms& forms);
/// The forms in which the model is written; `preferred` as for hugging_face_type.
TensorForms written_forms(const ModelShape& model, const std::string& preferred = "");

/// All tensors of a model. GPT-2's have the prefix "transformer.".
std::vector<HuggingFaceTensor> hugging_face_tensors(const ModelShape& model,
                                                    const TensorForms& forms);

/// "gpt2", or a type of config/upstream/hugging_face.h: the one that has the model, or is
/// nearest to it. Where several have the model, `preferred` if it is among these, else the first.
std::string hugging_face_type(const ModelShape& model, const std::string& preferred = "");

/// Why transformers has no such network, one sentence without a final period; "" if it has.
std::string unknown_to_hugging_face(const ModelShape& model);

/// True for a buffer that files of older versions hold in addition to the parameters.
bool is_ignored_there(const std::string& name, const ModelShape& model);

// Properties of a model that plain GPT-2 and Llama models lack: other projects' files of these have
// no words for them.

/// The first key of section model by which it differs from such models: "sliding_window", "" if
/// there is none.
std::string unusual_form(const ModelShape& model);

// Which family of Hugging Face has a model without experts, and what the others lack.

/// Properties of a llama model without experts that the family does not have, each as half a
/// sentence: "has no biases of the MLP". Empty if the family has the model.
std::vector<std::string> differences(const ModelShape& model, const HuggingFaceFamily& family);

/// The first family without a difference, or the one with fewest.
const HuggingFaceFamily& nearest_family(const ModelShape& model);

/// The window of its layers; 0: none. Kinds with several windows have that of the first.
std::int64_t window_of(const ModelShape& model);

// config.json and generation_config.json of an exported model, and the tokens that they name.

/// Ids of tokens that mean something, as far as they are known.
struct SpecialTokens {
  std::optional<std::int64_t> begin;
  std::vector<std::int64_t> end;  // each ends a text
  std::optional<std::int64_t> padding;
};

/// The special tokens of a model directory, from generation_config.json, else from config.json. Ids
/// of another kind than whole numbers are left out.
SpecialTokens read_special_tokens(const std::filesystem::path& directory);

/// model_type of a model directory; "" where its config.json has none, or is not there.
std::string read_model_type(const std::filesystem::path& directory);

/// The text of config.json for transformers, old and new versions. The model must be one that it
/// has (unknown_to_hugging_face); `preferred` as for hugging_face_type.
std::string hugging_face_config(const ModelShape& model, DType stored, const SpecialTokens& tokens,
                                const std::string& preferred = "");
/// The text of generation_config.json; "" when no token is known.
std::string generation_config(const SpecialTokens& tokens);

/// Names of the files that a tokenizer may consist of.
std::span<const char* const> tokenizer_files();
/// Copies the files of a tokenizer, where `from` has them, each whole or not at all, and returns
/// their names. `fence`: of the folder `to`, if it has one. Throws Error{io}, Error{bad_data} for a
/// link out of the directory, and what the fence throws.
std::vector<std::string> copy_tokenizer(const std::filesystem::path& from,
                                        const std::filesystem::path& to,
                                        const Fence* fence = nullptr);

// The safetensors files of a model directory: one model.safetensors, or the shards that
// model.safetensors.index.json lists.

/// Refuses a file that is not a regular one in the directory, also behind symbolic links; in the
/// cache of Hugging Face's hub (a directory in "snapshots") it may lie anywhere in that model's
/// folder. Throws Error{missing_input | bad_data}.
void check_inside(const std::filesystem::path& directory, const std::filesystem::path& file);

/// Opens them all and checks that each lies in the directory, and that the index and the shards
/// name the same tensors. Pickles are never read. Throws Error{missing_input | bad_data} with file
/// and tensor.
std::vector<SafetensorsFile> open_model_files(const std::filesystem::path& directory);

// The weights of a Hugging Face model directory by our names.

class HuggingFaceWeights : public StoredWeights {
 public:
  /// Opens the directory's files and compares all of their tensors with the model. Types: fp32,
  /// bf16, fp16, and F8_E4M3 with the scales that quantization_config of config.json describes. Of
  /// a model that sees images the text's part is read. Of a tied model the embedding may be there
  /// as the head, or a second time as it with the same values. Throws Error{missing_input |
  /// bad_data}, which names every tensor that is missing, not the model's, or of another shape or
  /// type.
  HuggingFaceWeights(const std::filesystem::path& directory, const ModelShape& model);
  ~HuggingFaceWeights() override;
  void read(const std::string& name, const MatrixBox& box, float* out) const override;

 private:
  struct Part;
  std::vector<SafetensorsFile> files_;
  std::unordered_map<std::string, std::vector<Part>> parts_;
};

}  // namespace trainctl
