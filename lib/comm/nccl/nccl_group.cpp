#include "comm/nccl/nccl_group.h"

#include "comm/nccl/nccl_module.h"
#include "device/cuda_device.h"

namespace trainctl {

std::unique_ptr<Group> make_nccl_group(Group& host, const std::string& name,
                                       double deadline_seconds) {
  const auto& nccl =
      *static_cast<const NcclModule*>(cuda_module_part("trainctl_cuda_nccl", sizeof(NcclModule)));
  std::string unique_id;
  if (host.rank() == 0) unique_id = nccl.new_unique_id();
  broadcast_bytes(host, unique_id, 0);
  // A broadcast may end on its root before it has moved at all where nothing drives it further, and
  // what comes next blocks: the barrier sees it through.
  Stream control(DeviceKind::cpu, "nccl bootstrap", Stream::Mode::run_inline);
  host.barrier(control);
  control.synchronize();
  return nccl.join(NcclMember{name, unique_id, host.rank(), host.size(), deadline_seconds});
}

}  // namespace trainctl
