#include "data/token_file.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <cstring>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/parallel_for.h"
#include "data/megatron_index.h"

namespace trainctl {

namespace {

/// What a .bin holds and where.
struct Contents {
  TokenFormat format;
  std::int64_t first_byte;  // of token 0
  TokenElement element;
  std::int64_t tokens;

  std::int64_t byte_of(std::int64_t token) const { return first_byte + token * element.bytes; }
};

constexpr std::int64_t llmc_header_bytes = 1024;

[[noreturn]] void fail(const std::filesystem::path& path, std::int64_t offset,
                       const std::string& message) {
  throw Error(ExitCode::bad_data,
              path.string() + ": offset " + std::to_string(offset) + ": " + message);
}

std::filesystem::path with_suffix(const std::filesystem::path& prefix, const char* suffix) {
  return prefix.string() + suffix;
}

bool is_there(const std::filesystem::path& path) { return kind_of_file(path) != FileKind::none; }

/// What else the first bytes of a .bin may be, so that it is not taken for headerless tokens.
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

/// The files that a name stands for; `idx` is empty for a file without an index.
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
    fail(bin.path(), 4,
         "expected llm.c version " + std::to_string(kind.version) + ", found " +
             std::to_string(header[1]));
  }
  const std::int64_t tokens = header[2];
  if (tokens < 0 || llmc_header_bytes + tokens * kind.element.bytes != size) {
    fail(bin.path(), 8,
         "the header counts " + std::to_string(tokens) + " tokens of " +
             std::to_string(kind.element.bytes) + " bytes, but " +
             std::to_string(size - llmc_header_bytes) + " bytes follow the header");
  }
  if (tokens == 0) fail(bin.path(), 8, "the file contains no tokens");
  return {TokenFormat::llmc, llmc_header_bytes, kind.element, tokens};
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
         "a file without a header holds 2-byte tokens, but its size of " + std::to_string(size) +
             " bytes is odd");
  }
  return {TokenFormat::nanogpt, 0, {2, false}, size / 2};
}

/// Elements as they lie on disk, as int32.
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

/// Place of the first element that is >= `limit` as an unsigned number, or -1. The maximum first:
/// that loop vectorises.
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

/// What unsigned value is the first bad one: a negative element is a large one when taken as
/// unsigned, so one limit finds both.
std::uint64_t bad_from(TokenElement element, std::int64_t vocab_size) {
  const auto wanted = static_cast<std::uint64_t>(std::max<std::int64_t>(vocab_size, 0));
  if (!element.is_signed) return wanted;
  return std::min(wanted, std::uint64_t{1} << (8 * element.bytes - 1));
}

}  // namespace

struct TokenFile::Impl {
  Contents contents;
  File bin;
  MegatronIndex index;  // empty unless megatron
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
    return TokenFile(std::make_unique<Impl>(Impl{contents, std::move(bin), {}}));
  }
  MegatronIndex index(place.idx, bin);
  const TokenElement element = index.element();
  const Contents contents{TokenFormat::megatron, 0, element, bin.size() / element.bytes};
  return TokenFile(std::make_unique<Impl>(Impl{contents, std::move(bin), std::move(index)}));
}

TokenFormat TokenFile::format() const { return impl_->contents.format; }
const std::filesystem::path& TokenFile::path() const { return impl_->bin.path(); }
int TokenFile::token_bytes() const { return impl_->contents.element.bytes; }
std::int64_t TokenFile::tokens() const { return impl_->contents.tokens; }

std::int64_t TokenFile::sequences() const {
  return format() == TokenFormat::megatron ? impl_->index.sequences() : 1;
}

std::int64_t TokenFile::documents() const {
  return format() == TokenFormat::megatron ? impl_->index.documents() : 1;
}

std::int64_t TokenFile::document_start(std::int64_t index) const {
  assert(index >= 0 && index <= documents());
  if (index == documents()) return tokens();
  return format() == TokenFormat::megatron ? impl_->index.document_start(index) : 0;
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
       "token number " + std::to_string(token) + " is " +
           printed(bytes.data() + place * width, contents.element) + "; the vocabulary of " +
           std::to_string(vocab_size) + " allows 0 to " + std::to_string(vocab_size - 1));
}

}  // namespace trainctl
