// What work on this thread's device depends on besides the device: other ranks, which may fail. A
// device that waits for one of them waits for ever, and so does a thread that frees its memory; so
// a host that waits for the device looks at the other ranks, and a thread that unwinds lets go of
// them before it frees anything.
#pragma once

#include <string>

namespace trainctl {

/// Of the thread that makes it, which must also destroy it.
class DeviceHealth {
 public:
  DeviceHealth();
  virtual ~DeviceHealth();
  DeviceHealth(const DeviceHealth&) = delete;
  DeviceHealth& operator=(const DeviceHealth&) = delete;

  /// Throws Error{peer} naming what failed, after abandon(). Called while the host waits, many
  /// times per second.
  virtual void check() = 0;
  /// Ends what the device waits for without the other ranks: its streams go on, with undefined
  /// results. A second call does nothing.
  virtual void abandon() noexcept = 0;
  /// What the device has been asked for and has not done: "all_reduce ...; send ..."; or "".
  virtual std::string open_work() = 0;
};

/// All that this thread has made.
void check_devices();
/// Whether this thread has any.
bool checks_devices();
void abandon_devices() noexcept;
/// "; under way: all_reduce ..." or "".
std::string open_device_work();

}  // namespace trainctl
