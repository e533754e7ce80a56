// libFuzzer target for the reader of tokenizer.json.
#include "hf_body.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const trainctl::testing::ScratchFolder folder;
  trainctl::testing::use_tokenizer(folder, {reinterpret_cast<const char*>(data), size});
  return 0;
}
