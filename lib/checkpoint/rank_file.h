// The file of one rank in a checkpoint: its pieces as a safetensors file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "checkpoint/saved_values.h"

namespace trainctl {

/// "rank-00012.safetensors"
std::string rank_file_name(std::int64_t rank);

/// The name of a piece in the file: "exp_avg/layers.0.norm1.weight[0:64]".
std::string piece_name(const std::string& value, const std::string& name, const Box& box);

/// Writes the regions one after the other into a new file `directory`/rank_file_name(rank) and
/// brings it to stable storage. `staged`: the memory of all regions in their order, aligned to
/// File::direct_alignment; it is written past the system's cache of files, which takes a third of
/// the processor time. Empty: each region is written from where it is. Throws Error{io}; the file
/// may then be there in part.
RankPieces write_rank_file(const std::filesystem::path& directory, std::int64_t rank,
                           std::vector<Region> regions, std::span<const std::byte> staged);

}  // namespace trainctl
