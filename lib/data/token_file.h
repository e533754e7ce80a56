// Token files as read-only sequences of tokens and documents: Megatron .bin/.idx, llm.c .bin,
// nanoGPT .bin (docs/formats.md). Memory-mapped; opening checks sizes and magic, reading checks
// nothing twice.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace trainctl {

enum class TokenFormat { megatron, llmc, nanogpt };

class TokenFile {
 public:
  /// `path`: a prefix with .bin and .idx, or one .bin file whose header tells llm.c from nanoGPT
  /// (no header). Throws Error{missing_input} or Error{bad_data} that names the file, the offset
  /// and what was expected there.
  static TokenFile open(const std::filesystem::path& path);
  ~TokenFile();
  TokenFile(TokenFile&&) noexcept;
  TokenFile& operator=(TokenFile&&) noexcept;

  TokenFormat format() const;
  const std::filesystem::path& path() const;
  int token_bytes() const;
  std::int64_t tokens() const;     // of the whole file
  std::int64_t sequences() const;  // 1 for formats without an index
  std::int64_t documents() const;
  /// First token of document `index`; document_start(documents()) == tokens().
  std::int64_t document_start(std::int64_t index) const;
  /// Tokens [first, first + out.size()); must lie inside the file.
  void read(std::int64_t first, std::span<std::int32_t> out) const;
  /// Throws Error{bad_data} with the first token >= vocab_size or < 0 and its offset.
  void check_vocabulary(std::int64_t vocab_size) const;

 private:
  struct Impl;
  explicit TokenFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace trainctl
