// Ranks that are threads and share one device: groups of threads carry its tensors.
#include <array>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "catch.h"
#include "comm/collectives_body.h"
#include "comm/group.h"
#include "contains.h"
#include "device/cuda_device.h"
#include "device/slab.h"

using namespace trainctl;

namespace {

/// The outcome of each of `size` ranks on device 0: "" or the message of an error. The body gets a
/// group of all ranks, a stream and eight numbers.
template <class Body>
std::vector<std::string> ends_on_one_device(int size, double deadline, const Body& body) {
  std::vector<std::string> ends(static_cast<std::size_t>(size));
  const auto run = [&](World& world) {
    cuda_select_device(0);
    try {
      const auto group = world.everyone("all");
      Stream stream(DeviceKind::cuda, "comm", Stream::Mode::queued);
      const Slab data(DeviceKind::cuda, {{"numbers", Shape{8}, DType::f32}});
      body(*group, data.at("numbers"), stream);
    } catch (const Error& error) {
      ends[static_cast<std::size_t>(world.rank())] = error.what();
      throw;
    }
  };
  try {
    run_thread_world(size, WorldOptions{.deadline_seconds = deadline}, run);
  } catch (const Error&) {  // it is among the ends
  }
  return ends;
}

void sleep_seconds(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

}  // namespace

TEST_CASE("every operation works among threads that share a device, with the bits of the host") {
  const int size = GENERATE(2, 3, 4);
  std::mutex mutex;
  std::vector<std::string> failures;
  run_thread_world(size, {.deadline_seconds = 60}, [&](World& world) {
    cuda_select_device(0);
    const BodyReport report = run_device_body(world);
    const std::lock_guard lock(mutex);
    failures.insert(failures.end(), report.failures.begin(), report.failures.end());
  });
  CHECK(failures == std::vector<std::string>{});
}

TEST_CASE("a rank that dies ends the sums and messages of those on its device") {
  const auto start = std::chrono::steady_clock::now();
  const auto sums = ends_on_one_device(3, 60, [](Group& group, const Tensor& data, Stream& stream) {
    group.all_reduce(data, stream);
    if (group.rank() == 1) throw Error(ExitCode::internal, "out of luck");
    group.all_reduce(data, stream);
  });
  CHECK(sums[1] == "out of luck");
  for (const std::size_t rank : {0, 2}) CHECK(contains(sums[rank], "rank 1 failed: out of luck"));
  const auto waits =
      ends_on_one_device(2, 60, [](Group& group, const Tensor& data, Stream& stream) {
        if (group.rank() == 0) throw Error(ExitCode::internal, "no letter");
        stream.wait(group.receive(data, 0, 7, stream));
      });
  CHECK(contains(waits[1], "rank 0 failed: no letter"));
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(30));
}

TEST_CASE("a deadline names the rank that does not come to those on its device") {
  const auto sums =
      ends_on_one_device(3, 0.5, [](Group& group, const Tensor& data, Stream& stream) {
        if (group.rank() == 1) return sleep_seconds(1.5);
        group.all_reduce(data, stream);
      });
  const std::string sum = sums[0].empty() ? sums[2] : sums[0];
  CHECK(contains(sum, "all_reduce 'all' waited 0."));
  CHECK(contains(sum, "s for rank 1 (host "));
  const auto waits =
      ends_on_one_device(2, 0.5, [](Group& group, const Tensor& data, Stream& stream) {
        if (group.rank() == 0) return sleep_seconds(1.5);
        stream.wait(group.send(data, 0, 7, stream));
      });
  CHECK(contains(waits[1], "send 'all' waited 0."));
  CHECK(contains(waits[1], "s for rank 0 (host "));
}

TEST_CASE("ranks on one device that call differently find out") {
  const auto counts =
      ends_on_one_device(2, 60, [](Group& group, const Tensor& data, Stream& stream) {
        group.all_reduce(data.slice(0, 4 + 4 * group.rank()), stream);
      });
  for (const std::string& end : counts) CHECK(contains(end, "the ranks of group 'all' differ"));
  const auto places =
      ends_on_one_device(2, 60, [](Group& group, const Tensor& data, Stream& stream) {
        if (group.rank() == 0) return group.all_reduce(data, stream);
        std::array<float, 8> on_host{};
        Stream here(DeviceKind::cpu, "host", Stream::Mode::run_inline);
        group.all_reduce(host_tensor(on_host.data(), 8), here);
        here.synchronize();
      });
  for (const std::string& end : places) {
    CHECK(contains(end, "1 of 2 call all_reduce on tensors of a device"));
  }
  const auto sizes =
      ends_on_one_device(2, 60, [](Group& group, const Tensor& data, Stream& stream) {
        const bool sends = group.rank() == 0;
        const Tensor part = data.slice(0, sends ? 8 : 4);
        const Event event =
            sends ? group.send(part, 1, 0, stream) : group.receive(part, 0, 0, stream);
        stream.wait(event);
      });
  CHECK(contains(sizes[0] + sizes[1], "sends 32 bytes where 16 are expected"));
}
