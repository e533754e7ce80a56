// NCCL groups: one rank always, and one rank (thread) per device, up to four.
#include <algorithm>
#include <array>
#include <chrono>
#include <thread>
#include <vector>

#include "../device/cuda_available.h"
#include "base/error.h"
#include "catch.h"
#include "comm/nccl/device_group.h"
#include "comm/world.h"
#include "device/slab.h"

using namespace trainctl;

namespace {

/// A group over all ranks of `world` on this rank's device, in a lane.
std::unique_ptr<Group> nccl_group(World& world, NcclWires& wires,
                                  const std::string& lane = "test") {
  WireSpec spec{.lane = lane, .ranks = {}, .exchanges = true};
  for (int rank = 0; rank < world.size(); ++rank) spec.ranks.push_back(rank);
  return device_group(world.everyone(lane), wires, spec, true, world.traffic());
}

std::unique_ptr<NcclWires> wires_of(World& world) {
  cuda_select_device(world.local_rank());
  return std::make_unique<NcclWires>(world, 120);
}

/// fp32 device memory with values that can be written and read.
class Numbers {
 public:
  Numbers(Stream& stream, std::vector<float> values)
      : stream_(stream),
        slab_(DeviceKind::cuda, {{"numbers", Shape{std::ssize(values)}, DType::f32}}) {
    stream_.copy(tensor(), host_tensor(values.data(), std::ssize(values)));
    stream_.synchronize();
  }
  Tensor tensor() const { return slab_.at("numbers"); }
  std::vector<float> read() const {
    std::vector<float> values(static_cast<std::size_t>(tensor().numel()));
    stream_.copy(host_tensor(values.data(), tensor().numel()), tensor());
    stream_.synchronize();
    return values;
  }

 private:
  Stream& stream_;
  Slab slab_;
};

using Values = std::vector<float>;

/// Every collective once; the first that is wrong by name, or "".
std::string wrong_collective(Group& group) {
  Stream stream(DeviceKind::cuda, "comm", Stream::Mode::queued);
  const int size = group.size();
  const auto rank = static_cast<float>(group.rank());
  const float sum = static_cast<float>(size * (size - 1) / 2);
  const std::int64_t count = size;
  Values ascending;
  Values sums;
  for (int i = 0; i < size; ++i) {
    ascending.push_back(static_cast<float>(i));
    sums.push_back(sum + static_cast<float>(size * i));
  }
  Values mine = ascending;
  for (float& value : mine) value += rank;

  const Numbers reduced(stream, mine);
  group.all_reduce(reduced.tensor(), stream);
  if (reduced.read() != sums) return "all_reduce";
  const Numbers data(stream, mine);
  const Numbers shard(stream, {-1});
  group.reduce_scatter(data.tensor(), shard.tensor(), stream);
  if (shard.read() != Values{sums[static_cast<std::size_t>(group.rank())]}) return "reduce_scatter";
  const Numbers own(stream, {rank});
  const Numbers all(stream, Values(static_cast<std::size_t>(size), -1));
  group.all_gather(own.tensor(), all.tensor(), stream);
  if (all.read() != ascending) return "all_gather";
  const Numbers sent(stream, {rank});
  group.broadcast(sent.tensor(), size - 1, stream);
  if (sent.read() != Values{static_cast<float>(size - 1)}) return "broadcast";
  const Numbers received(stream, Values(static_cast<std::size_t>(size), -1));
  const std::vector<std::int64_t> ones(static_cast<std::size_t>(count), 1);
  const Numbers copies(stream, Values(static_cast<std::size_t>(size), rank));
  group.all_to_all(copies.tensor(), ones, received.tensor(), ones, stream);
  if (received.read() != ascending) return "all_to_all";
  group.barrier(stream);
  stream.synchronize();
  return "";
}

}  // namespace

TEST_CASE("the collectives of one rank give back what they were given") {
  if (!cuda_available()) return;
  const auto world = self_world();
  const auto wires = wires_of(*world);
  const auto group = nccl_group(*world, *wires);
  wires->open();
  CHECK(group->name() == "test");
  CHECK(group->size() == 1);
  CHECK(wrong_collective(*group) == "");
}

TEST_CASE("bf16 and fp16 are summed, integers are refused, and so are host tensors") {
  if (!cuda_available()) return;
  const auto world = self_world();
  const auto wires = wires_of(*world);
  const auto group = nccl_group(*world, *wires);
  wires->open();
  Stream stream(DeviceKind::cuda, "comm", Stream::Mode::queued);
  const Slab slab(DeviceKind::cuda, {{"bf16", Shape{8}, DType::bf16},
                                     {"f16", Shape{8}, DType::f16},
                                     {"i32", Shape{8}, DType::i32}});
  group->all_reduce(slab.at("bf16"), stream);
  group->all_reduce(slab.at("f16"), stream);
  stream.synchronize();
  CHECK_THROWS_AS(group->all_reduce(slab.at("i32"), stream), Error);
  std::array<float, 2> on_host{};
  CHECK_THROWS_AS(group->all_reduce(host_tensor(on_host.data(), 2), stream), Error);
}

TEST_CASE("joining does not wait for a member that never comes") {
  if (!cuda_available()) return;
  cuda_select_device(0);
  const auto& nccl =
      *static_cast<const NcclModule*>(cuda_module_part("trainctl_cuda_nccl", sizeof(NcclModule)));
  void* joining = nccl.join("pair", 0, 2, nccl.new_unique_id());
  for (int i = 0; i < 20; ++i) {
    CHECK(!nccl.settled(joining));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  nccl.abort({&joining, 1});
  nccl.release(joining);
}

TEST_CASE("the collectives are right across devices") {
  if (!cuda_available()) return;
  const int devices = cuda_module().device_count();
  if (devices < 2) return;
  std::array<std::string, 4> wrong;
  run_thread_world(std::min(devices, 4), WorldOptions{}, [&](World& world) {
    const auto wires = wires_of(world);
    const auto first = nccl_group(world, *wires);  // on the communicator of the world
    const auto second = nccl_group(world, *wires, "other lane");  // on one split from it
    wires->open();
    std::string& found = wrong[static_cast<std::size_t>(world.rank())];
    found = wrong_collective(*first);
    if (found.empty()) found = wrong_collective(*second);
  });
  for (const std::string& name : wrong) CHECK(name == "");
}
