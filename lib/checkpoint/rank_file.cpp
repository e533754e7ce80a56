#include "checkpoint/rank_file.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

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
        {"dtype", stored_name(region.memory.dtype)},
        {"shape", std::move(shape)},
        {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  const std::size_t whole = sizeof(std::uint64_t) + text.size();
  text.append((File::direct_alignment - whole % File::direct_alignment) % File::direct_alignment,
              ' ');
  return text;
}

using Bytes = std::span<const std::byte>;

/// In blocks; `each` sees a block before it is written.
template <class Each>
void write_blocks(File& file, Bytes bytes, const Each& each) {
  while (!bytes.empty()) {
    const Bytes block = bytes.first(std::min<std::size_t>(bytes.size(), hashed_bytes));
    each(block);
    file.write({reinterpret_cast<const char*>(block.data()), block.size()});
    bytes = bytes.subspan(block.size());
  }
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
                           std::vector<Region> regions, Bytes staged) {
  RankPieces pieces;
  pieces.file.name = rank_file_name(rank);
  File file = File::create(directory / pieces.file.name);
  const std::string header = header_of(regions);
  const auto length = static_cast<std::uint64_t>(header.size());
  file.write({reinterpret_cast<const char*>(&length), sizeof length});
  file.write(header);
  if (!staged.empty()) {
    file.write_past_cache();
    write_blocks(file, staged, [](Bytes) {});
  }
  std::int64_t offset = static_cast<std::int64_t>(sizeof length + header.size());
  for (Region& region : regions) {
    if (staged.empty()) {
      const Bytes bytes(static_cast<const std::byte*>(region.memory.data),
                        static_cast<std::size_t>(region.memory.bytes()));
      write_blocks(file, bytes, [&](Bytes block) { region.hashes.push_back(hash_bytes(block)); });
    }
    pieces.tensors.push_back({region.name,
                              region.value,
                              region.shape,
                              {{0, offset, region.box, std::move(region.hashes)}},
                              region.memory.dtype,
                              region.optimizer});
    offset += region.memory.bytes();
  }
  pieces.file.bytes = offset;
  file.sync();
  return pieces;
}

}  // namespace trainctl
