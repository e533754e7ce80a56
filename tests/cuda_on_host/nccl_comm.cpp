// How communicators are made by splits, and what the machine asks of all of them.
#include "nccl_comm.h"

#include <algorithm>
#include <cstdlib>

#include "comm/nccl/nccl_check.h"

namespace cuda_on_host {

namespace {

/// All members have called: those of one colour are a clique, in the order of their keys.
void form_children(Clique& parent, Split& split) {
  std::map<int, std::map<int, ncclComm_t>> colours;  // by key
  for (const Split::Part& part : split.parts) {
    if (part.slot != nullptr) *part.slot = part.child;
    if (part.meetings != split.parts.front().meetings) {
      return parent.fail("members split after another number of operations");
    }
    if (part.child == nullptr) continue;
    if (!colours[part.colour].try_emplace(part.key, part.child).second) {
      return parent.fail("two members of a split have one colour and one key");
    }
  }
  for (const auto& [colour, members] : colours) {
    const auto clique = std::make_shared<Clique>();
    for (const auto& [key, child] : members) {
      child->clique = clique;
      child->rank = static_cast<int>(clique->members.size());
      child->size = static_cast<int>(members.size());
      clique->members.push_back(child);
    }
    clique->joined = clique->members.size();
  }
}

std::vector<ncclComm_t>& all_communicators() {
  static std::vector<ncclComm_t> all;
  return all;
}

/// Whether NCCL still waits on this device: what frees memory there waits, too.
bool is_busy(int device) {
  return std::ranges::any_of(all_communicators(), [&](ncclComm_t one) {
    return one->device == device && !one->issued.empty();
  });
}

const bool told_machine = [] {
  Machine::get().communicates = is_busy;
  return true;
}();

}  // namespace

ncclComm_t new_communicator() {
  auto* made = new ncclComm;
  made->device = Machine::device();
  all_communicators().push_back(made);
  return made;
}

std::string& last_nccl_failure() {
  static thread_local std::string text;
  return text;
}

ncclResult_t refuse(const std::string& why) {
  last_nccl_failure() = why;
  return ncclInvalidUsage;
}

}  // namespace cuda_on_host

namespace trainctl {

std::string nccl_missing() {
  return std::getenv("CUDA_ON_HOST_NO_NCCL") != nullptr ? "cannot open libnccl.so.2" : "";
}

}  // namespace trainctl

using namespace cuda_on_host;

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int colour, int key, ncclComm_t* child,
                           ncclConfig_t* config) {
  if (config->blocking != 0) return refuse("only communicators that do not block are known");
  if (colour < 0 && colour != NCCL_SPLIT_NOCOLOR) return refuse("a colour is negative");
  Machine& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  if (comm->aborted) return refuse("the communicator is gone");
  Clique& parent = *comm->clique;
  const std::size_t number = comm->splits++;
  if (parent.splits.size() <= number) parent.splits.resize(number + 1);
  Split& split = parent.splits[number];
  split.parts.resize(parent.members.size());
  *child = nullptr;
  split.parts[static_cast<std::size_t>(comm->rank)] = {
      colour, key, comm->meetings, colour == NCCL_SPLIT_NOCOLOR ? nullptr : new_communicator(),
      child};
  if (++split.arrived == split.parts.size()) form_children(parent, split);
  machine.notify();
  return ncclInProgress;
}

}  // extern "C"
