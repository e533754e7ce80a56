#include "run/agreement.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "device/cuda_device.h"

namespace trainctl {

namespace {

constexpr const char* automatic = "auto";

/// What one rank of a machine has.
struct OwnDevice {
  std::string kind;  // "NVIDIA H200, compute capability 9.0"; empty: none
  std::string lack;  // why none
};

OwnDevice own_device(std::int64_t local_rank) {
  try {
    const CudaModule& cuda = cuda_module();
    const int device = cuda_device_of(local_rank);
    if (device < 0) return {"", no_device_text(local_rank, cuda.device_count())};
    const CudaDeviceProperties found = cuda.properties(device);
    return {found.name + ", compute capability " + std::to_string(found.capability / 10) + "." +
                std::to_string(found.capability % 10),
            ""};
  } catch (const Error& error) {
    return {"", error.what()};
  }
}

DeviceChoice lacking(const std::string& asked, const std::string& what) {
  if (asked == automatic) return {DeviceKind::cpu, "the CPU: " + what, true};
  return {DeviceKind::cuda, what, false};
}

/// Every rank's answer as text that rank 0 reads: what was asked, then "+" and the kind, or "-" and
/// what is lacking.
std::string answer_of(const std::string& asked, const World& world) {
  if (asked != automatic && asked != "cuda") return asked;
  const OwnDevice own = own_device(world.local_rank());
  return asked + (own.lack.empty() ? "+" + own.kind : "-" + own.lack);
}

/// Of all ranks' answers. Ranks that ask for different devices make different plans, which is found
/// there.
DeviceChoice judge(const std::string& asked, const std::vector<std::string>& answers) {
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
  return {DeviceKind::cuda, "a CUDA device for each rank: " + first, true};
}

}  // namespace

CpuLevel agree_on_cpu_level(Group& world) {
  const auto levels = gather_values(world, static_cast<double>(cpu_level()));
  const auto lowest = static_cast<CpuLevel>(*std::min_element(levels.begin(), levels.end()));
  if (lowest != cpu_level()) set_cpu_level(lowest);
  return lowest;
}

DeviceChoice device_here(const std::string& asked, std::int64_t ranks) {
  if (asked == "cuda") return {DeviceKind::cuda, "", true};
  if (asked != automatic) return {};
  const OwnDevice last = own_device(ranks - 1);
  if (!last.lack.empty()) return lacking(asked, last.lack);
  return {DeviceKind::cuda, "a CUDA device for each rank: " + last.kind, true};
}

DeviceChoice agree_on_device(const std::string& asked, const World& world, Group& everyone) {
  const std::vector<std::string> answers = gather_bytes(everyone, answer_of(asked, world), 0);
  std::string verdict;
  if (everyone.rank() == 0 && (asked == automatic || asked == "cuda")) {
    const DeviceChoice choice = judge(asked, answers);
    verdict = (choice.device == DeviceKind::cuda ? "d" : "c") +
              std::string(choice.usable ? "+" : "-") + choice.why;
  }
  broadcast_bytes(everyone, verdict, 0);
  if (verdict.empty()) return {};
  return {verdict[0] == 'd' ? DeviceKind::cuda : DeviceKind::cpu, verdict.substr(2),
          verdict[1] == '+'};
}

DeviceKind choose_device(const std::string& asked, const World& world, Group& everyone) {
  const DeviceChoice choice = agree_on_device(asked, world, everyone);
  require(choice.usable, ExitCode::unavailable, "parallel.device cuda: " + choice.why);
  if (asked == automatic && world.rank() == 0) log_info("parallel.device auto: " + choice.why);
  return choice.device;
}

}  // namespace trainctl
