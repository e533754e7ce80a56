// NCCL on the host: members that call differently are found, and nobody waits for ever for one that
// is gone.
#include <array>

#include "base/error.h"
#include "catch.h"
#include "comm/nccl/nccl_group.h"
#include "comm/world.h"
#include "contains.h"
#include "device/cuda_device.h"
#include "device/slab.h"

using namespace trainctl;

namespace {

constexpr double deadline = 5;

std::unique_ptr<Group> host_group(World& world) {
  std::vector<int> ranks;
  for (int rank = 0; rank < world.size(); ++rank) ranks.push_back(rank);
  return world.group("host", ranks);
}

/// What each of two ranks finds: "" or the message of an error.
template <class Body>
std::array<std::string, 2> found_by_ranks(const Body& body) {
  std::array<std::string, 2> found;
  run_thread_world(2, WorldOptions{}, [&](World& world) {
    const auto host = host_group(world);
    cuda_select_device(world.local_rank());
    std::string& mine = found[static_cast<std::size_t>(world.rank())];
    try {
      const auto group = make_nccl_group(*host, "pair", deadline);
      mine = body(*group);
    } catch (const Error& error) {
      mine = error.what();
    }
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

TEST_CASE("a member that is gone is missed, and what waited for it ends with the group") {
  const auto found = found_by_ranks([](Group& group) {
    if (group.rank() == 1) throw Error(ExitCode::internal, "gone");
    Stream stream(DeviceKind::cuda, "comm", Stream::Mode::queued);
    const Slab data = numbers(8);
    group.all_reduce(data.at("numbers"), stream);
    if (Stream::wait_host(stream.record(), 1)) return std::string("done without the other");
    throw Error(ExitCode::peer, "nobody came");
  });
  CHECK(found[0] == "nobody came");
  CHECK(found[1] == "gone");
}
