// libFuzzer target for the manifests of checkpoints.
#include "fuzz_body.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  trainctl::testing::use_text({reinterpret_cast<const char*>(data), size});
  return 0;
}
