// Keys and values on their way around a ring: what a rank does between posting a message and
// waiting for it, counted.
#include <vector>

#include "base/parallel_for.h"
#include "base/scratch.h"
#include "catch.h"
#include "device/slab.h"
#include "device/stream.h"
#include "faulty_world.h"
#include "nn/shared_keys.h"
#include "ops/kernels.h"

using namespace trainctl;

namespace {

thread_local int attentions = 0;  // calls of either kernel by this rank

void count_forward(const OpContext& ops, const AttentionArgs& args) {
  ++attentions;
  kernels_for(DeviceKind::cpu).attention_forward(ops, args);
}

void count_backward(const OpContext& ops, const AttentionArgs& args) {
  ++attentions;
  kernels_for(DeviceKind::cpu).attention_backward(ops, args);
}

Kernels counting_kernels() {
  Kernels kernels = kernels_for(DeviceKind::cpu);
  kernels.attention_forward = count_forward;
  kernels.attention_backward = count_backward;
  return kernels;
}

/// The messages of a rank, in the order in which they were posted.
class Watched final : public OwnEvents {
 public:
  Watched() : OwnEvents("watched") {}

  Event post(const GroupCall& call) {
    messages_.push_back({.done = call.make(), .posted = attentions});
    return event(messages_.size());
  }

  /// The number of blocks whose attention began and ended while each message was on its way; -1
  /// where nobody waited for the message.
  std::vector<int> beside() const {
    std::vector<int> all;
    for (const Message& message : messages_) all.push_back(message.beside);
    return all;
  }
  void forget() { messages_.clear(); }

 private:
  struct Message {
    Event done;
    int posted = 0;
    int beside = -1;
  };

  bool wait(std::uint64_t ticket, double seconds) override {
    Message& message = messages_.at(ticket - 1);
    if (message.beside < 0) message.beside = attentions - message.posted;
    return Stream::wait_host(message.done, seconds);
  }
  bool reached(std::uint64_t ticket) override {
    return Stream::reached(messages_.at(ticket - 1).done);
  }

  std::vector<Message> messages_;
};

constexpr std::int64_t heads = 2;
constexpr std::int64_t head_dim = 4;
constexpr std::int64_t length = 4;  // tokens of the one sequence on a rank

std::vector<SlabRow> ring_rows() {
  std::vector<SlabRow> rows{{"scratch", {scratch_bytes(DeviceKind::cpu, 1)}, DType::u8}};
  for (const char* name :
       {"q", "k", "v", "out", "d_out", "dq", "dk", "dv", "part_k", "part_v", "part_q"}) {
    rows.push_back({name, {length, heads * head_dim}, DType::f32});
  }
  for (const char* name : {"all_k", "all_v", "d_all_k", "d_all_v"}) {
    rows.push_back({name, {2 * length, heads * head_dim}, DType::f32});
  }
  for (const char* name : {"logsumexp", "part_logsumexp"}) {
    rows.push_back({name, {1, heads, length}, DType::f32});
  }
  return rows;
}

/// The work that overlapped with each message of a rank.
struct RingMessages {
  std::vector<int> forward, backward;
};

RingMessages beside_messages(World& world) {
  set_thread_count(1);
  Watched watched;
  const std::vector<GroupFault> faults{
      {.rank = world.rank(), .group = "ring", .occurrence = 0, .act = [&](const GroupCall& call) {
         return watched.post(call);
       }}};
  const std::unique_ptr<World> observed = faulty_world(world, faults);
  const std::unique_ptr<Group> ring = observed->everyone("ring");
  const Slab slab(DeviceKind::cpu, ring_rows());
  const auto at = [&](const char* name) { return slab.at(name); };
  const Kernels kernels = counting_kernels();
  Stream stream(DeviceKind::cpu, "compute", Stream::Mode::run_inline);
  const OpContext ops{.kernels = &kernels,
                      .stream = &stream,
                      .scratch = static_cast<std::byte*>(at("scratch").data),
                      .scratch_bytes = at("scratch").bytes()};
  const Pass pass{.ops = &ops, .batch = {}, .stream = {}};
  const SharedKeys shared({.split = {.ring = world.size()},
                           .tokens = token_layout(world.size(), world.size() * length),
                           .rank = world.rank(),
                           .ring = ring.get()},
                          1);
  const SharedKeys::Buffers buffers{.all = {at("all_k"), at("all_v")},
                                    .d_all = {at("d_all_k"), at("d_all_v")},
                                    .part = {at("part_k"), at("part_v")},
                                    .part_q = at("part_q"),
                                    .part_logsumexp = at("part_logsumexp")};
  const AttentionShape shape{.sequences = 1,
                             .query_length = length,
                             .heads = heads,
                             .kv_heads = heads,
                             .head_dim = head_dim};
  shared.forward(pass,
                 {.shape = shape,
                  .q = at("q"),
                  .k = at("k"),
                  .v = at("v"),
                  .first_position = {},
                  .dropout = {},
                  .out = at("out"),
                  .logsumexp = at("logsumexp")},
                 buffers);
  RingMessages found{.forward = watched.beside(), .backward = {}};
  watched.forget();
  shared.backward(pass,
                  {.shape = shape,
                   .q = at("q"),
                   .k = at("k"),
                   .v = at("v"),
                   .first_position = {},
                   .dropout = {},
                   .out = at("out"),
                   .logsumexp = at("logsumexp"),
                   .d_out = at("d_out"),
                   .dq = at("dq"),
                   .dk = at("dk"),
                   .dv = at("dv")},
                  buffers);
  found.backward = watched.beside();
  return found;
}

}  // namespace

TEST_CASE("keys and values go around a ring while the ranks attend to those that they have",
          "[threads]") {
  constexpr int ranks = 3;
  std::vector<RingMessages> found(ranks);
  run_thread_world(ranks, {}, [&](World& world) {
    found[static_cast<std::size_t>(world.rank())] = beside_messages(world);
  });
  // For each block two messages come and two go: its keys and its values.
  const std::vector<int> keys(4, 1);
  const std::vector<int> last_sums(4, 0);
  const auto joined = [](const std::vector<std::vector<int>>& parts) {
    std::vector<int> all;
    for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
  };
  for (const RingMessages& rank : found) {
    CHECK(rank.forward == joined({keys, keys}));
    // Sums of gradients follow one block behind; the last ones go home when nothing is left to do.
    CHECK(rank.backward == joined({keys, keys, keys, last_sums}));
  }
}
