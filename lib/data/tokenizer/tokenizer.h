// Text to tokens and back: bytes, a SentencePiece model or a Hugging Face tokenizer.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainctl {

class Tokenizer {
 public:
  /// "byte", "sentencepiece:MODEL" or "hf:DIR", where DIR has a tokenizer.json or is one. Throws
  /// Error{missing_input | bad_data | usage}, naming the specification.
  static Tokenizer open(const std::string& specification);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  /// Thread-safe. Appends the tokens of `text` to `out`; it may continue the text that was encoded
  /// before.
  void encode(std::string_view text, std::vector<std::int32_t>& out, bool continues = false) const;
  std::string decode(const std::vector<std::int32_t>& tokens) const;
  /// The number of text bytes of a token, independent of its neighbours: it may be a part of a
  /// character. Special tokens count as they are decoded.
  std::int64_t bytes_of(std::int32_t token) const;
  /// One more than the largest token.
  std::int64_t vocab_size() const;

  /// The tokens that the tokenizer puts around each document; `encode` does not add them.
  std::vector<std::int32_t> before_document() const;
  std::vector<std::int32_t> after_document() const;
  /// Begin, end and padding tokens, where the tokenizer has them.
  std::optional<std::int32_t> begin_token() const;
  std::optional<std::int32_t> end_token() const;
  std::optional<std::int32_t> padding_token() const;
  /// End-of-document token, or -1 where the tokenizer has none (byte).
  std::int32_t end_of_document() const { return end_token().value_or(-1); }
  /// Tokens that end generation: the end token, and others that the model's files name.
  std::vector<std::int32_t> stop_tokens() const;

  const std::string& specification() const;
  /// The files that determine this tokenizer.
  std::vector<std::filesystem::path> files() const;

 private:
  friend class TextStream;
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Converts tokens to text one by one: a character appears once all of its bytes are known.
class TextStream {
 public:
  /// The first token follows `last`. The tokenizer must outlive the stream.
  TextStream(const Tokenizer& tokenizer, std::int32_t last) : tokenizer_(tokenizer), last_(last) {}

  /// The text that can be shown after one more token and was not shown before.
  std::string add(std::int32_t token);
  /// The remaining text: U+FFFD if a character is unfinished.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  std::int32_t last_;
  std::string unfinished_;
};

}  // namespace trainctl
