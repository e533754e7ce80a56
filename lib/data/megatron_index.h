// The .idx file beside a Megatron .bin: element type, sequence lengths and offsets, documents
// (docs/formats.md). Mapped; checked completely when opened, so look-ups need no checks.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>

#include "base/file.h"

namespace trainctl {

inline constexpr std::array<char, 9> megatron_magic{'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0};
inline constexpr std::int64_t megatron_header_bytes = 34;
inline constexpr std::uint8_t megatron_code_u16 = 8;
inline constexpr std::uint8_t megatron_code_i32 = 4;

/// An integer type of tokens on disk.
struct TokenElement {
  int bytes = 2;
  bool is_signed = false;
};

class MegatronIndex {
 public:
  MegatronIndex() = default;
  /// Throws Error{missing_input | bad_data} with the offset, what was found there and what was
  /// expected; `bin` is the file that the index describes.
  MegatronIndex(const std::filesystem::path& path, const File& bin);

  TokenElement element() const { return element_; }
  std::int64_t sequences() const { return sequences_; }
  std::int64_t documents() const { return documents_; }
  /// First token of document `index` of [0, documents()).
  std::int64_t document_start(std::int64_t index) const;

 private:
  void read_header();
  void check_sequences(const File& bin) const;
  void check_documents() const;
  std::int64_t length(std::int64_t sequence) const;
  std::int64_t pointer(std::int64_t sequence) const;
  std::int64_t document_end(std::int64_t entry) const;
  std::int64_t pointers_at() const { return megatron_header_bytes + 4 * sequences_; }
  std::int64_t documents_at() const { return megatron_header_bytes + 12 * sequences_; }
  [[noreturn]] void fail(std::int64_t offset, const std::string& message) const;

  std::filesystem::path path_;
  Mapping mapping_;
  TokenElement element_;
  std::int64_t sequences_ = 0;
  std::int64_t documents_ = 0;
  std::int64_t tokens_ = 0;
};

}  // namespace trainctl
