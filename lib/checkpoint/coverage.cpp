#include "checkpoint/coverage.h"

#include <algorithm>
#include <set>

#include "base/at.h"
#include "base/error.h"

namespace trainctl {

namespace {

std::string title(const SavedTensor& tensor) { return tensor.value + " of " + tensor.name; }

/// Throws if two pieces share an element. Sorted by their first row, only pieces that are still
/// open there are compared.
void check_disjoint(const SavedTensor& tensor, const std::string& where) {
  if (tensor.shape.rank() == 0) return;
  std::vector<const SavedPiece*> sorted;
  for (const SavedPiece& piece : tensor.pieces) sorted.push_back(&piece);
  std::sort(sorted.begin(), sorted.end(),
            [](const SavedPiece* a, const SavedPiece* b) { return a->box.begin < b->box.begin; });
  std::vector<const SavedPiece*> open;
  for (const SavedPiece* piece : sorted) {
    std::erase_if(
        open, [&](const SavedPiece* other) { return other->box.end(0) <= piece->box.begin[0]; });
    for (const SavedPiece* other : open) {
      require(intersection(piece->box, other->box).numel() == 0, ExitCode::bad_data,
              where + ": two pieces of " + title(tensor) + " overlap: " + other->box.to_string() +
                  " and " + piece->box.to_string());
    }
    open.push_back(piece);
  }
}

}  // namespace

void check_coverage(const Manifest& manifest, const std::string& where) {
  std::set<std::pair<std::string, std::string>> seen;
  for (const SavedTensor& tensor : manifest.tensors) {
    require(seen.emplace(tensor.name, tensor.value).second, ExitCode::bad_data,
            where + ": " + title(tensor) + " is listed twice");
    check_disjoint(tensor, where);
    std::int64_t elements = 0;  // at most those of the shape, since no two pieces overlap
    for (const SavedPiece& piece : tensor.pieces) {
      const SavedFile& file = at(manifest.files, piece.file);
      const std::int64_t bytes = tensor.bytes_of(piece);
      require(bytes > 0 && piece.offset <= file.bytes && bytes <= file.bytes - piece.offset,
              ExitCode::bad_data,
              where + ": the piece " + piece.box.to_string() + " of " + title(tensor) + " has " +
                  std::to_string(bytes) + " bytes at offset " + std::to_string(piece.offset) +
                  ", but " + file.name + " has " + std::to_string(file.bytes) + " bytes");
      elements += piece.box.numel();
    }
    require(elements == tensor.shape.numel(), ExitCode::bad_data,
            where + ": the pieces of " + title(tensor) + " have " + std::to_string(elements) +
                " of its " + std::to_string(tensor.shape.numel()) + " elements");
  }
}

}  // namespace trainctl
