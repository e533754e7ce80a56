#include "engine/grad_sync.h"

#include "base/error.h"

namespace trainctl {

GradSync::GradSync(Group& group, const ParamStore& store, int buckets, DeviceKind device)
    : group_(group),
      store_(store),
      stream_(device, "comm " + group.name(), Stream::Mode::queued),
      done_(static_cast<std::size_t>(buckets)) {}

void GradSync::reduce(int bucket, Stream& compute) {
  stream_.wait(compute.record());
  group_.all_reduce(store_.bucket(bucket), stream_);
  done_[static_cast<std::size_t>(bucket)] = stream_.record();
}

void GradSync::wait(int bucket, Stream& compute, double deadline_seconds) {
  const Event& done = done_[static_cast<std::size_t>(bucket)];
  // The host waits as well: a failed reduction must stop this rank here, with the group's own
  // message.
  require(Stream::wait_host(done, 2 * deadline_seconds), ExitCode::peer,
          "the sum of gradient bucket " + std::to_string(bucket) + " over group '" + group_.name() +
              "' did not end within " + std::to_string(2 * deadline_seconds) + " s");
  compute.wait(done);
}

}  // namespace trainctl
