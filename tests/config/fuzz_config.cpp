// libFuzzer target: any bytes as a configuration. Built with -DTRAINCTL_FUZZ=ON and clang;
// run with: fuzz_config CORPUS tests/config/seeds
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "any_text.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string wrong =
      trainctl::test::broken_promise({reinterpret_cast<const char*>(data), size});
  if (wrong.empty()) return 0;
  std::fprintf(stderr, "%s\n", wrong.c_str());
  std::abort();
}
