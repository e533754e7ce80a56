#include "data/token_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/parallel_for.h"
#include "base/text.h"

namespace trainctl {

// The .idx file of a Megatron .bin: element type, sequence lengths and offsets, documents
// (docs/formats.md). Mapped; checked completely when opened, so look-ups need no checks.

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

/// The integer type of a code; width 0 for codes of other types.
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

/// The number of sequences or documents that are checked before their pages are released.
constexpr std::int64_t pages_every = std::int64_t{1} << 22;

}  // namespace

void MegatronIndex::fail(std::int64_t offset, const std::string& message) const {
  throw Error(ExitCode::bad_data, formatted("{}: offset {}: {}", path_.string(), offset, message));
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
  if (version != 1) fail(9, formatted("expected version 1, found {}", version));
  const auto code = load<std::uint8_t>(bytes, 17);
  element_ = element_of(code);
  if (element_.bytes == 0) {
    fail(17, formatted("expected the code of an integer type (1 u8, 2 i8, 3 i16, 4 i32, 5 i64, 8 "
                       "u16), found {}",
                       code));
  }
  const auto sequences = load<std::uint64_t>(bytes, 18);
  const auto entries = load<std::uint64_t>(bytes, 26);
  const std::uint64_t room = size - megatron_header_bytes;
  if (sequences > room / 12 || entries > (room - 12 * sequences) / 8) {
    fail(18, formatted("{} sequences and {} document entries do not fit into the file's {} bytes",
                       sequences, entries, size));
  }
  const std::uint64_t needed = megatron_header_bytes + 12 * sequences + 8 * entries;
  if (size - needed == sequences && sequences > 0) {
    fail(static_cast<std::int64_t>(needed),
         "one more byte per sequence follows: a multimodal index, which is not read");
  }
  if (needed != size) {
    fail(18,
         formatted("expected a file of {} bytes for {} sequences and {} document entries, found {}",
                   needed, sequences, entries, size));
  }
  if (entries == 0) fail(26, "expected at least one document entry, found 0");
  sequences_ = static_cast<std::int64_t>(sequences);
  documents_ = static_cast<std::int64_t>(entries) - 1;
}

/// Checks that sequences lie back to back and fill the .bin: then a token's number is its place in
/// the .bin, and no look-up can lead outside.
void MegatronIndex::check_sequences(const File& bin) const {
  const std::int64_t size = bin.size();
  std::int64_t expected = 0;
  for (std::int64_t sequence = 0; sequence < sequences_; ++sequence) {
    const std::int64_t tokens = length(sequence);
    const std::int64_t at = pointer(sequence);
    const std::int64_t end = expected + tokens * element_.bytes;
    if (at != expected) {
      fail(pointers_at() + 8 * sequence,
           formatted("sequence {} expected at byte {} of the .bin, found {}", sequence, expected,
                     at));
    }
    if (tokens < 0 || end > size) {
      fail(megatron_header_bytes + 4 * sequence,
           formatted("sequence {} of {} tokens at byte {} does not fit into {} of {} bytes",
                     sequence, tokens, at, bin.path().string(), size));
    }
    expected = end;
    if (sequence % pages_every == pages_every - 1) mapping_.release_pages();
  }
  if (expected != size) {
    fail(megatron_header_bytes, formatted("the sequences take {} bytes, but {} has {} bytes",
                                          expected, bin.path().string(), size));
  }
}

