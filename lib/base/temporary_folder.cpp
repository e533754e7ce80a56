#include "base/temporary_folder.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <system_error>

#include "base/error.h"

namespace trainctl {

TemporaryFolder::TemporaryFolder(const std::filesystem::path& prefix, const std::string& hint) {
  std::string name = prefix.string() + "-XXXXXX";
  if (::mkdtemp(name.data()) == nullptr) {
    throw Error(ExitCode::io, "cannot create the folder " + prefix.string() +
                                  "-XXXXXX: " + std::generic_category().message(errno) + hint);
  }
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code failure;
  std::filesystem::remove_all(path_, failure);
}

}  // namespace trainctl
