// The fuzz target and its replay in the unit tests use a blob as a token file of each format. Only
// an Error may come of it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "data/batch.h"
#include "data/dataset.h"
#include "data/token_file.h"
#include "scratch_folder.h"

namespace trainctl::testing {

/// Reads whatever can be read of `path`. Returns whether it opened.
inline bool use_token_file(const std::filesystem::path& path) {
  try {
    TokenFile file = TokenFile::open(path);
    std::int64_t before = 0;
    for (std::int64_t i = 0; i <= file.documents(); ++i) {
      const std::int64_t start = file.document_start(i);
      if (start < before || start > file.tokens()) std::abort();
      before = start;
    }
    if (before != file.tokens()) std::abort();
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(file.tokens()));
    file.read(0, tokens);
    if (file.tokens() == 1) return true;
    const std::int64_t seq_length = std::min(1 + file.tokens() % 5, file.tokens() - 1);
    try {
      file.check_vocabulary(256);
    } catch (const Error&) {
    }
    std::vector<SourceFile> sources;
    sources.push_back({std::move(file), 1});
    const Dataset data(std::move(sources), {}, Split::train, seq_length, 1, true);
    Batch batch;
    make_train_batch(data, {.sequences = 3, .eod_token = 0}, 5, batch);
    make_window_batch(data, {.sequences = 3, .reset_position_ids = true}, 0, batch);
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// The first byte says how many of the next are the .bin of a pair, whose .idx are the others; the
/// same bytes are read as a single file too. Returns how many of the two opened.
inline int use_blob(const ScratchFolder& folder, std::string_view blob) {
  if (blob.empty()) return 0;
  const std::string_view content = blob.substr(1);
  const std::size_t bin =
      std::min<std::size_t>(static_cast<unsigned char>(blob[0]), content.size());
  folder.write("pair.bin", std::string(content.substr(0, bin)));
  folder.write("pair.idx", std::string(content.substr(bin)));
  folder.write("single.bin", std::string(content));
  return (use_token_file(folder / "pair") ? 1 : 0) +
         (use_token_file(folder / "single.bin") ? 1 : 0);
}

}  // namespace trainctl::testing
