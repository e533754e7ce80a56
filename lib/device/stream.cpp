#include "device/stream.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <limits>

#include "base/at.h"
#include "device/cuda_device.h"
#include "device/device_health.h"
#include "device/own_events.h"
#include "device/replaced_streams.h"
#include "device/stream_cpu.h"

namespace trainctl {

namespace {
constexpr double no_deadline = std::numeric_limits<double>::infinity();
constexpr double check_seconds = 0.05;           // between two looks at what a device waits for
std::array<const StreamApi*, 2> replacements{};  // by DeviceKind
}  // namespace

const StreamApi& own_stream_api(DeviceKind device) {
  return device == DeviceKind::cuda ? cuda_stream_api() : cpu_stream_api();
}

const StreamApi& stream_api(DeviceKind device) {
  const StreamApi* other = at(replacements, device);
  return other != nullptr ? *other : own_stream_api(device);
}

void replace_stream_api(DeviceKind device, const StreamApi* api) { at(replacements, device) = api; }

Stream::Stream(DeviceKind device, std::string name, Mode mode)
    : device_(device),
      name_(std::move(name)),
      api_(&stream_api(device)),
      queue_(nullptr),
      run_inline_(mode == Mode::run_inline && device == DeviceKind::cpu) {
  queue_ = api_->create(name_.c_str(), run_inline_);
}

Stream::Stream(DeviceKind device, std::string name, const StreamApi& api, void* queue)
    : device_(device), name_(std::move(name)), api_(&api), queue_(queue), owns_queue_(false) {}

Stream::~Stream() {
  if (owns_queue_) api_->destroy(queue_);
}

void Stream::copy(const Tensor& to, const Tensor& from) {
  assert(to.bytes() == from.bytes());
  api_->copy(queue_, to.data, from.data, to.bytes());
}

void Stream::zero(const Tensor& to) { api_->zero(queue_, to.data, to.bytes()); }

void Stream::wait(const Event& event) {
  if (event.stream == nullptr || event.stream == this) return;
  if (device_ == DeviceKind::cuda && event.stream->api_ == &OwnEvents::api) {
    wait(static_cast<OwnEvents*>(event.stream->queue_)->behind(event.ticket));
  } else if (api_ == event.stream->api_ && !run_inline_) {
    api_->wait(queue_, event.stream->queue_, event.ticket);
  } else if (run_inline_ || device_ == DeviceKind::cuda) {
    wait_host(event, no_deadline);
  } else {
    enqueue(Task([event] { wait_host(event, no_deadline); }));
  }
}

bool Stream::wait_host(const Event& event, double seconds) {
  if (event.stream == nullptr) return true;
  const Stream& stream = *event.stream;
  const auto wait = [&](double limit) {
    return stream.api_->wait_host(stream.queue_, event.ticket, limit);
  };
  if (stream.device_ == DeviceKind::cpu || !checks_devices()) return wait(seconds);
  for (double left = seconds;; left -= check_seconds) {
    if (wait(std::min(left, check_seconds))) return true;
    if (left <= check_seconds) return false;
    check_devices();
  }
}

bool Stream::reached(const Event& event) {
  if (event.stream == nullptr) return true;
  return event.stream->api_->reached(event.stream->queue_, event.ticket);
}

void Stream::synchronize() const { wait_host(record(), no_deadline); }

}  // namespace trainctl
