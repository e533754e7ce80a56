// Writes a Megatron .bin/.idx pair as a stream, in constant memory: temporary files beside the
// output that take its name only in commit(). Without commit() nothing is left.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "base/whole_file.h"

namespace trainctl {

class TokenWriter {
 public:
  /// `vocab_size` decides between u16 and i32. A document longer than `longest_sequence` tokens is
  /// cut into several sequences, since the index counts a sequence in 32 bits.
  TokenWriter(const std::filesystem::path& prefix, std::int64_t vocab_size,
              std::int64_t longest_sequence = std::int64_t{1} << 30);

  /// Further tokens of the document being written; each < vocab_size.
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
  std::vector<std::int64_t> joined_;  // sequences after which the document goes on: few
  std::vector<char> narrowed_;
  std::int64_t documents_ = 0;
  std::int64_t sequences_ = 0;
  std::int64_t tokens_ = 0;
  std::int64_t sequence_tokens_ = 0;
  bool in_document_ = false;
};

}  // namespace trainctl
