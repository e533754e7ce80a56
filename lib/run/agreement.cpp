#include "run/agreement.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "device/cuda_device.h"
#include "ops/cuda_libraries.h"
#include "run/preflight/machine.h"

namespace trainctl {

namespace {

constexpr const char* automatic = "auto";

/// The device of one rank of a machine.
struct OwnDevice {
  std::string kind;  // "NVIDIA H200, compute capability 9.0"; empty: none
  std::string lack;  // why none
};

OwnDevice own_device(std::int64_t local_rank, bool share) {
  try {
    const CudaModule& cuda = cuda_module();
    const int device = cuda_device_of(local_rank, share);
    if (device < 0) return {"", no_device_text(local_rank, cuda.device_count())};
    const CudaDeviceProperties found = cuda.properties(device);
    return {found.name + ", compute capability " + std::to_string(found.capability / 10) + "." +
                std::to_string(found.capability % 10),
            ""};
  } catch (const Error& error) {
    return {"", error.what()};
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

/// Every rank's answer as text that rank 0 reads: what was asked, then "+" and the kind, or "-" and
/// what is lacking.
std::string answer_of(const ParallelConfig& asked, const World& world) {
  if (asked.device != automatic && asked.device != "cuda") return asked.device;
  const OwnDevice own = own_device(world.local_rank(), shares(asked.share_devices));
  return asked.device + (own.lack.empty() ? "+" + own.kind : "-" + own.lack);
}

/// Decides from all ranks' answers. Ranks that ask for different devices are left out here: their
/// plans differ, which agree_on_plan reports.
DeviceChoice judge(const ParallelConfig& config, const std::vector<std::string>& answers) {
  const std::string& asked = config.device;
  std::string first;
  for (std::size_t rank = 0; rank < answers.size(); ++rank) {
    const std::string& answer = answers[rank];
    if (!answer.starts_with(asked) || answer.size() == asked.size()) continue;
    const std::string text = answer.substr(asked.size() + 1);
    const std::string name = "rank " + std::to_string(rank);
    if (answer[asked.size()] == '-') return lacking(asked, name + ": " + text);
    if (first.empty()) first = text;
    if (text != first) {
      return lacking(asked, "the ranks see different devices: rank 0 " + first + ", " + name + " " +
                                text + "; their sums would be rounded differently");
    }
  }
  return all_have(first, shares(config.share_devices));
}

}  // namespace

CpuLevel agree_on_cpu_level(Group& world) {
  const auto levels = gather_values(world, static_cast<double>(cpu_level()));
  const auto lowest = static_cast<CpuLevel>(*std::min_element(levels.begin(), levels.end()));
  if (lowest != cpu_level()) set_cpu_level(lowest);
  return lowest;
}

std::int64_t agree_on_cores(const World& world, Group& everyone) {
  std::string mine = world.host() + "\n" + std::to_string(core_quota().value_or(0));
  for (const int number : allowed_processors()) mine += " " + std::to_string(number);
  const std::vector<std::string> answers = gather_bytes(everyone, mine, 0);
  std::string fewest;
  if (everyone.rank() == 0) {
    std::map<std::string, std::pair<int, std::set<int>>> hosts;
    for (const std::string& answer : answers) {
      std::istringstream text(answer);
      std::string host;
      std::getline(text, host);
      auto& [quota, processors] = hosts[host];
      text >> quota;
      for (int number = 0; text >> number;) processors.insert(number);
    }
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (const auto& [host, cores] : hosts) {
      const auto count = std::max<std::int64_t>(1, std::ssize(cores.second));
      least = std::min({least, count, cores.first > 0 ? cores.first : count});
    }
    fewest = std::to_string(least);
  }
  broadcast_bytes(everyone, fewest, 0);
  return std::stoll(fewest);
}

DeviceChoice device_here(const ParallelConfig& asked, std::int64_t ranks) {
  if (asked.device == "cuda") return {DeviceKind::cuda, "", true};
  if (asked.device != automatic) return {};
  const OwnDevice last = own_device(ranks - 1, shares(asked.share_devices));
  if (!last.lack.empty()) return lacking(asked.device, last.lack);
  return all_have(last.kind, shares(asked.share_devices));
}

DeviceChoice agree_on_device(const ParallelConfig& asked, const World& world, Group& everyone) {
  const std::vector<std::string> answers = gather_bytes(everyone, answer_of(asked, world), 0);
  std::string verdict;
  if (everyone.rank() == 0 && (asked.device == automatic || asked.device == "cuda")) {
    const DeviceChoice choice = judge(asked, answers);
    verdict = (choice.device == DeviceKind::cuda ? "d" : "c") +
              std::string(choice.usable ? "+" : "-") + choice.why;
  }
  broadcast_bytes(everyone, verdict, 0);
  if (verdict.empty()) return {};
  return {verdict[0] == 'd' ? DeviceKind::cuda : DeviceKind::cpu, verdict.substr(2),
          verdict[1] == '+'};
}

DeviceKind choose_device(const ParallelConfig& asked, const World& world, Group& everyone) {
  const DeviceChoice choice = agree_on_device(asked, world, everyone);
  require(choice.usable, ExitCode::unavailable, "parallel.device cuda: " + choice.why);
  if (asked.device == automatic && world.rank() == 0)
    log_info("parallel.device auto: " + choice.why);
  return choice.device;
}

namespace {

// The oldest that was compared with the plain kernels on a device (docs/gpu.md).
constexpr std::int64_t checked_cudnn = 91400;
constexpr int checked_capability = 90;

std::string cudnn_text(std::int64_t version) {
  return "cuDNN " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) +
         "." + std::to_string(version % 100);
}

/// "+cuDNN 9.19.0", or "-" and why not.
std::string own_cudnn(int local_rank, bool share) {
  try {
    const int device = cuda_device_of(local_rank, share);
    const int capability = cuda_module().properties(device).capability;
    if (capability != checked_capability) {
      return "-compute capability " + std::to_string(capability / 10) + "." +
             std::to_string(capability % 10) + " is not 9.0, for which plans of cuDNN were checked";
    }
    const std::int64_t version = cuda_attention().version();
    if (version < checked_cudnn) {
      return "-" + cudnn_text(version) + " is older than 9.14, the oldest that was checked";
    }
    return "+" + cudnn_text(version);
  } catch (const Error& error) {
    return "-" + std::string(error.what());
  }
}

CudnnChoice judge_cudnn(const std::vector<std::string>& answers) {
  for (std::size_t rank = 0; rank < answers.size(); ++rank) {
    const std::string& answer = answers[rank];
    const std::string text = answer.empty() ? "it does not ask" : answer.substr(1);
    const std::string name = answers.size() > 1 ? "rank " + std::to_string(rank) + ": " : "";
    if (!answer.starts_with('+')) return {false, name + text};
    if (answer != answers[0]) return {false, name + text + ", rank 0: " + answers[0].substr(1)};
  }
  return {true, answers[0].substr(1)};
}

}  // namespace

CudnnChoice cudnn_here(AttentionBackend asked, DeviceKind device) {
  if (asked != AttentionBackend::automatic || device != DeviceKind::cuda) return {};
  return judge_cudnn({own_cudnn(0, false)});
}

CudnnChoice agree_on_cudnn(const ParallelConfig& asked, const DeviceChoice& device,
                           const World& world, Group& everyone) {
  const bool asks = asked.attention_backend == AttentionBackend::automatic &&
                    device.device == DeviceKind::cuda && device.usable;
  const std::vector<std::string> answers = gather_bytes(
      everyone, asks ? own_cudnn(world.local_rank(), shares(asked.share_devices)) : "", 0);
  std::string verdict;
  if (everyone.rank() == 0 && asks) {
    const CudnnChoice choice = judge_cudnn(answers);
    verdict = (choice.taken ? "+" : "-") + choice.why;
  }
  broadcast_bytes(everyone, verdict, 0);
  if (verdict.empty()) return {};
  return {verdict[0] == '+', verdict.substr(1)};
}

std::string refusal_of_cudnn(const Plan& plan, const World& world, Group& everyone) {
  if (!plan.cudnn) return "";
  std::string mine;
  try {
    cuda_select_device(world.local_rank(), shares(plan.share_devices));
    cuda_attention().prepare(*plan.cudnn, attention_parts(*plan.cudnn), plan.compute);
  } catch (const Error& error) {
    mine = error.what();
  }
  std::string first;
  for (const std::string& answer : gather_bytes(everyone, mine, 0)) {
    if (first.empty()) first = answer;
  }
  broadcast_bytes(everyone, first, 0);
  return first;
}

}  // namespace trainctl
