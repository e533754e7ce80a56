// Text files to token files: text as a stream of chunks, and the tokens as a Megatron .bin/.idx
// pair.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "data/tokenizer/tokenizer.h"

namespace trainctl {

struct InputFile {
  std::filesystem::path path;
  std::int64_t bytes = 0;
  bool is_named = true;  // named by the user, not found in a folder
};

/// The input files: the named files, and every regular file below a named folder, in name order,
/// symlinks skipped. Throws Error{missing_input}.
std::vector<InputFile> list_inputs(const std::vector<std::filesystem::path>& inputs);

/// A part of one file that is tokenised separately.
struct TextChunk {
  const InputFile* file = nullptr;
  std::string bytes;
  bool is_jsonl = false;        // whole lines, each a document
  std::int64_t first_line = 1;  // number of its first line in the file
  bool begins_document = true;  // plain text only, where a file is one document
  bool ends_document = false;   // plain text only
};

/// Text inputs as a stream of chunks, split where a tokenizer may restart: constant memory for
/// files of any size.
class TextReader {
 public:
  /// A chunk ends near `chunk_bytes`: before a newline that follows a letter or digit, where no
  /// known tokenizer joins the two sides; else after the last newline; if the text has no newline,
  /// between two characters. Lines of JSON are cut after a newline only.
  explicit TextReader(std::vector<InputFile> files, std::int64_t chunk_bytes = 1 << 18);

  /// The next chunk, reusing the memory of `out`; false at the end. A file with a NUL byte in its
  /// first 4 KiB is not text: an Error{bad_data} if it was named, else skipped with a warning.
  /// Throws Error{missing_input | bad_data}.
  bool next(TextChunk& out);

 private:
  void open_next();
  /// Appends to `bytes` until it has `size`; false when the file ended before.
  bool fill(std::string& bytes, std::size_t size);
  bool is_binary(const std::string& beginning) const;
  /// The length of the next chunk in `bytes`; 0 if more must be read first.
  std::size_t cut(const std::string& bytes) const;

  std::vector<InputFile> files_;
  std::size_t chunk_bytes_;
  std::size_t next_file_ = 0;
  std::optional<File> file_;
  bool is_jsonl_ = false;
  bool is_at_start_ = false;
  std::int64_t line_ = 1;
  std::string carry_;  // bytes that belong to the next chunk
};

// Text to a Megatron .bin/.idx pair, streaming and in parallel, in constant memory.

struct BuildOptions {
  std::vector<std::filesystem::path>
      inputs;                          // files or folders (walked in name order, symlinks skipped)
  std::string json_key = "text";       // key in *.jsonl inputs; other files are one document each
  std::filesystem::path output;        // prefix; written as temp files and renamed when complete
  bool append_end_of_document = true;  // if the tokenizer has such a token
  int threads = 1;
  std::function<void(std::int64_t done, std::int64_t total)>
      progress;  // called with bytes of input; may be empty
};

struct BuildResult {
  std::int64_t documents = 0;
  std::int64_t tokens = 0;
  std::int64_t input_bytes = 0;
  int token_bytes = 0;
};

/// Builds a token file, which does not depend on `threads`. Throws Error{missing_input | bad_data
/// (file:line) | io}; on failure nothing is left at the output.
BuildResult build_token_file(const BuildOptions& options, const Tokenizer& tokenizer);

/// The prefix of the cached token file of a text input, which is built with `threads` if it is
/// missing. An empty `cache_dir` means the user's cache folder. Several processes may call this at
/// once.
std::filesystem::path cached_token_file(const std::filesystem::path& text,
                                        const Tokenizer& tokenizer,
                                        const std::filesystem::path& cache_dir, int threads = 1);

/// Whether `path` names text (a directory, or a file other than a token file) rather than a token
/// file or prefix.
bool is_text_input(const std::filesystem::path& path);

}  // namespace trainctl
