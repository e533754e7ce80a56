// Text to tokens and back: bytes, or a SentencePiece model.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace trainctl {

class Tokenizer {
 public:
  /// "byte" or "sentencepiece:MODEL". Throws Error{missing_input | bad_data | usage}, naming what
  /// was given.
  static Tokenizer open(const std::string& specification);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  /// Thread-safe. Appends the tokens of `text` to `out`.
  void encode(std::string_view text, std::vector<std::int32_t>& out) const;
  std::string decode(const std::vector<std::int32_t>& tokens) const;
  std::int64_t vocab_size() const;
  /// End-of-document token, or -1 where the tokenizer has none (byte).
  std::int32_t end_of_document() const;
  const std::string& specification() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace trainctl
