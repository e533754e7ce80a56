#include "run/agreement.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "comm/values.h"
#include "device/cuda_device.h"
#include "ops/cuda_libraries.h"
#include "run/preflight/machine.h"

namespace trainctl {

namespace {

constexpr const char* automatic = "auto";

/// The device that one rank of a machine would use.
struct OwnDevice {
  std::string asked{};  // parallel.device, "auto" or "cuda"; empty for other values
  std::string kind{};   // such as "NVIDIA H200, compute capability 9.0"; empty if none
  std::string lack{};   // reason for having none
};
constexpr auto members_of(const OwnDevice*) {
  return std::tuple(&OwnDevice::asked, &OwnDevice::kind, &OwnDevice::lack);
}

OwnDevice own_device(const std::string& asked, std::int64_t local_rank, bool share) {
  if (asked != automatic && asked != "cuda") return {};
  try {
    const CudaModule& cuda = cuda_module();
    const int device = cuda_device_of(local_rank, share);
    if (device < 0) return {asked, "", no_device_text(local_rank, cuda.device_count())};
    const CudaDeviceProperties found = cuda.properties(device);
    return {asked, formatted("{}, compute capability {}.{}", found.name, found.capability / 10,
                             found.capability % 10)};
  } catch (const Error& error) {
    return {asked, "", error.what()};
  }
}

DeviceChoice all_have(const std::string& kind, bool share) {
  const char* how =
      share ? "CUDA devices, which ranks may share: " : "a CUDA device for each rank: ";
  return {DeviceKind::cuda, how + kind, true};
}

DeviceChoice lacking(const std::string& asked, const std::string& what) {
  if (asked == automatic) return {DeviceKind::cpu, "the CPU: " + what, true};
  return {DeviceKind::cuda, what, false};
}

/// Decides from the answers of all ranks. Ranks that ask for another kind of device are ignored
/// here: their plans differ, which agree_on_plan reports.
DeviceChoice judge(const ParallelConfig& config, const std::vector<OwnDevice>& answers) {
  const std::string& asked = config.device;
  std::string first;
  for (std::size_t rank = 0; rank < answers.size(); ++rank) {
    const OwnDevice& own = answers[rank];
    if (own.asked != asked) continue;
    if (!own.lack.empty()) return lacking(asked, formatted("rank {}: {}", rank, own.lack));
    if (first.empty()) first = own.kind;
    if (own.kind != first) {
      return lacking(asked, formatted("the ranks see different devices: rank 0 {}, rank {} {}; "
                                      "their sums would be rounded differently",
                                      first, rank, own.kind));
    }
  }
  return all_have(first, shares(config.share_devices));
}

/// The cores of one rank.
struct OwnCores {
  std::string host{};
  int quota = 0;  // quota of the cgroup; 0 if it has none
  std::vector<int> processors{};
};
constexpr auto members_of(const OwnCores*) {
  return std::tuple(&OwnCores::host, &OwnCores::quota, &OwnCores::processors);
}

/// The number of cores of the host that has the fewest.
std::int64_t fewest_cores(const std::vector<OwnCores>& ranks) {
  std::map<std::string, std::pair<int, std::set<int>>> hosts;
  for (const OwnCores& own : ranks) {
    auto& [quota, processors] = hosts[own.host];
    quota = own.quota;
    processors.insert(own.processors.begin(), own.processors.end());
  }
  std::int64_t fewest = std::numeric_limits<std::int64_t>::max();
  for (const auto& [host, cores] : hosts) {
    const auto count = std::max<std::int64_t>(1, std::ssize(cores.second));
    fewest = std::min({fewest, count, cores.first > 0 ? cores.first : count});
  }
  return fewest;
}

}  // namespace

CpuLevel agree_on_cpu_level(Group& world) {
  const std::vector<CpuLevel> levels = gather_all(world, cpu_level());
  const CpuLevel lowest = *std::min_element(levels.begin(), levels.end());
  if (lowest != cpu_level()) set_cpu_level(lowest);
  return lowest;
}

void require_one_plan(const Plan& plan, Group& everyone) {
  const auto hashes = gather_values(everyone, plan.hash);
  for (std::size_t rank = 1; rank < hashes.size(); ++rank) {
    require(hashes[rank] == hashes[0], ExitCode::peer,
            formatted("rank {} made another plan than rank 0 ({} != {}): the config files or the "
                      "binaries differ between the ranks",
                      rank, hashes[rank], hashes[0]));
  }
}

std::int64_t agree_on_cores(const World& world, Group& everyone) {
  const OwnCores own{world.host(), core_quota().value_or(0), allowed_processors()};
  std::int64_t fewest = fewest_cores(gather(everyone, own));
  broadcast(everyone, fewest);
  return fewest;
}

DeviceChoice device_here(const ParallelConfig& asked, std::int64_t ranks) {
  if (asked.device == "cuda") return {DeviceKind::cuda, "", true};
  if (asked.device != automatic) return {};
  const OwnDevice last = own_device(asked.device, ranks - 1, shares(asked.share_devices));
  if (!last.lack.empty()) return lacking(asked.device, last.lack);
  return all_have(last.kind, shares(asked.share_devices));
}

DeviceChoice agree_on_device(const ParallelConfig& asked, const World& world, Group& everyone) {
  const OwnDevice own = own_device(asked.device, world.local_rank(), shares(asked.share_devices));
  const std::vector<OwnDevice> answers = gather(everyone, own);
  DeviceChoice choice;
  if (everyone.rank() == 0 && !own.asked.empty()) choice = judge(asked, answers);
  broadcast(everyone, choice);
  return choice;
}

DeviceKind choose_device(const ParallelConfig& asked, const World& world, Group& everyone) {
  const DeviceChoice choice = agree_on_device(asked, world, everyone);
  require(choice.usable, ExitCode::unavailable, "parallel.device cuda: " + choice.why);
  if (asked.device == automatic && world.rank() == 0)
    log_info("parallel.device auto: " + choice.why);
  return choice.device;
}

namespace {

// The oldest version compared with the plain kernels on a device (docs/gpu.md).
constexpr std::int64_t checked_cudnn = 91400;
constexpr int checked_capability = 90;

std::string cudnn_text(std::int64_t version) {
  return formatted("cuDNN {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

/// Whether this rank may use cuDNN. `why` is its version, "cuDNN 9.19.0", or the reason why not.
CudnnChoice own_cudnn(int local_rank, bool share) {
  try {
    const int device = cuda_device_of(local_rank, share);
    const int capability = cuda_module().properties(device).capability;
    if (capability != checked_capability) {
      return {false, formatted("compute capability {}.{} is not 9.0, for which plans of cuDNN were "
                               "checked",
                               capability / 10, capability % 10)};
    }
    const std::int64_t version = cuda_attention().version();
    if (version < checked_cudnn) {
      return {false, cudnn_text(version) + " is older than 9.14, the oldest that was checked"};
    }
    return {true, cudnn_text(version)};
  } catch (const Error& error) {
    return {false, error.what()};
  }
}

CudnnChoice judge_cudnn(const std::vector<CudnnChoice>& answers) {
  for (std::size_t rank = 0; rank < answers.size(); ++rank) {
    const CudnnChoice& answer = answers[rank];
    const std::string name = answers.size() > 1 ? formatted("rank {}: ", rank) : "";
    if (!answer.taken) return {false, name + answer.why};
    if (answer.why != answers[0].why) {
      return {false, formatted("{}{}, rank 0: {}", name, answer.why, answers[0].why)};
    }
  }
  return answers[0];
}

}  // namespace

CudnnChoice cudnn_here(AttentionBackend asked, DeviceKind device) {
  if (asked != "auto" || device != DeviceKind::cuda) return {};
  return judge_cudnn({own_cudnn(0, false)});
}

CudnnChoice agree_on_cudnn(const ParallelConfig& asked, const DeviceChoice& device,
                           const World& world, Group& everyone) {
  const bool asks =
      asked.attention_backend == "auto" && device.device == DeviceKind::cuda && device.usable;
  const std::vector<CudnnChoice> answers =
      gather(everyone, asks ? own_cudnn(world.local_rank(), shares(asked.share_devices))
                            : CudnnChoice{false, "it does not ask"});
  CudnnChoice choice;
  if (everyone.rank() == 0 && asks) choice = judge_cudnn(answers);
  broadcast(everyone, choice);
  return choice;
}

std::string refusal_of_cudnn(const Plan& plan, const World& world, Group& everyone) {
  if (!plan.cudnn) return "";
  std::string mine;
  try {
    cuda_select_device(world.local_rank(), shares(plan.share_devices));
    cuda_attention().prepare(*plan.cudnn, attention_part(*plan.cudnn), plan.compute);
  } catch (const Error& error) {
    mine = error.what();
  }
  std::string first;
  for (const std::string& answer : gather(everyone, mine)) {
    if (first.empty()) first = answer;
  }
  broadcast(everyone, first);
  return first;
}

}  // namespace trainctl
