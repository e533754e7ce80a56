#include "base/error.h"
#include "base/file.h"
#include "checkpoint/hash_bytes.h"
#include "checkpoint/manifest.h"

namespace trainctl {

namespace {

namespace fs = std::filesystem;

std::string read_text(const fs::path& path) {
  const File file = File::open_to_read(path);
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read_at(0, text);
  return text;
}

void check_file(const fs::path& directory, const SavedFile& file) {
  const fs::path path = directory / file.name;
  std::error_code failure;
  const fs::file_status status = fs::symlink_status(path, failure);
  require(fs::exists(status), ExitCode::missing_input,
          path.string() + " is missing; the manifest lists it");
  require(fs::is_regular_file(status), ExitCode::bad_data,
          path.string() + " is not a regular file (links are not followed)");
  const auto bytes = static_cast<std::int64_t>(fs::file_size(path, failure));
  require(!failure && bytes == file.bytes, ExitCode::bad_data,
          path.string() + " has " + std::to_string(bytes) + " bytes; the manifest says " +
              std::to_string(file.bytes));
}

void check_text(const fs::path& path, std::uint64_t hash) {
  require(hash_bytes(read_text(path)) == hash, ExitCode::bad_data,
          path.string() + " does not have the hash in the manifest; it was changed or damaged");
}

}  // namespace

std::string read_manifest_text(const fs::path& directory) {
  const fs::path path = directory / manifest_name;
  std::error_code failure;
  require(fs::exists(path, failure), ExitCode::missing_input,
          directory.string() + " is not a complete checkpoint: it has no " + manifest_name);
  return read_text(path);
}

Manifest read_manifest(const fs::path& directory) {
  Manifest manifest =
      parse_manifest(read_manifest_text(directory), (directory / manifest_name).string());
  for (const SavedFile& file : manifest.files) check_file(directory, file);
  check_text(directory / saved_config_name, manifest.config_hash);
  if (manifest.strategy_hash) check_text(directory / saved_strategy_name, *manifest.strategy_hash);
  return manifest;
}

}  // namespace trainctl