void MegatronIndex::check_documents() const {
  std::int64_t before = 0;
  for (std::int64_t entry = 0; entry <= documents_; ++entry) {
    const std::int64_t end = document_end(entry);
    const bool fits = entry == 0 ? end == 0 : end >= before && end <= sequences_;
    if (!fits) {
      fail(documents_at() + 8 * entry, formatted("document entry {} expected in [{}, {}], found {}",
                                                 entry, before, entry == 0 ? 0 : sequences_, end));
    }
    before = end;
    if (entry % pages_every == pages_every - 1) mapping_.release_pages();
  }
  if (before != sequences_) {
    fail(documents_at() + 8 * documents_,
         formatted("the last document ends at sequence {}, but there are {}", before, sequences_));
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

namespace {

/// The contents of a .bin: their type and place.
struct Contents {
  std::string_view format;
  std::int64_t first_byte;  // offset of token 0
  TokenElement element;
  std::int64_t tokens;

  std::int64_t byte_of(std::int64_t token) const { return first_byte + token * element.bytes; }
};

constexpr std::int64_t llmc_header_bytes = 1024;

[[noreturn]] void fail(const std::filesystem::path& path, std::int64_t offset,
                       const std::string& message) {
  throw Error(ExitCode::bad_data, formatted("{}: offset {}: {}", path.string(), offset, message));
}

std::filesystem::path with_suffix(const std::filesystem::path& prefix, const char* suffix) {
  return prefix.string() + suffix;
}

bool is_there(const std::filesystem::path& path) { return kind_of_file(path) != FileKind::none; }

/// Names another kind of file by the first bytes of a .bin, which are not headerless tokens.
const char* known_but_not_tokens(std::int32_t magic) {
  switch (magic) {
    case 20240522: return "an llm.c evaluation file";
    case 20240326: return "an llm.c model file";
    case 20240527: return "an llm.c state file";
    case 0x2e4e4942: return "an llmq token file";  // "BIN."
    default: return nullptr;
  }
}

struct LlmcKind {
  std::int32_t magic;
  std::int32_t version;
  TokenElement element;
};
constexpr std::array<LlmcKind, 2> llmc_kinds{
    LlmcKind{20240520, 1, {2, false}},
    LlmcKind{20240801, 7, {4, false}},
};

/// The files of a token file; `idx` is empty if there is no index.
struct Place {
  std::filesystem::path bin;
  std::filesystem::path idx;
};

Place resolve(const std::filesystem::path& path) {
  std::filesystem::path prefix = path;
  const bool names_bin = path.extension() == ".bin";
  if (names_bin || path.extension() == ".idx") prefix.replace_extension();
  const Place pair{with_suffix(prefix, ".bin"), with_suffix(prefix, ".idx")};
  const bool has_bin = is_there(pair.bin);
  const bool has_idx = is_there(pair.idx);
  if (has_bin && has_idx) return pair;
  if (has_bin && names_bin) return {pair.bin, {}};
  if (!has_bin && !has_idx) {
    const bool names_token_file = names_bin || path.extension() == ".idx";
    const std::string full = std::filesystem::absolute(path).lexically_normal().string();
    if (names_token_file) throw Error(ExitCode::missing_input, "no token file " + full);
    throw Error(ExitCode::missing_input, "no text file or folder " + full + ", and no token file " +
                                             pair.bin.filename().string() + " with " +
                                             pair.idx.filename().string() + " there");
  }
  throw Error(ExitCode::missing_input,
              (has_bin ? pair.idx : pair.bin).string() +
                  " is missing: a Megatron token file is a pair of .bin and .idx" +
                  (has_bin ? " (a single llm.c or nanoGPT file is named with its .bin)" : ""));
}

Contents contents_of_llmc(const File& bin, const LlmcKind& kind,
                          const std::array<std::int32_t, 3>& header) {
  const std::int64_t size = bin.size();
  if (size < llmc_header_bytes) {
    fail(bin.path(), size, "the file ends here; the header of an llm.c token file has 1024 bytes");
  }
  if (header[1] != kind.version) {
    fail(bin.path(), 4, formatted("expected llm.c version {}, found {}", kind.version, header[1]));
  }
  const std::int64_t tokens = header[2];
  if (tokens < 0 || llmc_header_bytes + tokens * kind.element.bytes != size) {
    fail(bin.path(), 8,
         formatted("the header counts {} tokens of {} bytes, but {} bytes follow the header",
                   tokens, kind.element.bytes, size - llmc_header_bytes));
  }
  if (tokens == 0) fail(bin.path(), 8, "the file contains no tokens");
  return {"llm.c", llmc_header_bytes, kind.element, tokens};
}

Contents contents_of_single_file(const File& bin) {
  const std::int64_t size = bin.size();
  std::array<std::int32_t, 3> header{};  // magic, version, tokens
  const auto known = std::min(static_cast<std::size_t>(size), sizeof header);
  bin.read_at(0, std::span(reinterpret_cast<char*>(header.data()), known));
  if (const char* other = known_but_not_tokens(header[0])) {
    fail(bin.path(), 0, "expected tokens, found the magic of " + std::string(other));
  }
  for (const LlmcKind& kind : llmc_kinds) {
    if (header[0] == kind.magic) return contents_of_llmc(bin, kind, header);
  }
  if (size % 2 != 0) {
    fail(bin.path(), size - 1,
         formatted("a file without a header holds 2-byte tokens, but its size of {} bytes is odd",
                   size));
  }
  return {"nanogpt", 0, {2, false}, size / 2};
}

/// Converts elements from their form on disk to int32.
template <class T>
void widen(const char* source, std::span<std::int32_t> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, source + i * sizeof(T), sizeof value);
    if constexpr (sizeof(T) == 8) {
      out[i] = std::in_range<std::int32_t>(value) ? static_cast<std::int32_t>(value) : -1;
    } else {
      out[i] = static_cast<std::int32_t>(value);
    }
  }
}

void widen(const char* source, TokenElement element, std::span<std::int32_t> out) {
  switch (element.bytes) {
    case 1:
      return element.is_signed ? widen<std::int8_t>(source, out) : widen<std::uint8_t>(source, out);
    case 2:
      return element.is_signed ? widen<std::int16_t>(source, out)
                               : widen<std::uint16_t>(source, out);
    case 4: return widen<std::int32_t>(source, out);
    case 8: return widen<std::int64_t>(source, out);
    default: assert(false);
  }
}

/// Place of the first element that is >= `limit` as an unsigned number, or -1. Computes the maximum
/// first, since that loop vectorises.
template <class Unsigned>
std::int64_t first_at_least(const char* source, std::int64_t count, std::uint64_t limit) {
  const auto value = [source](std::int64_t i) {
    Unsigned loaded;
    std::memcpy(&loaded, source + i * static_cast<std::int64_t>(sizeof loaded), sizeof loaded);
    return loaded;
  };
  Unsigned highest = 0;
  for (std::int64_t i = 0; i < count; ++i) highest = std::max(highest, value(i));
  if (highest < limit) return -1;
  std::int64_t place = 0;
  while (value(place) < limit) ++place;
  return place;
}

std::int64_t first_at_least(const char* source, std::int64_t count, int bytes,
                            std::uint64_t limit) {
  switch (bytes) {
    case 1: return first_at_least<std::uint8_t>(source, count, limit);
    case 2: return first_at_least<std::uint16_t>(source, count, limit);
    case 4: return first_at_least<std::uint32_t>(source, count, limit);
    default: return first_at_least<std::uint64_t>(source, count, limit);
  }
}

/// The true value of one element, for messages.
std::string printed(const char* source, TokenElement element) {
  if (element.bytes == 8) {
    std::int64_t value;
    std::memcpy(&value, source, sizeof value);
    return std::to_string(value);
  }
  std::array<std::int32_t, 1> value{};
  widen(source, element, value);
  return element.is_signed ? std::to_string(value[0])
                           : std::to_string(static_cast<std::uint32_t>(value[0]));
}

void lower_to(std::atomic<std::int64_t>& least, std::int64_t candidate) {
  std::int64_t seen = least.load();
  while (candidate < seen && !least.compare_exchange_weak(seen, candidate)) {
  }
}

/// The first unsigned value that is bad: a negative element is a large one when taken as unsigned,
/// so one limit finds both.
std::uint64_t bad_from(TokenElement element, std::int64_t vocab_size) {
  const auto wanted = static_cast<std::uint64_t>(std::max<std::int64_t>(vocab_size, 0));
  if (!element.is_signed) return wanted;
  return std::min(wanted, std::uint64_t{1} << (8 * element.bytes - 1));
}

}  // namespace

