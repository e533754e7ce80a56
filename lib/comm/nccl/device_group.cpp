#include "comm/nccl/device_group.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <map>
#include <thread>
#include <utility>

#include "base/at.h"
#include "base/error.h"
#include "base/text.h"
#include "device/slab.h"
#include "device/stream.h"
#include "device/wait.h"

namespace trainctl {

namespace {

void put(std::string& bytes, std::int32_t value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

std::int32_t take(const std::string& bytes, std::size_t& place) {
  std::int32_t value = 0;
  require(place + sizeof value <= bytes.size(), ExitCode::internal, "[wires] a list is cut short");
  std::memcpy(&value, bytes.data() + place, sizeof value);
  place += sizeof value;
  return value;
}

bool holds(const WireSpec& wire, int rank) { return std::ranges::count(wire.ranks, rank) > 0; }

bool has(std::span<const WireSpec> all, const WireSpec& one) {
  return std::ranges::any_of(all, [&](const WireSpec& other) { return other.same_as(one); });
}

}  // namespace

std::string WireSpec::text() const {
  constexpr std::size_t max_named = 8;
  std::string list;
  for (std::size_t i = 0; i < std::min(ranks.size(), max_named); ++i) {
    list += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  if (ranks.size() > max_named) list += formatted(" and {}", ranks.size() - max_named);
  return lane + " among ranks " + list + (ranks.size() > max_named ? " more" : "");
}

std::string wires_to_tell(std::span<const WireSpec> wanted, int rank) {
  std::string bytes;
  for (const WireSpec& wire : wanted) {
    if (wire.ranks.front() != rank) continue;
    put(bytes, static_cast<std::int32_t>(wire.lane.size()));
    bytes += wire.lane;
    put(bytes, wire.line ? 1 : 0);
    put(bytes, wire.exchanges ? 1 : 0);
    put(bytes, static_cast<std::int32_t>(wire.ranks.size()));
    for (const int member : wire.ranks) put(bytes, member);
  }
  return bytes;
}

std::vector<WireSpec> wires_told(std::span<const std::string> told) {
  std::vector<WireSpec> all;
  for (const std::string& bytes : told) {
    for (std::size_t place = 0; place < bytes.size();) {
      WireSpec& wire = all.emplace_back();
      const auto length = static_cast<std::size_t>(take(bytes, place));
      wire.lane = bytes.substr(place, length);
      place += length;
      wire.line = take(bytes, place) != 0;
      wire.exchanges = take(bytes, place) != 0;
      wire.ranks.resize(static_cast<std::size_t>(take(bytes, place)));
      for (int& rank : wire.ranks) rank = take(bytes, place);
    }
  }
  return all;
}

void require_wanted(std::span<const WireSpec> all, std::span<const WireSpec> wanted, int rank) {
  for (const WireSpec& wire : all) {
    require(!holds(wire, rank) || has(wanted, wire), ExitCode::internal,
            formatted("[wires] rank {} does not want {}", rank, wire.text()));
  }
  for (const WireSpec& wire : wanted) {
    require(has(all, wire), ExitCode::internal,
            formatted("[wires] rank {} alone wants {}", rank, wire.text()));
  }
}

std::vector<int> split_rounds(std::span<const WireSpec> all, int world_size) {
  std::vector<int> rounds;
  std::vector<std::vector<bool>> taken;  // whether a rank has a wire of the round, [round][rank]
  for (const WireSpec& wire : all) {
    const auto free = [&](const std::vector<bool>& round) {
      return std::ranges::none_of(wire.ranks, [&](int rank) { return at(round, rank); });
    };
    auto round = std::ranges::find_if(taken, free);
    if (round == taken.end()) {
      round = taken.insert(taken.end(), std::vector<bool>(static_cast<std::size_t>(world_size)));
    }
    for (const int rank : wire.ranks) at(*round, rank) = true;
    rounds.push_back(static_cast<int>(round - taken.begin()));
  }
  return rounds;
}

namespace {

int place_in(const WireSpec& spec, int rank) {
  const auto found = std::ranges::find(spec.ranks, rank);
  return found == spec.ranks.end() ? -1 : static_cast<int>(found - spec.ranks.begin());
}

}  // namespace

const NcclModule& nccl_module() {
  return *static_cast<const NcclModule*>(
      cuda_module_part("trainctl_cuda_nccl", sizeof(NcclModule)));
}

/// The path of a group's calls between the ranks of one communicator.
class NcclWires::Wire {
 public:
  Wire(NcclWires& owner, WireSpec wanted) : spec(std::move(wanted)), owner_(owner) {}

  /// Enqueues the call. Throws Error{peer} if another rank is missing or has failed.
  void run(const WireCall& call, Stream& stream) {
    if (communicator == nullptr) refuse(call, "no communicator was opened");
    if (owner_.abandoned_) throw Error(ExitCode::peer, owner_.failure_);
    const bool on_devices =
        stream.device() == DeviceKind::cuda && is_on_device(call.from) && is_on_device(call.to);
    if (!on_devices) refuse(call, "supports only CUDA tensors and streams");
    owner_.nccl_.call(communicator, call, stream.native());
    owner_.settle(communicator, name_of(call.operation));
    owner_.nccl_.note(communicator, call, stream.native());
  }

  WireSpec spec;
  void* communicator = nullptr;

 private:
  [[noreturn]] void refuse(const WireCall& call, const std::string& why) const {
    throw Error(ExitCode::internal, "[nccl] " + std::string(name_of(call.operation)) + " of " +
                                        spec.text() + ": " + why);
  }
  static bool is_on_device(const Tensor& x) { return x.empty() || x.device == DeviceKind::cuda; }

  NcclWires& owner_;
};

NcclWires::NcclWires(World& world, double deadline_seconds)
    : world_(world),
      deadline_(deadline_seconds),
      everyone_(world.everyone("wires")),
      nccl_(nccl_module()) {}

NcclWires::~NcclWires() {
  if (std::uncaught_exceptions() > 0) abandon();
  if (!abandoned_) leave();
  for (void* communicator : communicators_) nccl_.release(communicator);
}

/// Leaves the newest communicator first, and the world's, the oldest, last.
void NcclWires::leave() {
  try {
    std::ranges::reverse(communicators_);
    for (void* communicator : communicators_) nccl_.leave(communicator);
    for (void* communicator : communicators_) settle(communicator, "leaving");
  } catch (const std::exception&) {
    abandon();
  }
}

NcclWires::Wire& NcclWires::want(const WireSpec& spec) {
  Wire* found = wire_of(spec);
  if (found == nullptr) found = &wires_.emplace_back(*this, spec);
  found->spec.exchanges = found->spec.exchanges || spec.exchanges;
  return *found;
}

NcclWires::Wire* NcclWires::wire_of(const WireSpec& spec) {
  const auto found =
      std::ranges::find_if(wires_, [&](const Wire& wire) { return wire.spec.same_as(spec); });
  return found == wires_.end() ? nullptr : &*found;
}

void NcclWires::open() {
  std::vector<WireSpec> wanted;
  for (const Wire& wire : wires_) {
    if (wire.communicator == nullptr) wanted.push_back(wire.spec);
  }
  const auto told = gather_bytes(*everyone_, wires_to_tell(wanted, world_.rank()), 0);
  std::string joined;
  for (const std::string& part : told) joined += part;
  broadcast_bytes(*everyone_, joined, 0);
  const std::vector<WireSpec> all = wires_told({&joined, 1});
  require_wanted(all, wanted, world_.rank());
  if (all.empty()) return;
  if (of_world_ == nullptr) join_world();
  split(all);
  connect(all);
}

void NcclWires::join_world() {
  std::string id;
  if (world_.rank() == 0) id = nccl_.new_unique_id();
  broadcast_bytes(*everyone_, id, 0);
  // A broadcast may return on its root before any data moved, where nothing progresses it further,
  // and the next call blocks: the barrier completes the broadcast.
  Stream control(DeviceKind::cpu, "nccl bootstrap", Stream::Mode::run_inline);
  everyone_->barrier(control);
  control.synchronize();
  of_world_ = nccl_.join("world", world_.rank(), world_.size(), id);
  communicators_.push_back(of_world_);
  settle(of_world_, "joining");
}

/// The world's communicator also serves the first wire that has all ranks.
void NcclWires::split(const std::vector<WireSpec>& all) {
  std::vector<WireSpec> rest;
  const bool first = communicators_.size() == 1;
  const auto taken = std::ranges::find_if(all, [&](const WireSpec& spec) {
    return first && !spec.line && spec.ranks == world_.all_ranks();
  });
  for (const WireSpec& spec : all) {
    if (taken == all.end() || !spec.same_as(*taken)) rest.push_back(spec);
  }
  if (taken != all.end()) wire_of(*taken)->communicator = of_world_;
  const std::vector<int> rounds = split_rounds(rest, world_.size());
  const int last = rounds.empty() ? -1 : *std::ranges::max_element(rounds);
  for (int round = 0; round <= last; ++round) {
    const WireSpec* mine = nullptr;
    int colour = -1;
    for (int i = 0; i < std::ssize(rest); ++i) {
      if (at(rounds, i) != round || place_in(at(rest, i), world_.rank()) < 0) continue;
      mine = &at(rest, i);
      colour = i;
    }
    void* made = mine == nullptr
                     ? nccl_.split(of_world_, colour, "", 0, 1)
                     : nccl_.split(of_world_, colour, mine->text(), place_in(*mine, world_.rank()),
                                   static_cast<int>(mine->ranks.size()));
    if (made != nullptr) communicators_.push_back(made);
    settle(of_world_, "splitting");
    if (mine == nullptr) continue;
    settle(made, "forming " + mine->text());
    wire_of(*mine)->communicator = made;
  }
}

/// NCCL connects ranks in their first call, which all ranks must make, so it is made before a step.
void NcclWires::connect(const std::vector<WireSpec>& all) {
  Stream stream(DeviceKind::cuda, "connecting", Stream::Mode::queued);
  const std::int64_t size = world_.size();
  const Slab slab(DeviceKind::cuda, {{"all", {size}, DType::f32}, {"other", {size}, DType::f32}});
  for (const WireSpec& spec : all) {
    const int rank = place_in(spec, world_.rank());
    if (rank < 0) continue;
    Wire& wire = *wire_of(spec);
    const std::int64_t ranks = std::ssize(spec.ranks);
    const Tensor data = slab.at("all").slice(0, ranks);
    const Tensor own = data.slice(rank, rank + 1);
    if (spec.line) {
      const GroupOperation operation = rank == 0 ? GroupOperation::send : GroupOperation::receive;
      wire.run({.operation = operation, .from = own, .to = own, .peer = 1 - rank}, stream);
      continue;
    }
    using enum GroupOperation;
    wire.run({.operation = all_reduce, .from = data, .to = data}, stream);
    wire.run({.operation = reduce_scatter, .from = data, .to = own}, stream);
    wire.run({.operation = all_gather, .from = own, .to = data}, stream);
    wire.run({.operation = broadcast, .from = own, .to = own, .peer = 0}, stream);
    if (!spec.exchanges) continue;
    const std::vector<std::int64_t> ones(static_cast<std::size_t>(ranks), 1);
    wire.run({.operation = all_to_all,
              .from = data,
              .to = slab.at("other").slice(0, ranks),
              .send_counts = ones,
              .receive_counts = ones},
             stream);
  }
  await(stream.record(), deadline_, [] { return "the first calls between the devices"; });
}

void NcclWires::settle(void* communicator, std::string_view what) {
  WaitLimit patience(deadline_);
  for (std::int64_t polls = 0;; ++polls) {
    try {
      if (nccl_.settled(communicator)) return;
    } catch (const Error& error) {
      fail(what, error.what());
    }
    if (polls < 1000) {
      std::this_thread::yield();
      continue;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    if (polls % 100 == 0) check();
    if (!patience.over()) continue;
    fail(what, "was not under way within the deadline; another member is missing or stopped");
  }
}

void NcclWires::check() {
  if (abandoned_) throw Error(ExitCode::peer, failure_);
  try {
    world_.check();
  } catch (const Error& error) {
    fail("", error.what());
  }
  for (void* communicator : communicators_) {
    try {
      nccl_.settled(communicator);
    } catch (const Error& error) {
      fail("", error.what());
    }
  }
}

void NcclWires::fail(std::string_view what, const std::string& why) {
  failure_ =
      formatted("[nccl] rank {}: {}{}{}", world_.rank(), what, what.empty() ? "" : ": ", why);
  const std::string open = open_work();
  if (!open.empty()) failure_ += "; under way: " + open;
  abandon();
  throw Error(ExitCode::peer, failure_);
}

void NcclWires::abandon() noexcept {
  if (abandoned_) return;
  abandoned_ = true;
  if (failure_.empty()) failure_ = "[nccl] the rank has failed";
  release_graphs();
  nccl_.abort(communicators_);
}

std::string NcclWires::open_work() {
  std::string text;
  for (void* communicator : abandoned_ ? std::vector<void*>{} : communicators_) {
    const std::string call = nccl_.open_call(communicator);
    if (!call.empty()) text += (text.empty() ? "" : ", ") + call;
  }
  return text;
}

namespace {

class DeviceGroup final : public GroupOverHost {
 public:
  DeviceGroup(std::unique_ptr<Group> host, NcclWires& wires, const WireSpec& spec, bool collectives,
              Traffic& traffic)
      : GroupOverHost(std::move(host)),
        wires_(wires),
        ranks_(spec.ranks),
        wire_(collectives ? &wires_.want(spec) : nullptr),
        traffic_(traffic),
        row_(traffic.row(name())) {}

  void all_reduce(const Tensor& data, Stream& stream) override {
    run({.operation = GroupOperation::all_reduce, .from = data, .to = data}, data.bytes(), stream);
  }
  void reduce_scatter(const Tensor& data, const Tensor& shard, Stream& stream) override {
    run({.operation = GroupOperation::reduce_scatter, .from = data, .to = shard}, data.bytes(),
        stream);
  }
  void all_gather(const Tensor& shard, const Tensor& data, Stream& stream) override {
    run({.operation = GroupOperation::all_gather, .from = shard, .to = data}, data.bytes(), stream);
  }
  void broadcast(const Tensor& data, int root, Stream& stream) override {
    run({.operation = GroupOperation::broadcast, .from = data, .to = data, .peer = root},
        data.bytes(), stream);
  }
  void all_to_all(const Tensor& send, std::span<const std::int64_t> send_counts,
                  const Tensor& receive, std::span<const std::int64_t> receive_counts,
                  Stream& stream) override {
    run({.operation = GroupOperation::all_to_all,
         .from = send,
         .to = receive,
         .send_counts = send_counts,
         .receive_counts = receive_counts},
        send.bytes(), stream);
  }
  void barrier(Stream& stream) override { run({.operation = GroupOperation::barrier}, 0, stream); }

  void open_lines(std::span<const MessageLine> lines) override {
    for (const MessageLine& line : lines) {
      auto& held = (line.sends ? sends_ : receives_)[{line.peer, line.tag}];
      if (held) continue;
      const int from = line.sends ? rank() : line.peer;
      const int to = line.sends ? line.peer : rank();
      const std::string lane = formatted("{} {}", name(), line.tag);
      NcclWires::Wire& wire =
          wires_.want({.lane = lane, .ranks = {at(ranks_, from), at(ranks_, to)}, .line = true});
      held = std::make_unique<Line>(lane, wire);
    }
  }
  Event send(const Tensor& data, int to, int tag, Stream& stream) override {
    return move(sends_, {.operation = GroupOperation::send, .from = data, .peer = 1}, to, tag,
                stream);
  }
  Event receive(const Tensor& data, int from, int tag, Stream& stream) override {
    return move(receives_, {.operation = GroupOperation::receive, .to = data, .peer = 0}, from, tag,
                stream);
  }

 private:
  struct Line {
    Line(const std::string& name, NcclWires::Wire& on)
        : stream(DeviceKind::cuda, name, Stream::Mode::queued), wire(on) {}
    Stream stream;
    NcclWires::Wire& wire;
  };
  using Lines = std::map<std::pair<int, int>, std::unique_ptr<Line>>;  // the lines by peer and tag

  /// Counts the call and enqueues it.
  void run(const WireCall& call, std::int64_t bytes, Stream& stream) {
    if (wire_ == nullptr) {
      throw Error(ExitCode::internal, "[" + std::string(name_of(call.operation)) + "] '" + name() +
                                          "' carries messages only");
    }
    traffic_.add(row_, call.operation, bytes);
    wire_->run(call, stream);
  }

  /// Enqueues a message after everything enqueued on `after`.
  Event move(const Lines& lines, const WireCall& call, int peer, int tag, Stream& after) {
    const auto found = lines.find({peer, tag});
    if (found == lines.end()) {
      throw Error(ExitCode::internal,
                  formatted("[{}] '{}': no line with tag {} and rank {} was opened",
                            name_of(call.operation), name(), tag, peer));
    }
    Line& line = *found->second;
    const Tensor& data = call.from.empty() ? call.to : call.from;
    traffic_.add(row_, call.operation, data.bytes());
    line.stream.wait(after.record());
    line.wire.run(call, line.stream);
    return line.stream.record();
  }

  NcclWires& wires_;
  const std::vector<int> ranks_;
  NcclWires::Wire* const wire_;  // null without collectives
  Traffic& traffic_;
  Traffic::Row& row_;
  Lines sends_, receives_;
};

}  // namespace

std::unique_ptr<Group> device_group(std::unique_ptr<Group> host, NcclWires& wires,
                                    const WireSpec& spec, bool collectives, Traffic& traffic) {
  return std::make_unique<DeviceGroup>(std::move(host), wires, spec, collectives, traffic);
}

}  // namespace trainctl
