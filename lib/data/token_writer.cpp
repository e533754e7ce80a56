#include "data/token_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "data/megatron_index.h"

namespace trainctl {

namespace {

/// Makes renames in a folder durable; it is not an error if the file system cannot.
void sync_folder(const std::filesystem::path& file) {
  const auto folder = file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  ::fsync(descriptor);
  ::close(descriptor);
}

}  // namespace

TokenWriter::TokenWriter(const std::filesystem::path& prefix, std::int64_t vocab_size,
                         std::int64_t longest_sequence)
    : token_bytes_(vocab_size < 65500 ? 2 : 4),
      longest_sequence_(longest_sequence),
      bin_(prefix.string() + ".bin"),
      idx_(prefix.string() + ".idx") {
  const std::array<char, megatron_header_bytes> place_for_header{};
  idx_.write(place_for_header);
}

void TokenWriter::append(std::span<const std::int32_t> tokens) {
  while (!tokens.empty()) {
    if (sequence_tokens_ == longest_sequence_) {
      end_sequence();
      joined_.push_back(sequences_);
    }
    const auto room = static_cast<std::size_t>(longest_sequence_ - sequence_tokens_);
    const auto part = tokens.first(std::min(room, tokens.size()));
    write_tokens(part);
    sequence_tokens_ += std::ssize(part);
    in_document_ = true;
    tokens = tokens.subspan(part.size());
  }
}

void TokenWriter::write_tokens(std::span<const std::int32_t> tokens) {
  tokens_ += std::ssize(tokens);
  if (token_bytes_ == 4) {
    return bin_.write({reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes()});
  }
  narrowed_.resize(tokens.size() * 2);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto narrow = static_cast<std::uint16_t>(tokens[i]);
    std::memcpy(narrowed_.data() + 2 * i, &narrow, sizeof narrow);
  }
  bin_.write(narrowed_);
}

void TokenWriter::end_sequence() {
  idx_.write_value(static_cast<std::int32_t>(sequence_tokens_));
  ++sequences_;
  sequence_tokens_ = 0;
}

void TokenWriter::end_document(std::int32_t end_token) {
  if (!in_document_) return;
  if (end_token >= 0) append(std::array{end_token});
  end_sequence();
  ++documents_;
  in_document_ = false;
}

/// The lengths are on disk already; the offsets follow from reading them again.
void TokenWriter::write_index_tail() {
  idx_.flush();
  std::vector<std::int32_t> lengths(std::size_t{1} << 16);
  std::int64_t pointer = 0;
  for (std::int64_t first = 0; first < sequences_;) {
    const auto count = std::min(std::ssize(lengths), sequences_ - first);
    const auto bytes = static_cast<std::size_t>(count) * sizeof(std::int32_t);
    idx_.file().read_at(megatron_header_bytes + 4 * first,
                        {reinterpret_cast<char*>(lengths.data()), bytes});
    for (std::int64_t i = 0; i < count; ++i) {
      idx_.write_value(pointer);
      pointer += std::int64_t{lengths[static_cast<std::size_t>(i)]} * token_bytes_;
    }
    first += count;
  }
  auto joined = joined_.begin();
  idx_.write_value(std::int64_t{0});
  for (std::int64_t end = 1; end <= sequences_; ++end) {
    if (joined != joined_.end() && *joined == end) {
      ++joined;
      continue;
    }
    idx_.write_value(end);
  }
  idx_.flush();
}

void TokenWriter::commit() {
  assert(!in_document_);
  write_index_tail();
  std::array<char, megatron_header_bytes> header{};
  const std::uint64_t version = 1;
  const std::uint8_t code = token_bytes_ == 2 ? megatron_code_u16 : megatron_code_i32;
  const auto sequences = static_cast<std::uint64_t>(sequences_);
  const auto entries = static_cast<std::uint64_t>(documents_ + 1);
  std::memcpy(header.data(), megatron_magic.data(), megatron_magic.size());
  std::memcpy(header.data() + 9, &version, sizeof version);
  std::memcpy(header.data() + 17, &code, sizeof code);
  std::memcpy(header.data() + 18, &sequences, sizeof sequences);
  std::memcpy(header.data() + 26, &entries, sizeof entries);
  idx_.file().write_at(0, header);

  // An old index goes first and the new one comes last: at no time does an index lie beside a .bin
  // that it does not describe.
  std::error_code ignored;
  std::filesystem::remove(idx_.target(), ignored);
  bin_.publish();
  try {
    idx_.publish();
  } catch (const Error&) {
    std::filesystem::remove(bin_.target(), ignored);
    throw;
  }
  sync_folder(bin_.target());
}

}  // namespace trainctl