struct TokenFile::Impl {
  Contents contents;
  File bin;
  std::optional<MegatronIndex> index;  // only of "megatron"
};

TokenFile::TokenFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TokenFile::~TokenFile() = default;
TokenFile::TokenFile(TokenFile&&) noexcept = default;
TokenFile& TokenFile::operator=(TokenFile&&) noexcept = default;

TokenFile TokenFile::open(const std::filesystem::path& path) {
  const Place place = resolve(path);
  File bin = File::open_to_read(place.bin);
  require(bin.size() > 0, ExitCode::bad_data, place.bin.string() + ": the file is empty");
  if (place.idx.empty()) {
    const Contents contents = contents_of_single_file(bin);
    return TokenFile(std::make_unique<Impl>(Impl{contents, std::move(bin), std::nullopt}));
  }
  MegatronIndex index(place.idx, bin);
  const TokenElement element = index.element();
  const Contents contents{"megatron", 0, element, bin.size() / element.bytes};
  return TokenFile(std::make_unique<Impl>(Impl{contents, std::move(bin), std::move(index)}));
}

std::string_view TokenFile::format() const { return impl_->contents.format; }
const std::filesystem::path& TokenFile::path() const { return impl_->bin.path(); }
int TokenFile::token_bytes() const { return impl_->contents.element.bytes; }
std::int64_t TokenFile::tokens() const { return impl_->contents.tokens; }

