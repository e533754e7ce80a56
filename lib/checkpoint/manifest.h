// The manifest of a checkpoint: manifest.json, which describes every other file of the folder. It
// is written last: without it, a directory does not count as a checkpoint. docs/checkpoints.md has
// the format.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "data/dataset.h"
#include "engine/report.h"
#include "plan/tables/shard.h"
#include "plan/tables/site.h"

namespace trainctl {

/// The bytes that one hash covers: the unit in which pieces are read and checked.
inline constexpr std::int64_t hashed_bytes = std::int64_t{4} << 20;

/// The name of a dtype in safetensors files: "F32" or "BF16".
std::string_view stored_name(DType dtype);

struct SavedFile {
  std::string name;  // name in the directory of the checkpoint
  std::int64_t bytes = 0;
  friend bool operator==(const SavedFile&, const SavedFile&) = default;
};

/// A box of a tensor, stored row by row.
struct SavedPiece {
  int file = 0;             // index into Manifest::files
  std::int64_t offset = 0;  // place of its first byte in the file
  Box box;
  std::vector<std::uint64_t> hashes;  // XXH3 of each hashed_bytes, the last part shorter
  friend bool operator==(const SavedPiece&, const SavedPiece&) = default;
};

/// One kind of value of one parameter. Its pieces hold each element once.
struct SavedTensor {
  std::string name;   // name of the parameter
  std::string value;  // a word of saved_values()
  Shape shape;        // without padding rows of the vocabulary
  std::vector<SavedPiece> pieces;
  DType dtype = DType::f32;  // f32 or bf16
  std::string optimizer{};   // optimizer that keeps it; if empty, Manifest::optimizer or none
  std::int64_t bytes_of(const SavedPiece& piece) const {
    return piece.box.numel() * size_of(dtype);
  }
  friend bool operator==(const SavedTensor&, const SavedTensor&) = default;
};

/// The layout of the run that wrote the checkpoint; for people only, since any layout can load it.
struct SavedLayout {
  std::int64_t ranks = 1, tp = 1, cp = 1, dp = 1, pp = 1;
  int chunks = 1;
  std::string schedule;
  std::string compute;
  bool parallel_optimizer = false;
  std::string to_string() const;  // "8 ranks: tp 2, dp 2, pp 2, 1f1b, bf16"
  friend bool operator==(const SavedLayout&, const SavedLayout&) = default;
};

/// Facts that tell whether a source's token file is the one that the run read before.
struct SourceIdentity {
  std::int64_t bytes = 0;  // size of its .bin
  std::uint64_t hash = 0;  // hash of its header, its index and 64 blocks at fixed places
  friend bool operator==(const SourceIdentity&, const SourceIdentity&) = default;
};

struct SavedSource {
  std::string path;   // storable_name() of the path in the configuration
  double weight = 0;  // weight in the blend; 0 if no longer in it
  SourceIdentity identity;
  SourcePosition position{};
  friend bool operator==(const SavedSource&, const SavedSource&) = default;
};

struct SavedData {
  std::string windows;       // how documents are joined and held out, as text
  std::int64_t pattern = 0;  // DataPosition::pattern
  std::vector<SavedSource> sources;
  /// The source data.validation.path, if given, without weight and position. Missing in older
  /// files.
  std::optional<SavedSource> validation{};
  friend bool operator==(const SavedData&, const SavedData&) = default;
};

struct Manifest {
  TrainState state;
  std::optional<double> loss;         // loss of the step
  std::optional<double> val_loss;     // validation loss, if measured after the step
  std::int64_t session = 0;           // session that wrote it (folder.h); 0 of an earlier version
  std::int64_t steps = 0;             // steps of the whole run
  std::optional<RunLength> length{};  // how `steps` was given; none in older files
  std::optional<SavedData> data{};    // state of the data; none in older files
  std::string optimizer;              // optimizer.type
  std::uint64_t plan_hash = 0;
  SavedLayout layout;
  std::uint64_t config_hash = 0;               // XXH3 of config.yaml
  std::optional<std::uint64_t> strategy_hash;  // hash of strategy.json; since format version 2
  std::vector<SavedFile> files;                // files of tensors
  std::vector<SavedTensor> tensors;
  friend bool operator==(const Manifest&, const Manifest&) = default;

  std::int64_t bytes() const;  // total size of the files of tensors
  const SavedTensor* find(const std::string& name, const std::string& value) const;
};

inline constexpr int manifest_version = 2;  // "format_version"; versions from 1 on are read
inline constexpr const char* manifest_name = "manifest.json";
inline constexpr const char* saved_config_name = "config.yaml";
inline constexpr const char* saved_strategy_name = "strategy.json";
inline constexpr const char* saved_products_name =
    "product_algorithms.json";  // if products are timed

/// The text of the file, which ends with a hash of its content.
std::string manifest_text(const Manifest& manifest);
/// Reads a text that manifest_text() wrote. Checks its hash, its form, and that the pieces of each
/// tensor lie within their files and hold each element once. Throws Error{bad_data}; `where` is the
/// name of the file in messages.
Manifest parse_manifest(const std::string& text, const std::string& where);
/// Reads directory/manifest.json and checks that the files exist with the stated sizes and are
/// regular files, and that config.yaml and strategy.json have their hashes. Throws
/// Error{missing_input | bad_data}, and Error{io} where the system cannot read: the checkpoint may
/// then be intact.
Manifest read_manifest(const std::filesystem::path& directory);
/// Manifest::session, read from the beginning of directory/manifest.json; 0 if that does not
/// contain it. Throws Error{missing_input | io}.
std::int64_t session_of(const std::filesystem::path& directory);
/// The text of directory/manifest.json. Throws Error{missing_input | io}.
std::string read_manifest_text(const std::filesystem::path& directory);

/// The pieces of one rank in its file, as sent to the rank that writes the manifest. `tensors`:
/// each with the pieces of this rank, whose `file` is 0.
std::string pieces_text(const SavedFile& file, const std::vector<SavedTensor>& tensors);
/// Adds the pieces in a text of pieces_text(). Throws Error{internal} for any other text.
void add_pieces(Manifest& manifest, const std::string& text);

}  // namespace trainctl
