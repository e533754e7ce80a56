#include "data/megatron_index.h"

#include <cassert>
#include <cstring>
#include <string>

#include "base/error.h"

namespace trainctl {

namespace {

/// The arrays start at byte 34, so nothing in them is aligned.
template <class T>
T load(std::span<const std::byte> bytes, std::int64_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

std::string hex(std::span<const std::byte> bytes) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (std::byte byte : bytes) {
    if (!text.empty()) text += ' ';
    text += digits[std::to_integer<unsigned>(byte) >> 4U];
    text += digits[std::to_integer<unsigned>(byte) & 15U];
  }
  return text;
}

/// Width 0 for codes of other than integer types.
TokenElement element_of(std::uint8_t code) {
  switch (code) {
    case 1: return {1, false};
    case 2: return {1, true};
    case 3: return {2, true};
    case 4: return {4, true};
    case 5: return {8, true};
    case 8: return {2, false};
    default: return {0, false};
  }
}

/// How many sequences or documents are checked before their pages are given back.
constexpr std::int64_t pages_every = std::int64_t{1} << 22;

}  // namespace

void MegatronIndex::fail(std::int64_t offset, const std::string& message) const {
  throw Error(ExitCode::bad_data,
              path_.string() + ": offset " + std::to_string(offset) + ": " + message);
}

MegatronIndex::MegatronIndex(const std::filesystem::path& path, const File& bin)
    : path_(path), mapping_(File::open_to_read(path)) {
  read_header();
  check_sequences(bin);
  check_documents();
  mapping_.release_pages();
  tokens_ = bin.size() / element_.bytes;
}

void MegatronIndex::read_header() {
  const auto bytes = mapping_.bytes();
  const auto size = static_cast<std::uint64_t>(bytes.size());
  if (size < megatron_header_bytes) {
    fail(static_cast<std::int64_t>(size),
         "the file ends here; the header of a Megatron index has 34 bytes");
  }
  const auto magic = std::as_bytes(std::span(megatron_magic));
  if (std::memcmp(bytes.data(), magic.data(), magic.size()) != 0) {
    fail(0, "expected the magic " + hex(magic) + " of a Megatron index, found " +
                hex(bytes.first(magic.size())));
  }
  const auto version = load<std::uint64_t>(bytes, 9);
  if (version != 1) fail(9, "expected version 1, found " + std::to_string(version));
  const auto code = load<std::uint8_t>(bytes, 17);
  element_ = element_of(code);
  if (element_.bytes == 0) {
    fail(17,
         "expected the code of an integer type (1 u8, 2 i8, 3 i16, 4 i32, 5 i64, 8 u16), found " +
             std::to_string(code));
  }
  const auto sequences = load<std::uint64_t>(bytes, 18);
  const auto entries = load<std::uint64_t>(bytes, 26);
  const std::uint64_t room = size - megatron_header_bytes;
  if (sequences > room / 12 || entries > (room - 12 * sequences) / 8) {
    fail(18, std::to_string(sequences) + " sequences and " + std::to_string(entries) +
                 " document entries do not fit into the file's " + std::to_string(size) + " bytes");
  }
  const std::uint64_t needed = megatron_header_bytes + 12 * sequences + 8 * entries;
  if (size - needed == sequences && sequences > 0) {
    fail(static_cast<std::int64_t>(needed),
         "one more byte per sequence follows: a multimodal index, which is not read");
  }
  if (needed != size) {
    fail(18, "expected a file of " + std::to_string(needed) + " bytes for " +
                 std::to_string(sequences) + " sequences and " + std::to_string(entries) +
                 " document entries, found " + std::to_string(size));
  }
  if (entries == 0) fail(26, "expected at least one document entry, found 0");
  sequences_ = static_cast<std::int64_t>(sequences);
  documents_ = static_cast<std::int64_t>(entries) - 1;
}

/// Sequences must lie back to back and fill the .bin: then a token's number is its place there, and
/// no look-up can lead outside.
void MegatronIndex::check_sequences(const File& bin) const {
  const std::int64_t size = bin.size();
  std::int64_t expected = 0;
  for (std::int64_t sequence = 0; sequence < sequences_; ++sequence) {
    const std::int64_t tokens = length(sequence);
    const std::int64_t at = pointer(sequence);
    const std::int64_t end = expected + tokens * element_.bytes;
    if (at != expected) {
      fail(pointers_at() + 8 * sequence, "sequence " + std::to_string(sequence) +
                                             " expected at byte " + std::to_string(expected) +
                                             " of the .bin, found " + std::to_string(at));
    }
    if (tokens < 0 || end > size) {
      fail(megatron_header_bytes + 4 * sequence,
           "sequence " + std::to_string(sequence) + " of " + std::to_string(tokens) +
               " tokens at byte " + std::to_string(at) + " does not fit into " +
               bin.path().string() + " of " + std::to_string(size) + " bytes");
    }
    expected = end;
    if (sequence % pages_every == pages_every - 1) mapping_.release_pages();
  }
  if (expected != size) {
    fail(megatron_header_bytes, "the sequences take " + std::to_string(expected) + " bytes, but " +
                                    bin.path().string() + " has " + std::to_string(size) +
                                    " bytes");
  }
}

void MegatronIndex::check_documents() const {
  std::int64_t before = 0;
  for (std::int64_t entry = 0; entry <= documents_; ++entry) {
    const std::int64_t end = document_end(entry);
    const bool fits = entry == 0 ? end == 0 : end >= before && end <= sequences_;
    if (!fits) {
      fail(documents_at() + 8 * entry, "document entry " + std::to_string(entry) +
                                           " expected in [" + std::to_string(before) + ", " +
                                           std::to_string(entry == 0 ? 0 : sequences_) +
                                           "], found " + std::to_string(end));
    }
    before = end;
    if (entry % pages_every == pages_every - 1) mapping_.release_pages();
  }
  if (before != sequences_) {
    fail(documents_at() + 8 * documents_, "the last document ends at sequence " +
                                              std::to_string(before) + ", but there are " +
                                              std::to_string(sequences_));
  }
}

std::int64_t MegatronIndex::length(std::int64_t sequence) const {
  return load<std::int32_t>(mapping_.bytes(), megatron_header_bytes + 4 * sequence);
}

std::int64_t MegatronIndex::pointer(std::int64_t sequence) const {
  return load<std::int64_t>(mapping_.bytes(), pointers_at() + 8 * sequence);
}

std::int64_t MegatronIndex::document_end(std::int64_t entry) const {
  return load<std::int64_t>(mapping_.bytes(), documents_at() + 8 * entry);
}

std::int64_t MegatronIndex::document_start(std::int64_t index) const {
  assert(index >= 0 && index < documents_);
  const std::int64_t sequence = document_end(index);
  return sequence == sequences_ ? tokens_ : pointer(sequence) / element_.bytes;
}

}  // namespace trainctl
