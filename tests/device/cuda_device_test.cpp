// Streams, events and memory on a CUDA device.
#include <cstdint>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "catch.h"
#include "cuda_available.h"
#include "device/slab.h"
#include "device/stream.h"

using namespace trainctl;

namespace {

std::vector<std::int32_t> counted(std::int64_t count, std::int32_t first) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), first);
  return values;
}

/// A one-tensor slab [count] of i32 on the device.
Slab device_numbers(std::int64_t count) {
  return Slab(DeviceKind::cuda, {{"numbers", Shape{count}, DType::i32}});
}

std::vector<std::int32_t> read(Stream& stream, const Tensor& device) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(device.numel()), -1);
  stream.copy(host_tensor(values.data(), device.numel()), device);
  stream.synchronize();
  return values;
}

}  // namespace

TEST_CASE("device memory starts as zeroes, and copies arrive") {
  if (!cuda_available()) return;
  constexpr std::int64_t count = 100003;
  Stream stream(DeviceKind::cuda, "test", Stream::Mode::queued);
  const Slab slab = device_numbers(count);
  const Tensor device = slab.at("numbers");
  CHECK(read(stream, device) == std::vector<std::int32_t>(count, 0));
  std::vector<std::int32_t> values = counted(count, 7);
  stream.copy(device, host_tensor(values.data(), count));
  CHECK(read(stream, device) == values);
  stream.zero(device);
  CHECK(read(stream, device) == std::vector<std::int32_t>(count, 0));
}

TEST_CASE("a stream waits for another's event") {
  if (!cuda_available()) return;
  constexpr std::int64_t count = 1 << 24;
  Stream first(DeviceKind::cuda, "first", Stream::Mode::queued);
  Stream second(DeviceKind::cuda, "second", Stream::Mode::queued);
  const Slab from = device_numbers(count);
  const Slab middle = device_numbers(count);
  const Slab to = device_numbers(count);
  std::vector<std::int32_t> values = counted(count, 1);
  first.copy(from.at("numbers"), host_tensor(values.data(), count));
  for (int repeat = 0; repeat < 20; ++repeat) {
    first.zero(middle.at("numbers"));
    first.copy(middle.at("numbers"), from.at("numbers"));
  }
  second.wait(first.record());
  second.copy(to.at("numbers"), middle.at("numbers"));
  CHECK(read(second, to.at("numbers")) == values);
}

TEST_CASE("more events may be under way than the ring first holds") {
  if (!cuda_available()) return;
  constexpr std::int64_t count = 1 << 26;
  Stream stream(DeviceKind::cuda, "test", Stream::Mode::queued);
  Stream other(DeviceKind::cuda, "other", Stream::Mode::queued);
  const Slab slab = device_numbers(count);
  std::vector<Event> events;
  for (int repeat = 0; repeat < 1000; ++repeat) {
    if (repeat % 10 == 0) stream.zero(slab.at("numbers"));
    events.push_back(stream.record());
  }
  other.wait(events[3]);
  other.wait(events[999]);
  CHECK(Stream::wait_host(other.record(), 60));
  for (const Event& event : events) {
    if (!Stream::reached(event)) FAIL("an event was not reached after a later one");
  }
  CHECK(Stream::wait_host(events[0], 0));
  CHECK(events.back().ticket == 1000);
}

TEST_CASE("an event can be waited for without a deadline, and a default one is complete") {
  if (!cuda_available()) return;
  Stream stream(DeviceKind::cuda, "test", Stream::Mode::queued);
  CHECK(Stream::wait_host(Event{}, 0));
  CHECK(stream.native() != nullptr);
  const Event event = stream.record();
  stream.synchronize();
  CHECK(Stream::reached(event));
}

TEST_CASE("host tasks are refused by a CUDA stream") {
  if (!cuda_available()) return;
  Stream stream(DeviceKind::cuda, "compute", Stream::Mode::queued);
  try {
    stream.enqueue(Task([] {}));
    FAIL("nothing was thrown");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::unavailable);
    CHECK(std::string(error.what()).find("[stream compute] host tasks") == 0);
  }
}

TEST_CASE("more memory than the device has is refused with the sizes") {
  if (!cuda_available()) return;
  const CudaDeviceProperties device = cuda_module().properties(0);
  try {
    cuda_allocate(device.memory_bytes * 2);
    FAIL("nothing was thrown");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::unavailable);
    CHECK(std::string(error.what()).find("MiB asked for on device") != std::string::npos);
    CHECK(std::string(error.what()).find(device.name) != std::string::npos);
  }
  Stream stream(DeviceKind::cuda, "after", Stream::Mode::queued);
  CHECK(Stream::wait_host(stream.record(), 60));
}
