#include "checkpoint/rank_file.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/file.h"
#include "checkpoint/hash_bytes.h"

namespace trainctl {

namespace {

using Json = nlohmann::ordered_json;

std::string header_of(const std::vector<Region>& regions) {
  Json header;
  header["__metadata__"] = {{"format", "pt"}};
  std::int64_t offset = 0;
  for (const Region& region : regions) {
    Json shape = Json::array();
    for (int dim = 0; dim < region.box.extent.rank(); ++dim) {
      shape.push_back(region.box.extent[dim]);
    }
    const std::int64_t end = offset + region.memory.bytes();
    header[piece_name(region.value, region.name, region.box)] = {
        {"dtype", "F32"}, {"shape", std::move(shape)}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  const std::size_t whole = sizeof(std::uint64_t) + text.size();
  text.append((File::direct_alignment - whole % File::direct_alignment) % File::direct_alignment,
              ' ');
  return text;
}

/// Writes past the cache what comes in any pieces.
class DirectOutput {
 public:
  explicit DirectOutput(File& file)
      : file_(file),
        block_(static_cast<char*>(std::aligned_alloc(File::direct_alignment, block_bytes))) {
    if (!block_) throw std::bad_alloc();
    file.write_past_cache();
  }
  void write(std::span<const char> bytes) {
    while (!bytes.empty()) {
      const std::size_t part = std::min(bytes.size(), block_bytes - filled_);
      std::memcpy(block_.get() + filled_, bytes.data(), part);
      bytes = bytes.subspan(part);
      filled_ += part;
      if (filled_ == block_bytes) flush();
    }
  }
  /// The last block may be of any length.
  void flush() {
    file_.write({block_.get(), filled_});
    filled_ = 0;
  }

 private:
  static constexpr std::size_t block_bytes = 4 << 20;
  struct Free {
    void operator()(char* memory) const { std::free(memory); }
  };
  File& file_;
  std::unique_ptr<char, Free> block_;
  std::size_t filled_ = 0;
};

/// Writes one region and returns its hashes.
template <class Output>
std::vector<std::uint64_t> write_region(Output& output, const Tensor& memory,
                                        std::atomic<std::int64_t>& written) {
  std::vector<std::uint64_t> hashes;
  std::span<const std::byte> rest(static_cast<const std::byte*>(memory.data),
                                  static_cast<std::size_t>(memory.bytes()));
  while (!rest.empty()) {
    const auto block = rest.first(std::min<std::size_t>(rest.size(), hashed_bytes));
    hashes.push_back(hash_bytes(block));
    output.write({reinterpret_cast<const char*>(block.data()), block.size()});
    written += std::ssize(block);
    rest = rest.subspan(block.size());
  }
  return hashes;
}

}  // namespace

std::string rank_file_name(std::int64_t rank) {
  char name[48];
  std::snprintf(name, sizeof name, "rank-%05lld.safetensors", static_cast<long long>(rank));
  return name;
}

std::string piece_name(const std::string& value, const std::string& name, const Box& box) {
  return value + "/" + name + box.to_string();
}

RankPieces write_rank_file(const std::filesystem::path& directory, std::int64_t rank,
                           const std::vector<Region>& regions, WriteMode mode,
                           std::atomic<std::int64_t>& written) {
  RankPieces pieces;
  pieces.file.name = rank_file_name(rank);
  File file = File::create(directory / pieces.file.name);
  const std::string header = header_of(regions);
  const auto length = static_cast<std::uint64_t>(header.size());
  file.write({reinterpret_cast<const char*>(&length), sizeof length});
  file.write(header);
  std::optional<DirectOutput> direct;
  if (mode == WriteMode::past_cache) direct.emplace(file);
  std::int64_t offset = static_cast<std::int64_t>(sizeof length + header.size());
  for (const Region& region : regions) {
    std::vector<std::uint64_t> hashes = direct ? write_region(*direct, region.memory, written)
                                               : write_region(file, region.memory, written);
    pieces.tensors.push_back(
        {region.name, region.value, region.shape, {{0, offset, region.box, std::move(hashes)}}});
    offset += region.memory.bytes();
  }
  if (direct) direct->flush();
  pieces.file.bytes = offset;
  file.sync();
  return pieces;
}

}  // namespace trainctl
