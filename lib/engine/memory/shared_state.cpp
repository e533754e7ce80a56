#include "engine/memory/shared_state.h"

#include <new>
#include <vector>

#include "comm/await.h"

namespace trainctl {

SharedState::SharedState(DeviceKind device) {
  const std::vector<SlabRow> rows{{"state", {sizeof(StepState)}, DType::u8}};
  on_host_ = Slab::on_host_for(device, rows);
  host_ = new (bytes_of(on_host_).data) StepState();
  kernels_ = host_;
  if (device == DeviceKind::cpu) return;
  on_device_ = Slab(device, rows);
  kernels_ = static_cast<StepState*>(bytes_of(on_device_).data);
}

void SharedState::send(Stream& stream) const {
  if (kernels_ != host_) stream.copy(bytes_of(on_device_), bytes_of(on_host_));
}

void SharedState::fetch(Stream& stream, double deadline_seconds) const {
  if (kernels_ != host_) stream.copy(bytes_of(on_host_), bytes_of(on_device_));
  await(stream.record(), deadline_seconds, [] { return "the work of a step on the device"; });
}

}  // namespace trainctl
