#include "checkpoint/rank_file.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/at.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/text.h"
#include "checkpoint/hash_bytes.h"
#include "config/schema/optimizers.h"
#include "config/schema/words.h"

namespace trainctl {

std::vector<std::string> saved_values(const ParamSpec& parameter,
                                      const OptimizerConfig& optimizer) {
  std::vector<std::string> words{"parameters"};
  for (const OptimizerState& state : kept_states(parameter.update, optimizer)) {
    words.emplace_back(state.word);
  }
  return words;
}

namespace {

/// SavedTensor::optimizer for value number `value` of the parameter.
std::string keeper_of(const ParamSpec& parameter, int value, const OptimizerConfig& optimizer) {
  const bool is_state = value > 0 && value <= updated_states(parameter.update, optimizer);
  if (!is_state || parameter.update == optimizer.type) return "";
  return std::string(word_of(parameter.update));
}

}  // namespace

int saved_kinds(const std::vector<ParamSpec>& table, const OptimizerConfig& optimizer) {
  std::size_t most = 0;
  for (const ParamSpec& parameter : table) {
    most = std::max(most, saved_values(parameter, optimizer).size());
  }
  return static_cast<int>(most);
}

Tensor values_at(const ParamStore& store, int value, int parameter, std::int64_t first,
                 std::int64_t count) {
  const std::int64_t begin = first - store.owned(parameter).begin;
  const Tensor held = value == 0 ? store.master(parameter) : store.state(parameter, value - 1);
  return held.view({held.numel()}).slice(begin, begin + count);
}

std::vector<Region> saved_regions(const Plan& plan, const ParamStore& store,
                                  const OptimizerConfig& optimizer, std::int64_t rank) {
  const std::vector<std::vector<Box>> boxes = saved_parts(plan, store.ownership(), rank);
  const int kinds = saved_kinds(store.table(), optimizer);
  std::vector<Region> regions;
  for (int value = 0; value < kinds; ++value) {
    for (int i = 0; i < std::ssize(boxes); ++i) {
      const ParamSpec& parameter = at(store.table(), i);
      const std::vector<std::string> words = saved_values(parameter, optimizer);
      if (value >= std::ssize(words)) continue;
      const Box share = shard_box(parameter, plan.mesh, rank);
      for (const Box& box : at(boxes, i)) {
        regions.push_back({parameter.name, at(words, value), saved_shape(parameter, plan.model),
                           box, values_at(store, value, i, index_in(share, box), box.numel()),
                           keeper_of(parameter, value, optimizer)});
      }
    }
  }
  return regions;
}

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
  std::string text = json_text(header, JsonText::Style::compact);
  const std::size_t whole = sizeof(std::uint64_t) + text.size();
  text.append((File::direct_alignment - whole % File::direct_alignment) % File::direct_alignment,
              ' ');
  return text;
}

using Bytes = std::span<const std::byte>;

/// Writes in blocks; calls each(block) before it writes a block.
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

std::string write_rank_file(const std::filesystem::path& directory, std::int64_t rank,
                            std::vector<Region> regions, Bytes staged) {
  const std::string name = rank_file_name(rank);
  std::vector<SavedTensor> tensors;
  File file = File::create(directory / name);
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
    tensors.push_back({region.name,
                       region.value,
                       region.shape,
                       {{0, offset, region.box, std::move(region.hashes)}},
                       region.memory.dtype,
                       region.optimizer});
    offset += region.memory.bytes();
  }
  file.sync();
  return pieces_text({name, offset}, tensors);
}

namespace {

constexpr std::size_t max_open = 64;

/// Converts stored values to fp32. No value is split between two blocks.
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
          formatted("{}: {} of {} {} is damaged: the {} bytes at offset {} do not have the hash in "
                    "the manifest",
                    file.path().string(), tensor.value, tensor.name, piece.box.to_string(), bytes,
                    piece.offset + begin));
  loaded_ = &piece;
  number_ = number;
}

const File& PieceReader::open(int file) {
  auto found = files_.find(file);
  if (found == files_.end()) {
    if (files_.size() >= max_open) files_.clear();
    found =
        files_.emplace(file, File::open_to_read(directory_ / at(manifest_.files, file).name)).first;
  }
  return found->second;
}

}  // namespace trainctl
