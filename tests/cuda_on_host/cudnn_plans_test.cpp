// cuDNN itself, without a device: whether it proposes, supports and compiles plans of attention for
// the configurations that this project ships, on a device that is only described to it.
#include <cstdio>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "catch.h"
#include "config/read/read.h"
#include "ops/cuda_libraries.h"
#include "plan/rules/resolve.h"
#include "run/prepare.h"

using namespace trainctl;

namespace {

/// As cuDNN describes an H100 with 132 multiprocessors.
const std::string hopper = R"({
  "deviceName": "NVIDIA H100 80GB HBM3", "deviceVer": 900, "driverVer": 13000, "cudaDeviceId": 0,
  "multiProcessorCount": 132, "warpSize": 32, "regsPerBlock": 65536, "maxRegistersPerSM": 65536,
  "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448,
  "reservedSharedMemoryPerBlock": 1024, "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024,
  "maxThreadsPerSM": 2048, "maxBlockSize": [1024, 1024, 64],
  "maxGridSize": [2147483647, 65535, 65535], "pciDeviceId": 9008, "isTccDriver": 0,
  "supportCoopLaunch": 1, "totalGlobalMem": 85017493504, "smClockRateKHz": 1980000,
  "memClockRateKHz": 2619000, "l2CacheSize": 52428800})";

/// Whether there is a cuDNN of a version whose plans are checked. CTest knows the message.
bool has_cudnn() {
  try {
    const std::int64_t version = cuda_attention().version();
    if (version >= 91900) return true;
    std::printf("skipped: cuDNN is version %lld\n", static_cast<long long>(version));
  } catch (const Error& error) {
    std::printf("skipped: cuDNN: %s\n", error.what());
  }
  return false;
}

/// The extents that the ranks of a configuration give to cuDNN on CUDA devices in bf16, if they use
/// it.
std::optional<AttentionExtents> extents_in(const std::string& file) {
  ReadResult read = read_config(file, {"parallel.device=cuda", "precision.compute=bf16"});
  const Plan plan = prepare(read,
                            {.world_size = world_size_of(read.config.parallel),
                             .device = DeviceKind::cuda,
                             .cudnn = true},
                            Purpose::plan);
  return read.diagnostics.has_errors() ? std::nullopt : plan.cudnn;
}

}  // namespace

TEST_CASE("cuDNN has plans for the attention of every configuration that is for it") {
  if (!has_cudnn()) return;
  std::set<std::string> checked;
  const std::string folder = TRAINCTL_SOURCE_DIR "/configs";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.is_directory()) continue;
    const auto extents = extents_in(entry.path().string());
    if (!extents) continue;
    CAPTURE(entry.path().stem().string(), extents->sequences, extents->length, extents->heads,
            extents->kv_heads, extents->head_dim);
    const std::int64_t asked = cuda_attention().check(*extents, DType::bf16, hopper);
    // The plan counts the memory that cuDNN asks for.
    const std::int64_t planned = attention_bytes(attention_part(*extents));
    CHECK(asked <= planned);
    CHECK(asked > planned / 10 * 9);
    AttentionExtents any = *extents;
    any.ordered = false;
    const std::int64_t asked_by_any = cuda_attention().check(any, DType::bf16, hopper);
    CHECK(asked_by_any <= attention_bytes(attention_part(any)));
    CHECK(asked_by_any > attention_bytes(attention_part(any)) / 10 * 9);
    checked.insert(entry.path().stem().string());
  }
  for (const char* name : {"gpt2-124m", "llama3-8b", "qwen3-0.6b", "tinyllama-1.1b"}) {
    CHECK(checked.contains(name));
  }
}

TEST_CASE("cuDNN has plans in fp16, and refuses heads that it does not know") {
  if (!has_cudnn()) return;
  CHECK(cuda_attention().check({1, 1024, 4, 2, 64}, DType::f16, hopper) > 0);
  CHECK_THROWS_AS(cuda_attention().check({1, 1024, 4, 2, 320}, DType::bf16, hopper), Error);
  CHECK_THROWS_AS(cuda_attention().check({1, 1024, 4, 2, 64}, DType::f32, hopper), Error);
}
