// Text to a Megatron .bin/.idx pair, streaming and in parallel, in constant memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace trainctl {

struct BuildOptions {
  std::vector<std::filesystem::path>
      inputs;                          // files or folders (walked in name order, symlinks skipped)
  std::string json_key = "text";       // for *.jsonl inputs; other files are one document each
  std::filesystem::path output;        // prefix; written as temp files and renamed when complete
  bool append_end_of_document = true;  // where the tokenizer has such a token
  int threads = 1;
  std::function<void(std::int64_t done, std::int64_t total)>
      progress;  // bytes of input; may be empty
};

struct BuildResult {
  std::int64_t documents = 0;
  std::int64_t tokens = 0;
  std::int64_t input_bytes = 0;
  int token_bytes = 0;
};

/// The result does not depend on `threads`. Throws Error{missing_input | bad_data (file:line) |
/// io}; on failure nothing is left at the output.
BuildResult build_token_file(const BuildOptions& options, const Tokenizer& tokenizer);

/// The prefix of the cached token file for a text input, built with `threads` if it is not there.
/// `cache_dir` empty: the user's cache folder. Safe when several processes ask at once.
std::filesystem::path cached_token_file(const std::filesystem::path& text,
                                        const Tokenizer& tokenizer,
                                        const std::filesystem::path& cache_dir, int threads = 1);

/// Whether `path` names text (a directory, or a file other than a token file) rather than a token
/// file or prefix.
bool is_text_input(const std::filesystem::path& path);

}  // namespace trainctl
