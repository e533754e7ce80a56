// A profiler for the test of ranges: it writes a line for each range that begins ("+name") and ends
// ("-") to the file that NVTX_LINES names. NVTX loads it where NVTX_INJECTION64_PATH says.
#include <nvtx3/nvToolsExt.h>

#include <cstdio>
#include <cstdlib>

namespace {

std::FILE* lines = nullptr;
int depth = 0;

int begin_range(const char* name) {
  std::fprintf(lines, "+%s\n", name);
  std::fflush(lines);
  return depth++;
}

int end_range() {
  std::fputs("-\n", lines);
  std::fflush(lines);
  return --depth;
}

}  // namespace

extern "C" [[gnu::visibility("default")]] int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get_table) {
  const char* file = std::getenv("NVTX_LINES");
  if (file == nullptr) return 0;
  lines = std::fopen(file, "w");
  const auto* callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable functions = nullptr;
  unsigned int count = 0;
  if (lines == nullptr || callbacks == nullptr ||
      callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &functions, &count) == 0) {
    return 0;
  }
  *functions[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(begin_range);
  *functions[NVTX_CBID_CORE_RangePop] = reinterpret_cast<NvtxFunctionPointer>(end_range);
  return 1;
}
