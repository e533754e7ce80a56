// NCCL on the host: members that call differently are found, and nobody waits for ever for one that
// is gone.
#include <array>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

#include "base/error.h"
#include "catch.h"
#include "comm/group.h"
#include "comm/nccl/device_world.h"
#include "comm/nccl/nccl_module.h"
#include "comm/world.h"
#include "contains.h"
#include "device/cuda_device.h"
#include "device/slab.h"

using namespace trainctl;

namespace {

constexpr double deadline = 5;

/// The outcome of each of `size` ranks: "" or the message of an error. The body of a rank gets its
/// world of devices and a group of all ranks there, already opened.
template <int size, class Body>
std::array<std::string, size> found_by(const Body& body) {
  std::array<std::string, size> found;
  const auto run = [&](World& world) {
    cuda_select_device(world.local_rank());
    std::string& mine = found[static_cast<std::size_t>(world.rank())];
    try {
      const DeviceWorld devices(world, DeviceKind::cuda, deadline);
      std::vector<int> ranks(size);
      std::iota(ranks.begin(), ranks.end(), 0);
      const auto group = devices.group("all", ranks, Lane::layers, Carries::all);
      devices.open();
      mine = body(*group, devices);
    } catch (const Error& error) {
      mine = error.what();
      throw;
    }
  };
  try {
    run_thread_world(size, WorldOptions{.deadline_seconds = deadline}, run);
  } catch (const Error&) {  // it is among those found
  }
  return found;
}

template <class Body>
std::array<std::string, 2> found_by_ranks(const Body& body) {
  return found_by<2>([&](Group& group, const DeviceWorld&) { return body(group); });
}

/// The outcomes of the two ranks of a communicator when each splits it after `before(rank)`: "" or
/// the message of an error.
template <class Before>
std::array<std::string, 2> found_by_split(const std::array<int, 2>& colours,
                                          const std::array<int, 2>& keys, const Before& before) {
  const auto& nccl =
      *static_cast<const NcclModule*>(cuda_module_part("trainctl_cuda_nccl", sizeof(NcclModule)));
  const std::string id = nccl.new_unique_id();
  std::array<std::string, 2> found;
  run_thread_world(2, WorldOptions{}, [&](World& world) {
    cuda_select_device(world.local_rank());
    const auto rank = static_cast<std::size_t>(world.rank());
    const auto settle = [&](void* one) {
      const auto start = std::chrono::steady_clock::now();
      while (!nccl.settled(one)) {
        std::this_thread::yield();
        const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
        require(waited.count() < deadline, ExitCode::peer, "nobody came");
      }
    };
    std::vector<void*> made{nccl.join("pair", world.rank(), 2, id)};
    try {
      settle(made[0]);
      Stream stream(DeviceKind::cuda, "comm", Stream::Mode::queued);
      before(world.rank(), nccl, made[0], stream);
      made.push_back(nccl.split(made[0], colours[rank], "part", keys[rank], 1));
      settle(made[1]);
    } catch (const Error& error) {
      found[rank] = error.what();
    }
    nccl.abort(made);
    for (void* one : made) nccl.release(one);
  });
  return found;
}

Slab numbers(std::int64_t count) {
  return Slab(DeviceKind::cuda, {{"numbers", Shape{count}, DType::f32}});
}

/// "" once all that was enqueued is done; otherwise what the group says of it.
std::string outcome(Group& group, Stream& stream) {
  if (Stream::wait_host(stream.record(), 1)) return "";
  group.barrier(stream);
  return "nothing was done, and nothing said";
}

}  // namespace

TEST_CASE("members that call alike get their sums") {
  const auto found = found_by_ranks([](Group& group) {
    Stream stream(DeviceKind::cuda, "comm", Stream::Mode::queued);
    const Slab data = numbers(1000);
    for (int i = 0; i < 20; ++i) group.all_reduce(data.at("numbers"), stream);
    return outcome(group, stream);
  });
  CHECK(found[0] == "");
  CHECK(found[1] == "");
}

TEST_CASE("another count is found by all members") {
  const auto found = found_by_ranks([](Group& group) {
    Stream stream(DeviceKind::cuda, "comm", Stream::Mode::queued);
    const Slab data = numbers(8);
    group.all_reduce(data.at("numbers").slice(0, 4 + 4 * group.rank()), stream);
    return outcome(group, stream);
  });
  for (const std::string& message : found) CHECK(contains(message, "unlike another member"));
}

TEST_CASE("another operation is found by all members") {
  const auto found = found_by_ranks([](Group& group) {
    Stream stream(DeviceKind::cuda, "comm", Stream::Mode::queued);
    const Slab data = numbers(8);
    if (group.rank() == 0) {
      group.all_reduce(data.at("numbers"), stream);
    } else {
      group.broadcast(data.at("numbers"), 0, stream);
    }
    return outcome(group, stream);
  });
  for (const std::string& message : found) CHECK(contains(message, "unlike another member"));
}

TEST_CASE("counts of messages that do not match are found") {
  const auto found = found_by_ranks([](Group& group) {
    Stream stream(DeviceKind::cuda, "comm", Stream::Mode::queued);
    const Slab from = numbers(8);
    const Slab to = numbers(8);
    const std::int64_t odd = group.rank() == 0 ? 3 : 1;
    group.all_to_all(from.at("numbers"), std::array<std::int64_t, 2>{1, odd}, to.at("numbers"),
                     std::array<std::int64_t, 2>{1, 1}, stream);
    return outcome(group, stream);
  });
  for (const std::string& message : found) CHECK(contains(message, "sends another count"));
}

