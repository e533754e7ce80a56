// A folder that goes away.
#pragma once

#include <filesystem>
#include <string>

namespace trainctl {

/// A new folder under a unique name. The destructor removes it with everything in it; it may have
/// been renamed away by then.
class TemporaryFolder {
 public:
  /// Makes a folder with the name `prefix`-XXXXXX, where the Xs differ each time. Throws Error{io};
  /// its message ends with `hint`.
  explicit TemporaryFolder(const std::filesystem::path& prefix, const std::string& hint = "");
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace trainctl
