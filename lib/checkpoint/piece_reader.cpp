#include "checkpoint/piece_reader.h"

#include <algorithm>
#include <cstring>

#include "base/at.h"
#include "base/error.h"
#include "checkpoint/hash_bytes.h"

namespace trainctl {

namespace {

constexpr std::size_t most_open = 64;

/// Stored values as fp32. No value is in two blocks.
void widen(DType dtype, std::span<const std::byte> stored, float* out) {
  if (dtype == DType::f32) {
    std::memcpy(out, stored.data(), stored.size());
    return;
  }
  for (std::size_t at = 0; at < stored.size(); at += sizeof(bf16)) {
    bf16 value;
    std::memcpy(&value, stored.data() + at, sizeof value);
    *out++ = to_float(value);
  }
}

}  // namespace

PieceReader::PieceReader(const Manifest& manifest, std::filesystem::path directory)
    : manifest_(manifest), directory_(std::move(directory)), block_(hashed_bytes) {}

void PieceReader::copy(const SavedTensor& tensor, const SavedPiece& piece, const Box& part,
                       const Box& to, float* target) {
  for (const BoxRun& run : runs_between(part, piece.box, to)) {
    float* out = target + run.to;
    const std::int64_t size = size_of(tensor.dtype);
    std::int64_t from = run.from * size;
    std::int64_t left = run.length * size;
    while (left > 0) {
      const std::int64_t number = from / hashed_bytes;
      load(tensor, piece, number);
      const std::int64_t inside = from - number * hashed_bytes;
      const std::int64_t bytes = std::min(left, hashed_bytes - inside);
      widen(tensor.dtype, {block_.data() + inside, static_cast<std::size_t>(bytes)}, out);
      out += bytes / size;
      from += bytes;
      left -= bytes;
    }
  }
}

void PieceReader::load(const SavedTensor& tensor, const SavedPiece& piece, std::int64_t number) {
  if (loaded_ == &piece && number_ == number) return;
  loaded_ = nullptr;
  const std::int64_t begin = number * hashed_bytes;
  const std::int64_t bytes = std::min(hashed_bytes, tensor.bytes_of(piece) - begin);
  const std::span block(block_.data(), static_cast<std::size_t>(bytes));
  const File& file = open(piece.file);
  file.read_at(piece.offset + begin, {reinterpret_cast<char*>(block.data()), block.size()});
  require(hash_bytes(block) == at(piece.hashes, number), ExitCode::bad_data,
          file.path().string() + ": " + tensor.value + " of " + tensor.name + " " +
              piece.box.to_string() + " is damaged: the " + std::to_string(bytes) +
              " bytes at offset " + std::to_string(piece.offset + begin) +
              " do not have the hash in the manifest");
  loaded_ = &piece;
  number_ = number;
}

const File& PieceReader::open(int file) {
  auto found = files_.find(file);
  if (found == files_.end()) {
    if (files_.size() >= most_open) files_.clear();
    found =
        files_.emplace(file, File::open_to_read(directory_ / at(manifest_.files, file).name)).first;
  }
  return found->second;
}

}  // namespace trainctl
