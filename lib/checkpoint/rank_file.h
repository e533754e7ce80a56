// The file of one rank in a checkpoint: its pieces as a safetensors file.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "checkpoint/saved_values.h"

namespace trainctl {

/// "rank-00012.safetensors"
std::string rank_file_name(std::int64_t rank);

/// The name of a piece in the file: "exp_avg/layers.0.norm1.weight[0:64]".
std::string piece_name(const std::string& value, const std::string& name, const Box& box);

/// How a file is written.
enum class WriteMode : std::uint8_t {
  cached,      // through the system's cache of files: the fastest if someone waits for it
  past_cache,  // with less than half of the processor time, which steps beside it can use
};

/// Writes the regions one after the other into a new file `directory`/rank_file_name(rank) and
/// brings it to stable storage. `written` grows with the bytes. Throws Error{io}; the file may then
/// be there in part.
RankPieces write_rank_file(const std::filesystem::path& directory, std::int64_t rank,
                           const std::vector<Region>& regions, WriteMode mode,
                           std::atomic<std::int64_t>& written);

}  // namespace trainctl
