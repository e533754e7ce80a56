// config.json and generation_config.json of an exported model, and the tokens that they name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/whole_file.h"
#include "plan/tables/model.h"

namespace trainctl {

/// Ids of tokens that mean something, as far as they are known.
struct SpecialTokens {
  std::optional<std::int64_t> begin;
  std::vector<std::int64_t> end;  // each ends a text
  std::optional<std::int64_t> padding;
};

/// Those of a model directory: generation_config.json's, else config.json's. Ids of another kind
/// than whole numbers are left out.
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

}  // namespace trainctl
