// A SentencePiece model behind plain types; the library's headers stay in one source file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainctl {

class SentencePieceModel {
 public:
  /// Throws Error{missing_input | bad_data}.
  explicit SentencePieceModel(const std::filesystem::path& model);
  ~SentencePieceModel();

  /// Appends; thread-safe.
  void encode(std::string_view text, std::vector<std::int32_t>& out) const;
  /// Tokens outside the vocabulary become the unknown token.
  std::string decode(const std::vector<std::int32_t>& tokens) const;
  /// Of the text that a token stands for: a space for each mark of one, also where the decoder
  /// leaves out the first; one byte for a byte; none for what only controls.
  std::int64_t bytes_of(std::int32_t token) const;
  std::int64_t vocab_size() const;
  /// Nothing where the model has none.
  std::optional<std::int32_t> begin_token() const;
  std::optional<std::int32_t> end_token() const;
  std::optional<std::int32_t> padding_token() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trainctl
