#include "device/cuda_device.h"

#include <dlfcn.h>

#include <cstdlib>
#include <exception>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

namespace trainctl {

namespace {

std::vector<DeviceHealth*>& of_thread() {
  static thread_local std::vector<DeviceHealth*> all;
  return all;
}

}  // namespace

DeviceHealth::DeviceHealth() { of_thread().push_back(this); }

DeviceHealth::~DeviceHealth() { std::erase(of_thread(), this); }

bool checks_devices() { return !of_thread().empty(); }

void check_devices() {
  for (DeviceHealth* health : of_thread()) health->check();
}

void abandon_devices() noexcept {
  for (DeviceHealth* health : of_thread()) health->abandon();
}

std::string open_device_work() {
  std::string text;
  for (DeviceHealth* health : of_thread()) {
    const std::string open = health->open_work();
    if (!open.empty()) text += "; under way: " + open;
  }
  return text;
}

namespace {

constexpr const char* file_name = "libtrainctl_cuda.so";

[[noreturn]] void refuse(const std::string& reason) {
  throw Error(ExitCode::unavailable, "[cuda] " + reason);
}

void* open_library(const std::filesystem::path& file) {
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) {
    refuse(file.string() +
           " does not exist: the program was built without CUDA, or its module was not installed "
           "in its folder (TRAINCTL_CUDA_MODULE names another place)");
  }
  // Never closed: its streams and tables may be used until the process ends.
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) refuse("cannot open the module: " + std::string(dlerror()));
  return library;
}

/// The module, or the reason why it cannot be used; determined once and kept.
struct Loaded {
  const CudaModule* module = nullptr;
  std::filesystem::path file;
  std::string failure;
};

/// Variables that CUDA and NCCL read when they start; values set by the user stay. NCCL need not
/// order graphs after other calls, because the host waits before it launches a graph. Its events
/// for that order can deadlock graphs of several communicators (NVIDIA, NCCL user guide, CUDA
/// graphs).
void set_environment() {
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  setenv("NCCL_GRAPH_MIXING_SUPPORT", "0", 0);
}

/// Warns if the device has fewer queues than possible. Streams that share a hardware queue wait for
/// each other, and one may wait for another rank.
void check_queues() {
  const std::string queues = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  if (queues == "32") return;
  log_warning("CUDA_DEVICE_MAX_CONNECTIONS is " + queues +
              ", not 32: streams that share a queue to the device wait for each other, and with "
              "fewer queues than streams ranks may wait for each other for ever; unset it");
}

Loaded load() {
  set_environment();
  check_queues();
  Loaded result;
  result.file = cuda_module_file();
  try {
    const void* part = open_cuda_part(result.file, "trainctl_cuda_device", sizeof(CudaModule));
    const auto* module = static_cast<const CudaModule*>(part);
    const std::string reason = module->why_unusable();
    if (!reason.empty()) refuse(reason);
    result.module = module;
  } catch (const Error& error) {
    result.failure = error.what();
  }
  return result;
}

const Loaded& loaded() {
  static const Loaded result = load();
  if (result.module == nullptr) throw Error(ExitCode::unavailable, result.failure);
  return result;
}

}  // namespace

const CudaModule& cuda_module() { return *loaded().module; }

CudaSum cuda_sum() {
  static const void* const part = cuda_module_part("trainctl_cuda_sums", sizeof(CudaSum));
  return *static_cast<const CudaSum*>(part);
}

const StreamApi& cuda_stream_api() { return *cuda_module().streams; }

namespace {

/// While an exception propagates, nobody has waited for the work that uses the freed memory.
/// Finishes this work without the ranks that have failed.
void settle_first() noexcept {
  if (std::uncaught_exceptions() == 0) return;
  abandon_devices();
  cuda_module().finish();
}

}  // namespace

void* cuda_allocate(std::int64_t bytes) { return cuda_module().allocate(bytes); }

void cuda_release(void* data) noexcept {
  if (data == nullptr) return;
  settle_first();
  cuda_module().release(data);
}

void cuda_release_host(void* data) noexcept {
  if (data == nullptr) return;
  settle_first();
  cuda_module().release_host(data);
}

void cuda_copy(void* to, const void* from, std::int64_t bytes) {
  cuda_module().copy(to, from, bytes);
}

void cuda_select_device(int local_rank, bool share) {
  const CudaModule& cuda = cuda_module();
  const int device = cuda_device_of(local_rank, share);
  if (device < 0) refuse(no_device_text(local_rank, cuda.device_count()));
  cuda.select(device);
}

int cuda_device_of(std::int64_t local_rank, bool share) {
  const std::int64_t count = cuda_module().device_count();
  if (local_rank < count) return static_cast<int>(local_rank);
  return share ? static_cast<int>(local_rank % count) : -1;
}

int cuda_multiprocessors_beside(int device, int margin) {
  const int all = cuda_module().properties(device).multiprocessors;
  if (margin < all) return all - margin;
  refuse("parallel.product_sm_margin is " + std::to_string(margin) + ", and the device has " +
         std::to_string(all) + " multiprocessors: none is left for products. Set it to " +
         std::to_string(all - 1) + " or less");
}

std::string no_device_text(std::int64_t local_rank, std::int64_t devices) {
  return formatted(
      "rank {} of this machine has no device of its own: {} CUDA device(s) are visible. Start "
      "fewer ranks on it, look at CUDA_VISIBLE_DEVICES, or let ranks share devices "
      "(parallel.share_devices: true)",
      local_rank, devices);
}

const void* cuda_module_part(const char* symbol, std::int64_t bytes) {
  return open_cuda_part(loaded().file, symbol, bytes);
}

std::filesystem::path cuda_module_file() {
  const char* named = std::getenv("TRAINCTL_CUDA_MODULE");
  if (named != nullptr && *named != '\0') return named;
  std::error_code unreadable;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", unreadable);
  const auto beside = program.parent_path() / file_name;
  const auto installed = program.parent_path().parent_path() / "lib" / file_name;
  const bool use_installed = !std::filesystem::exists(beside, unreadable) &&
                             std::filesystem::exists(installed, unreadable);
  return use_installed ? installed : beside;
}

const void* open_cuda_part(const std::filesystem::path& file, const char* symbol,
                           std::int64_t bytes) {
  void* address = dlsym(open_library(file), symbol);
  if (address == nullptr) refuse(file.string() + " does not export " + symbol);
  const CudaModulePart part = reinterpret_cast<CudaModulePart (*)()>(address)();
  if (part.bytes != bytes) {
    refuse(
        formatted("{} belongs to another build: {} is a table of {} bytes, this program knows {}",
                  file.string(), symbol, part.bytes, bytes));
  }
  return part.table;
}

}  // namespace trainctl
