#include "engine/grad_sync.h"

#include "base/error.h"

namespace trainctl {

GradSync::GradSync(Group& group, const ParamStore& store, int buckets, DeviceKind device)
    : group_(group), stream_(device, "comm " + group.name(), Stream::Mode::queued) {
  for (int bucket = 0; bucket < buckets; ++bucket) buckets_.push_back({store.bucket(bucket), {}});
}

void GradSync::reduce(int bucket, Stream& compute) {
  Pending& pending = buckets_[static_cast<std::size_t>(bucket)];
  stream_.wait(compute.record());
  group_.all_reduce(pending.gradients, stream_);
  pending.done = stream_.record();
}

void GradSync::wait(int bucket, Stream& compute, double deadline_seconds) {
  const Event& done = buckets_[static_cast<std::size_t>(bucket)].done;
  // The host waits as well: a failed reduction must stop this rank here, with the group's own
  // message.
  if (!Stream::wait_host(done, 2 * deadline_seconds)) {
    throw Error(ExitCode::peer, "the sum of gradient bucket " + std::to_string(bucket) +
                                    " over group '" + group_.name() + "' did not end within " +
                                    std::to_string(2 * deadline_seconds) + " s");
  }
  compute.wait(done);
}

}  // namespace trainctl
