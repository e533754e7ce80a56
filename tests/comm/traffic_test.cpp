#include "comm/world.h"

#include "catch.h"

namespace trainctl {
namespace {

TEST_CASE("what goes through groups is counted between begin and end") {
  std::vector<std::string> counted(2);
  run_thread_world(2, {}, [&](World& world) {
    const std::vector<int> both{0, 1};
    const auto one = world.group("some dp", both);
    const auto other = world.group("other", both);
    const auto again = world.group("some dp", both);
    Stream stream(DeviceKind::cpu, "inline", Stream::Mode::run_inline);
    std::vector<float> values(8);
    const Tensor all = host_tensor(values.data(), 8);
    const Tensor half = host_tensor(values.data(), 4);
    const std::vector<std::int64_t> fours{4, 4};
    std::vector<float> received(8);
    one->all_reduce(all, stream);
    world.traffic().begin();
    one->all_reduce(all, stream);
    again->all_reduce(half, stream);
    one->reduce_scatter(all, host_tensor(received.data(), 4), stream);
    other->all_gather(half, host_tensor(received.data(), 8), stream);
    other->broadcast(half, 1, stream);
    other->all_to_all(all, fours, host_tensor(received.data(), 8), fours, stream);
    other->barrier(stream);
    const Event event =
        world.rank() == 0 ? other->send(half, 1, 0, stream) : other->receive(half, 0, 0, stream);
    Stream::wait_host(event, 10);
    world.traffic().end();
    one->all_reduce(all, stream);
    std::string& text = counted[static_cast<std::size_t>(world.rank())];
    for (const Traffic::Row& row : world.traffic().rows()) {
      text += row.group + ":";
      for (std::size_t i = 0; i < row.uses.size(); ++i) {
        if (row.uses[i].count == 0) continue;
        text += " " + std::string(name_of(static_cast<GroupOperation>(i))) + " " +
                std::to_string(row.uses[i].count) + "/" + std::to_string(row.uses[i].bytes);
      }
      text += "\n";
    }
    world.traffic().begin();
    world.traffic().end();
    if (world.traffic().rows().front().uses.front().count != 0) text = "begin forgets nothing";
  });
  const std::string common =
      "some dp: all_reduce 2/48 reduce_scatter 1/32\n"
      "other: all_gather 1/32 broadcast 1/16 all_to_all 1/32 ";
  REQUIRE(counted[0] == common + "send 1/16 barrier 1/0\n");
  REQUIRE(counted[1] == common + "receive 1/16 barrier 1/0\n");
}

}  // namespace
}  // namespace trainctl
