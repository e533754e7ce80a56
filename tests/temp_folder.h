// A folder for the files of a test.
#pragma once

#include "base/file.h"

namespace trainctl {

class TempFolder : public TemporaryFolder {
 public:
  TempFolder() : TemporaryFolder(std::filesystem::temp_directory_path() / "trainctl-test") {}
};

}  // namespace trainctl
