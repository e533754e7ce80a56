// A byte-level BPE tokenizer as Hugging Face's tokenizer.json describes it: GPT-2, Llama 3, Qwen
// and others of their kind. Gives the tokens that the `tokenizers` library gives.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/hf/special_tokens.h"

namespace trainctl::hf {

class HfTokenizer {
 public:
  /// A tokenizer.json, or its folder; the files of special_tokens.h beside it are read too. Throws
  /// Error{missing_input | bad_data}: what the file asks for and is not built is refused with its
  /// path in the file.
  explicit HfTokenizer(const std::filesystem::path& path);
  ~HfTokenizer();

  /// Appends the tokens of `text`, without special tokens around them; thread-safe. With
  /// `continues`, the text goes on from an earlier one, so no space is put before it. Invalid UTF-8
  /// becomes U+FFFD, with one warning.
  void encode(std::string_view text, bool continues, std::vector<std::int32_t>& out) const;
  /// Special tokens appear as they are written; ids without a token give nothing; bytes that make
  /// no character become U+FFFD.
  std::string decode(const std::vector<std::int32_t>& tokens) const;
  /// The bytes of one token, which may be part of a character.
  std::string_view bytes_of(std::int32_t token) const;

  /// One more than the largest id.
  std::int64_t vocab_size() const;
  const SpecialTokens& special() const;
  const TextFrame& frame() const;
  /// The files that decide what this tokenizer does.
  const std::vector<std::filesystem::path>& files() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trainctl::hf
