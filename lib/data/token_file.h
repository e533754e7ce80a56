// Token files as read-only sequences of tokens and documents: Megatron .bin/.idx, llm.c .bin,
// nanoGPT .bin (docs/formats.md). The index is mapped; tokens come by positioned reads, so that
// resident memory stays flat and a file that shrinks under us is an Error, not a signal. Opening
// checks magic, sizes and the whole index. Reading is thread-safe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"

namespace trainctl {

class TokenFile {
 public:
  /// `path`: a prefix with .bin and .idx (either file of the pair names it too), or one .bin file
  /// whose header tells llm.c from nanoGPT (no header). Throws Error{missing_input} or
  /// Error{bad_data} that names the file, the offset and what was expected there.
  static TokenFile open(const std::filesystem::path& path);
  ~TokenFile();
  TokenFile(TokenFile&&) noexcept;
  TokenFile& operator=(TokenFile&&) noexcept;

  std::string_view format() const;  // "megatron", "llm.c" or "nanogpt"
  /// The .bin file.
  const std::filesystem::path& path() const;
  int token_bytes() const;
  std::int64_t tokens() const;     // tokens of the whole file, at least 1
  std::int64_t sequences() const;  // 1 for formats without an index
  std::int64_t documents() const;
  /// First token of document `index`; document_start(documents()) == tokens().
  std::int64_t document_start(std::int64_t index) const;
  /// Reads tokens [first, first + out.size()), which must lie inside the file. Values beyond int32
  /// become negative. Throws Error{bad_data} when the file has shrunk since it was opened.
  void read(std::int64_t first, std::span<std::int32_t> out) const;
  /// Reads the whole file with thread_count() threads. Throws Error{bad_data} with the first token
  /// >= vocab_size or < 0 and its offset.
  void check_vocabulary(std::int64_t vocab_size) const;

 private:
  struct Impl;
  explicit TokenFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Writes a Megatron .bin/.idx pair as a stream, in constant memory: temporary files in the output's
// folder that take its name only in commit(). Without commit() nothing is left.

class TokenWriter {
 public:
  /// `vocab_size` decides between u16 and i32. A document longer than `longest_sequence` tokens is
  /// cut into several sequences, since the index counts a sequence in 32 bits.
  TokenWriter(const std::filesystem::path& prefix, std::int64_t vocab_size,
              std::int64_t longest_sequence = std::int64_t{1} << 30);

  /// Appends tokens to the current document; each < vocab_size.
  void append(std::span<const std::int32_t> tokens);
  /// Ends the document with `end_token` unless that is negative. A document without tokens is left
  /// out.
  void end_document(std::int32_t end_token);
  /// Completes the files, makes them durable and gives them their names, replacing older ones.
  /// Throws Error{io}.
  void commit();

  std::int64_t documents() const { return documents_; }
  std::int64_t tokens() const { return tokens_; }
  int token_bytes() const { return token_bytes_; }

 private:
  void write_tokens(std::span<const std::int32_t> tokens);
  void end_sequence();
  void write_index_tail();

  int token_bytes_;
  std::int64_t longest_sequence_;
  WholeFile bin_;
  WholeFile idx_;                     // header, lengths; then pointers and documents in commit()
  std::vector<std::int64_t> joined_;  // sequences after which their document continues: few
  std::vector<char> narrowed_;
  std::int64_t documents_ = 0;
  std::int64_t sequences_ = 0;
  std::int64_t tokens_ = 0;
  std::int64_t sequence_tokens_ = 0;
  bool in_document_ = false;
};

}  // namespace trainctl
