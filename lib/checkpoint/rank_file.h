// The file of one rank in a checkpoint: the values that are saved of each parameter, writing the
// file, and reading it in pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "checkpoint/manifest.h"
#include "config/schema/config.h"
#include "engine/parameters/param_store.h"
#include "plan/ownership/ownership.h"

namespace trainctl {

/// The names of a parameter's saved values: "parameters" (the master), then the words of the values
/// that its optimizer keeps (kept_states). Types: optimizer_values() in plan/rules/resolve.h.
std::vector<std::string> saved_values(const ParamSpec& parameter, const OptimizerConfig& optimizer);
/// The largest number of saved values of a parameter in the table.
int saved_kinds(const std::vector<ParamSpec>& table, const OptimizerConfig& optimizer);

/// The memory of value number `value` (of saved_values): `count` elements, flat, from element
/// `first` of this rank's share of a parameter. Only for elements that the rank owns.
Tensor values_at(const ParamStore& store, int value, int parameter, std::int64_t first,
                 std::int64_t count);

/// One piece of the rank's file, and the memory that holds its bytes.
struct Region {
  std::string name;   // name of the parameter
  std::string value;  // a word of saved_values
  Shape shape;        // shape of the whole tensor
  Box box;
  Tensor memory;                        // flat
  std::string optimizer{};              // SavedTensor::optimizer
  std::vector<std::uint64_t> hashes{};  // hashes of its blocks of hashed_bytes, once computed
};

/// All pieces that this rank writes.
std::vector<Region> saved_regions(const Plan& plan, const ParamStore& store,
                                  const OptimizerConfig& optimizer, std::int64_t rank);

// The file of one rank in a checkpoint: its pieces as a safetensors file.

/// For example "rank-00012.safetensors".
std::string rank_file_name(std::int64_t rank);

/// The name of a piece in the file: "exp_avg/layers.0.norm1.weight[0:64]".
std::string piece_name(const std::string& value, const std::string& name, const Box& box);

/// Writes the regions one after the other into a new file `directory`/rank_file_name(rank) and
/// brings it to stable storage. `staged`: the memory of all regions in their order, aligned to
/// File::direct_alignment, which is written without the system's file cache, in a third of the
/// processor time. If empty, each region is written from its own memory. Throws Error{io}; a part
/// of the file may then exist. Returns pieces_text() of the file.
std::string write_rank_file(const std::filesystem::path& directory, std::int64_t rank,
                            std::vector<Region> regions, std::span<const std::byte> staged);

// Reads pieces of a checkpoint block by block and checks the hash of each block.

class PieceReader {
 public:
  /// `manifest` must outlive the reader.
  PieceReader(const Manifest& manifest, std::filesystem::path directory);

  /// Copies the elements of `part` from a piece of `tensor`, as fp32, to `target`, the memory of
  /// the box `to`, row by row. Throws Error{missing_input | bad_data} with file, tensor and offset.
  void copy(const SavedTensor& tensor, const SavedPiece& piece, const Box& part, const Box& to,
            float* target);
  /// Reads block `number` of a piece and checks its hash. Throws like copy().
  void load(const SavedTensor& tensor, const SavedPiece& piece, std::int64_t number);

 private:
  const File& open(int file);

  const Manifest& manifest_;
  std::filesystem::path directory_;
  std::map<int, File> files_;
  std::vector<std::byte> block_;
  const SavedPiece* loaded_ = nullptr;
  std::int64_t number_ = 0;
};

}  // namespace trainctl
