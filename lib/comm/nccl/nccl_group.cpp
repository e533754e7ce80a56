#include "comm/nccl/nccl_group.h"

#include "comm/await.h"
#include "comm/nccl/nccl_module.h"
#include "device/cuda_device.h"

namespace trainctl {

namespace {

const NcclModule& nccl_module() {
  return *static_cast<const NcclModule*>(
      cuda_module_part("trainctl_cuda_nccl", sizeof(NcclModule)));
}

}  // namespace

std::unique_ptr<Group> make_nccl_group(Group& host, const std::string& name,
                                       double deadline_seconds) {
  const NcclModule& nccl = nccl_module();
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

std::unique_ptr<Group> make_nccl_line(Group& host, const MessageLine& line,
                                      double deadline_seconds) {
  const NcclModule& nccl = nccl_module();
  Stream control(DeviceKind::cpu, "nccl bootstrap", Stream::Mode::run_inline);
  std::string id(static_cast<std::size_t>(nccl.unique_id_bytes), 0);
  if (line.sends) id = nccl.new_unique_id();
  const Tensor bytes = host_tensor(reinterpret_cast<std::uint8_t*>(id.data()), std::ssize(id));
  const Event met = line.sends ? host.send(bytes, line.peer, line.tag, control)
                               : host.receive(bytes, line.peer, line.tag, control);
  await(met, deadline_seconds, [&] { return "forming a line of '" + host.name() + "'"; });
  return nccl.join(NcclMember{host.name(), id, line.sends ? 0 : 1, 2, deadline_seconds});
}

}  // namespace trainctl