TEST_CASE("a stream of another device is refused") {
  const auto found = found_by_ranks([](Group& group) {
    cuda_select_device(1 - group.rank());
    Stream stream(DeviceKind::cuda, "comm", Stream::Mode::queued);
    cuda_select_device(group.rank());
    const Slab data = numbers(8);
    group.all_reduce(data.at("numbers"), stream);
    return std::string();
  });
  for (const std::string& message : found) CHECK(contains(message, "of another device"));
}

TEST_CASE("an all_to_all that is refused leaves no call open") {
  const auto found = found_by_ranks([](Group& group) {
    cuda_select_device(1 - group.rank());
    Stream elsewhere(DeviceKind::cuda, "elsewhere", Stream::Mode::queued);
    cuda_select_device(group.rank());
    Stream stream(DeviceKind::cuda, "comm", Stream::Mode::queued);
    const Slab from = numbers(2);
    const Slab to = numbers(2);
    const std::array<std::int64_t, 2> ones{1, 1};
    CHECK_THROWS_AS(group.all_to_all(from.at("numbers"), ones, to.at("numbers"), ones, elsewhere),
                    Error);
    group.all_reduce(from.at("numbers"), stream);
    return outcome(group, stream);
  });
  for (const std::string& message : found) CHECK(message == "");
}

TEST_CASE("a rank that dies ends the collective, and memory is freed after that") {
  const auto start = std::chrono::steady_clock::now();
  const auto found = found_by<3>([](Group& group, const DeviceWorld&) {
    if (group.rank() == 1) throw Error(ExitCode::internal, "out of luck");
    Stream stream(DeviceKind::cuda, "comm", Stream::Mode::queued);
    const Slab data = numbers(8);
    group.all_reduce(data.at("numbers"), stream);
    stream.synchronize();  // has no deadline
    return std::string("done without the other");
  });
  CHECK(found[1] == "out of luck");
  for (const int rank : {0, 2}) {
    INFO(found[static_cast<std::size_t>(rank)]);
    CHECK(contains(found[static_cast<std::size_t>(rank)], "rank 1 failed: out of luck"));
    CHECK(contains(found[static_cast<std::size_t>(rank)],
                   "under way: all_reduce of world (call 6 of 32 bytes"));
  }
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::duration<double>(deadline));
}

TEST_CASE("a rank that dies ends the receive of another") {
  const auto found = found_by<2>([](Group& group, const DeviceWorld& devices) {
    const int other = 1 - group.rank();
    const std::array<MessageLine, 1> lines{{{other, 7, group.rank() == 0}}};
    group.open_lines(lines);
    devices.open();
    if (group.rank() == 0) throw Error(ExitCode::internal, "no letter");
    Stream stream(DeviceKind::cuda, "comm", Stream::Mode::queued);
    const Slab data = numbers(8);
    Stream::wait_host(group.receive(data.at("numbers"), other, 7, stream), 60);
    return std::string("got one");
  });
  CHECK(contains(found[1], "rank 0 failed: no letter"));
  CHECK(contains(found[1], "receive of all 7 among ranks 0, 1"));
}

TEST_CASE("a rank that dies while communicators are made is missed by the others") {
  std::array<std::string, 3> found;
  const auto run = [&](World& world) {
    cuda_select_device(world.local_rank());
    const DeviceWorld devices(world, DeviceKind::cuda, 60);
    const auto group = devices.everyone("all");
    if (world.rank() == 2) throw Error(ExitCode::internal, "died early");
    try {
      devices.open();
    } catch (const Error& error) {
      found[static_cast<std::size_t>(world.rank())] = error.what();
      throw;
    }
  };
  CHECK_THROWS_WITH(run_thread_world(3, WorldOptions{}, run), "died early");
  CHECK(contains(found[0], "rank 2 failed: died early"));
  CHECK(contains(found[1], "rank 2 failed: died early"));
}

TEST_CASE("a deadline names the collective that waits") {
  const auto found = found_by_ranks([](Group& group) {
    Stream stream(DeviceKind::cuda, "comm", Stream::Mode::queued);
    const Slab data = numbers(8);
    if (group.rank() == 0) group.all_reduce(data.at("numbers"), stream);
    await(stream.record(), 0.5, [] { return "the sum"; });
    std::this_thread::sleep_for(std::chrono::seconds(3));
    return std::string("did not take part");
  });
  CHECK(contains(found[0], "the sum did not end within 1.0 s; under way: all_reduce of world"));
}

TEST_CASE("ranks that want different communicators find out") {
  const auto found = found_by<2>([](Group& group, const DeviceWorld& devices) {
    const std::array<int, 2> ranks{0, 1};
    const Lane lane = group.rank() == 0 ? Lane::gradients : Lane::experts;
    const auto other = devices.group("other", ranks, lane);
    devices.open();
    return std::string();
  });
  CHECK(contains(found[1], "[wires] rank 1 does not want gradients among ranks 0, 1"));
}

TEST_CASE("members split a communicator alike") {
  const auto nothing = [](int, const NcclModule&, void*, Stream&) {};
  for (const std::string& message : found_by_split({3, 3}, {1, 0}, nothing)) CHECK(message == "");
  for (const std::string& message : found_by_split({0, 1}, {0, 0}, nothing)) CHECK(message == "");
  for (const std::string& message : found_by_split({3, 3}, {0, 0}, nothing)) {
    CHECK(contains(message, "one colour and one key"));
  }
  const auto one_calls = [](int rank, const NcclModule& nccl, void* communicator, Stream& stream) {
    const WireCall call{.operation = GroupOperation::barrier};
    if (rank == 0) nccl.call(communicator, call, stream.native());
  };
  for (const std::string& message : found_by_split({3, 3}, {0, 1}, one_calls)) {
    CHECK(contains(message, "split after another number of operations"));
  }
}
