// libFuzzer target for the readers of model files.
#include "fuzz_body.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const trainctl::testing::ScratchFolder folder;
  trainctl::testing::use_blob(folder, {reinterpret_cast<const char*>(data), size});
  return 0;
}