std::int64_t TokenFile::sequences() const { return impl_->index ? impl_->index->sequences() : 1; }

std::int64_t TokenFile::documents() const { return impl_->index ? impl_->index->documents() : 1; }

std::int64_t TokenFile::document_start(std::int64_t index) const {
  assert(index >= 0 && index <= documents());
  if (index == documents()) return tokens();
  return impl_->index ? impl_->index->document_start(index) : 0;
}

void TokenFile::read(std::int64_t first, std::span<std::int32_t> out) const {
  assert(first >= 0 && static_cast<std::int64_t>(out.size()) <= tokens() - first);
  const Contents& contents = impl_->contents;
  std::array<char, 16384> buffer;
  const auto width = static_cast<std::size_t>(contents.element.bytes);
  while (!out.empty()) {
    const std::size_t count = std::min(out.size(), buffer.size() / width);
    impl_->bin.read_at(contents.byte_of(first), std::span(buffer.data(), count * width));
    widen(buffer.data(), contents.element, out.first(count));
    first += static_cast<std::int64_t>(count);
    out = out.subspan(count);
  }
}

void TokenFile::check_vocabulary(std::int64_t vocab_size) const {
  const Contents& contents = impl_->contents;
  const int width = contents.element.bytes;
  const std::uint64_t limit = bad_from(contents.element, vocab_size);
  if (width < 8 && limit >> (8 * width) != 0) return;  // every value of the type is allowed

  constexpr std::int64_t block_bytes = 1 << 16;
  const std::int64_t block = block_bytes / width;
  const std::int64_t blocks = (tokens() + block - 1) / block;
  const auto bytes_of = [&](std::int64_t at, std::span<char> buffer) {
    const std::int64_t count = std::min(block, tokens() - at * block);
    return buffer.first(static_cast<std::size_t>(count * width));
  };
  const auto first_bad = [&](std::span<const char> bytes) {
    return first_at_least(bytes.data(), std::ssize(bytes) / width, width, limit);
  };
  std::atomic<std::int64_t> bad_block{blocks};
  parallel_for(blocks, 16, [&](std::int64_t begin, std::int64_t end) {
    std::array<char, block_bytes> buffer;
    for (std::int64_t at = begin; at < end && at < bad_block.load(); ++at) {
      const std::span<char> bytes = bytes_of(at, buffer);
      const bool is_good =
          impl_->bin.try_read_at(contents.byte_of(at * block), bytes) && first_bad(bytes) < 0;
      if (!is_good) lower_to(bad_block, at);
    }
  });
  if (bad_block == blocks) return;

  std::array<char, block_bytes> buffer;
  const std::span<char> bytes = bytes_of(bad_block, buffer);
  impl_->bin.read_at(contents.byte_of(bad_block * block), bytes);
  const std::int64_t place = std::max<std::int64_t>(first_bad(bytes), 0);
  const std::int64_t token = bad_block * block + place;
  fail(path(), contents.byte_of(token),
       formatted("token number {} is {}; the vocabulary of {} allows 0 to {}", token,
                 printed(bytes.data() + place * width, contents.element), vocab_size,
                 vocab_size - 1));
}

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

/// The lengths are on disk already: reads them again and writes the offsets that follow from them.
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

  // The old index is removed first and the new one is published last, so an index never exists for
  // a .bin that it does not describe.
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
