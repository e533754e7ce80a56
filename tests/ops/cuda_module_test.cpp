// The module as a file: its parts fit this program and its table holds what the build promises.
// Needs no device.
#include "base/error.h"
#include "catch.h"
#include "device/cuda_device.h"
#include "ops/kernels.h"

using namespace trainctl;

namespace {

template <class Table>
const Table& part(const char* symbol) {
  return *static_cast<const Table*>(open_cuda_part(cuda_module_file(), symbol, sizeof(Table)));
}

}  // namespace

TEST_CASE("the module has every kernel") {
  const auto& kernels = part<Kernels>("trainctl_cuda_kernels");
  CHECK(kernels.name == "cuda");
  CHECK(missing_kernels(kernels).empty());
}

TEST_CASE("a module of another build is refused") {
  try {
    open_cuda_part(cuda_module_file(), "trainctl_cuda_kernels", sizeof(Kernels) + 8);
    FAIL("nothing was thrown");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::unavailable);
    CHECK(std::string(error.what()).find("belongs to another build") != std::string::npos);
  }
}

TEST_CASE("without a device the module says why, and its failures are caught here") {
  const auto& device = part<CudaModule>("trainctl_cuda_device");
  const std::string reason = device.why_unusable();
  if (reason.empty()) {
    CHECK(device.device_count() > 0);
    CHECK(kernels_for(DeviceKind::cuda).name == "cuda");
    return;
  }
  CHECK((reason.find("no CUDA device") == 0 || reason.find("the NVIDIA driver") == 0));
  CHECK_THROWS_AS(device.device_count(), Error);
  try {
    kernels_for(DeviceKind::cuda);
    FAIL("nothing was thrown");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::unavailable);
    CHECK(error.what() == "[cuda] " + reason);
  }
}
