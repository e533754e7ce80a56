// Writes a Megatron .bin/.idx pair as a stream, in constant memory: temporary files beside the
// output that take its name only in commit(). Without commit() nothing is left.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "data/file.h"

namespace trainctl {

/// A file that appears under its name only when published; until then it lies beside it under a
/// unique temporary name, which the destructor removes. Collects small writes. Errors are those of
/// File::write.
class OutputFile {
 public:
  explicit OutputFile(std::filesystem::path target);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::span<const char> bytes);
  template <class T>
  void write_value(T value) {
    write(std::span(reinterpret_cast<const char*>(&value), sizeof value));
  }
  void flush();
  /// Gives the flushed file its name, replacing what had it. Throws Error{io}.
  void publish();
  File& file() { return file_; }
  const std::filesystem::path& target() const { return target_; }

 private:
  std::filesystem::path target_;
  File file_;
  std::vector<char> buffer_;
  bool is_published_ = false;
};

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
  OutputFile bin_;
  OutputFile idx_;                    // header, lengths; then pointers and documents in commit()
  std::vector<std::int64_t> joined_;  // sequences after which the document goes on: few
  std::vector<char> narrowed_;
  std::int64_t documents_ = 0;
  std::int64_t sequences_ = 0;
  std::int64_t tokens_ = 0;
  std::int64_t sequence_tokens_ = 0;
  bool in_document_ = false;
};

}  // namespace trainctl
