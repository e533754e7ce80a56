#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/hash_bytes.h"
#include "checkpoint/manifest.h"

namespace trainctl {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::int64_t head_bytes = 4096;  // the session is among the first keys

std::string read_text(const fs::path& path) {
  const File file = File::open_to_read(path);
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read_at(0, text);
  return text;
}

/// Stops at the number of manifest.session, or where the beginning that is read ends.
class SessionFinder : public nlohmann::json_sax<Json> {
 public:
  std::int64_t session = 0;

  bool key(string_t& name) override {
    is_session_ = depth_ == 2 && name == "session";
    return depth_ != 2 || name != "tensors";
  }
  bool number_unsigned(number_unsigned_t value) override {
    const bool fits = value <= static_cast<std::uint64_t>(most_session);
    if (is_session_ && fits) session = static_cast<std::int64_t>(value);
    return !is_session_;
  }
  bool start_object(std::size_t /*size*/) override { return ++depth_ < most_depth; }
  bool end_object() override { return --depth_ > 0; }
  bool start_array(std::size_t /*size*/) override { return ++depth_ < most_depth; }
  bool end_array() override { return --depth_ > 0; }
  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(number_integer_t /*value*/) override { return true; }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return true; }
  bool string(string_t& /*value*/) override { return true; }
  bool binary(binary_t& /*value*/) override { return true; }
  bool parse_error(std::size_t /*at*/, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    return false;
  }

 private:
  static constexpr int most_depth = 64;
  static constexpr std::int64_t most_session = 9'999'999'999;  // of ten digits
  int depth_ = 0;
  bool is_session_ = false;
};

void check_file(const fs::path& directory, const SavedFile& file) {
  const fs::path path = directory / file.name;
  std::error_code failure;
  const bool is_link = fs::is_symlink(fs::symlink_status(path, failure));
  const FileKind kind = kind_of_file(path);
  require(is_link || kind != FileKind::none, ExitCode::missing_input,
          path.string() + " is missing; the manifest lists it");
  require(!is_link && kind == FileKind::regular, ExitCode::bad_data,
          path.string() + " is not a regular file (links are not followed)");
  const std::int64_t bytes = File::open_to_read(path).size();
  require(bytes == file.bytes, ExitCode::bad_data,
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
  require(kind_of_file(path) != FileKind::none, ExitCode::missing_input,
          directory.string() + " is not a complete checkpoint: it has no " + manifest_name);
  return read_text(path);
}

std::int64_t session_of(const fs::path& directory) {
  SessionFinder finder;
  Json::sax_parse(read_beginning(directory / manifest_name, head_bytes), &finder);
  return finder.session;
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
