// Reads pieces of a checkpoint block by block and checks the hash of each block.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <vector>

#include "base/file.h"
#include "checkpoint/manifest.h"

namespace trainctl {

class PieceReader {
 public:
  /// `manifest` must outlive the reader.
  PieceReader(const Manifest& manifest, std::filesystem::path directory);

  /// Copies the elements of `part` from a piece of `tensor`, as fp32, to `target`, the memory of
  /// the box `to`, row by row. Throws Error{missing_input | bad_data} with file, tensor and offset.
  void copy(const SavedTensor& tensor, const SavedPiece& piece, const Box& part, const Box& to,
            float* target);
  /// Reads block `number` of a piece, for its hash. Throws the same.
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
