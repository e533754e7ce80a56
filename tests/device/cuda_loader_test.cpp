// The messages of a program without a usable CUDA module. Needs neither CUDA nor a device.
#include <dlfcn.h>

#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>

#include "base/error.h"
#include "catch.h"
#include "contains.h"
#include "device/cuda_device.h"

using namespace trainctl;
namespace {

namespace fs = std::filesystem;

/// The message of the Error{unavailable} that `call` throws.
std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::unavailable);
    return error.what();
  }
  FAIL("nothing was thrown");
  return "";
}

std::string refusal_of(const fs::path& file) {
  return refusal([&] { open_cuda_part(file, "trainctl_cuda_device", sizeof(CudaModule)); });
}

}  // namespace

TEST_CASE("a module that is not there is named, with what to do") {
  const std::string message = refusal_of("/nowhere/libtrainctl_cuda.so");
  CHECK(contains(message, "[cuda] /nowhere/libtrainctl_cuda.so does not exist"));
  CHECK(contains(message, "built without CUDA"));
  CHECK(contains(message, "TRAINCTL_CUDA_MODULE"));
}

TEST_CASE("a file other than a library is refused in the loader's words") {
  const fs::path file = fs::temp_directory_path() / "trainctl_not_a_library.so";
  std::ofstream(file) << "text";
  const std::string message = refusal_of(file);
  fs::remove(file);
  CHECK(contains(message, "[cuda] cannot open the module: "));
  CHECK(contains(message, file.filename().string()));
}

TEST_CASE("a library that is not ours is refused") {
  Dl_info standard_library{};
  REQUIRE(dladdr(reinterpret_cast<void*>(&std::terminate), &standard_library) != 0);
  const fs::path file = fs::canonical(standard_library.dli_fname);
  CHECK(contains(refusal_of(file), file.string() + " does not export trainctl_cuda_device"));
}

TEST_CASE("the module is looked for in the folder of the program") {
  unsetenv("TRAINCTL_CUDA_MODULE");
  const fs::path file = cuda_module_file();
  CHECK(file.is_absolute());
  CHECK(file.filename() == "libtrainctl_cuda.so");
}

TEST_CASE("everything that needs the module gives the same reason") {
  setenv("TRAINCTL_CUDA_MODULE", "/nowhere/module.so", 1);
  CHECK(cuda_module_file() == "/nowhere/module.so");
  const std::string message = refusal([] { cuda_module(); });
  CHECK(contains(message, "/nowhere/module.so does not exist"));
  // The first answer is kept, whatever the environment says later.
  unsetenv("TRAINCTL_CUDA_MODULE");
  CHECK(refusal([] { stream_api(DeviceKind::cuda); }) == message);
  CHECK(refusal([] { Stream(DeviceKind::cuda, "compute", Stream::Mode::queued); }) == message);
  CHECK(refusal([] { cuda_allocate(16); }) == message);
  CHECK(refusal([] { cuda_select_device(0); }) == message);
  CHECK(refusal([] { cuda_module_part("trainctl_cuda_kernels", 8); }) == message);
  cuda_release(nullptr);
}
