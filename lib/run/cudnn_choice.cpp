#include "run/cudnn_choice.h"

#include <vector>

#include "base/error.h"
#include "device/cuda_device.h"
#include "ops/cuda_attention.h"

namespace trainctl {

namespace {

// What cuDNN's support checks were run for (the test cudnn_plans).
constexpr std::int64_t checked_cudnn = 91900;
constexpr int checked_capability = 90;

std::string cudnn_text(std::int64_t version) {
  return "cuDNN " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) +
         "." + std::to_string(version % 100);
}

/// "+cuDNN 9.19.0", or "-" and why not.
std::string own_cudnn(int device) {
  try {
    const int capability = cuda_module().properties(device).capability;
    if (capability != checked_capability) {
      return "-compute capability " + std::to_string(capability / 10) + "." +
             std::to_string(capability % 10) + " is not 9.0, for which plans of cuDNN were checked";
    }
    const std::int64_t version = cuda_attention().version();
    if (version < checked_cudnn) {
      return "-" + cudnn_text(version) + " is older than 9.19, of which plans were checked";
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
  return judge_cudnn({own_cudnn(0)});
}

CudnnChoice agree_on_cudnn(AttentionBackend asked, const DeviceChoice& device, const World& world,
                           Group& everyone) {
  const bool asks =
      asked == AttentionBackend::automatic && device.device == DeviceKind::cuda && device.usable;
  const std::vector<std::string> answers =
      gather_bytes(everyone, asks ? own_cudnn(world.local_rank()) : "", 0);
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
    cuda_select_device(world.local_rank());
    cuda_attention().prepare(*plan.cudnn, attention_part(*plan.cudnn), plan.compute);
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
