#include "comm/nccl/nccl_wires.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <numeric>
#include <thread>

#include "base/at.h"
#include "base/error.h"
#include "comm/await.h"
#include "device/cuda_device.h"
#include "device/patience.h"
#include "device/slab.h"
#include "device/work_graph.h"

namespace trainctl {

namespace {

bool is_everyone(const WireSpec& spec, int size) {
  std::vector<int> all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  return !spec.line && spec.ranks == all;
}

int place_in(const WireSpec& spec, int rank) {
  const auto found = std::ranges::find(spec.ranks, rank);
  return found == spec.ranks.end() ? -1 : static_cast<int>(found - spec.ranks.begin());
}

}  // namespace

const NcclModule& nccl_module() {
  return *static_cast<const NcclModule*>(
      cuda_module_part("trainctl_cuda_nccl", sizeof(NcclModule)));
}

class NcclWires::Place final : public Wire {
 public:
  Place(NcclWires& wires, WireSpec wanted) : spec(std::move(wanted)), wires_(wires) {}

  void run(const WireCall& call, Stream& stream) override {
    if (communicator == nullptr) refuse(call, "no communicator was opened");
    if (wires_.abandoned_) throw Error(ExitCode::peer, wires_.failure_);
    const bool on_devices =
        stream.device() == DeviceKind::cuda && is_on_device(call.from) && is_on_device(call.to);
    if (!on_devices) refuse(call, "supports only CUDA tensors and streams");
    wires_.nccl_.call(communicator, call, stream.native());
    wires_.settle(communicator, name_of(call.operation));
    wires_.nccl_.note(communicator, call, stream.native());
  }

  WireSpec spec;
  void* communicator = nullptr;

 private:
  [[noreturn]] void refuse(const WireCall& call, const std::string& why) const {
    throw Error(ExitCode::internal, "[nccl] " + std::string(name_of(call.operation)) + " of " +
                                        spec.text() + ": " + why);
  }
  static bool is_on_device(const Tensor& x) { return x.empty() || x.device == DeviceKind::cuda; }

  NcclWires& wires_;
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

/// The last made first, so that the world's is the last.
void NcclWires::leave() {
  try {
    std::ranges::reverse(communicators_);
    for (void* communicator : communicators_) nccl_.leave(communicator);
    for (void* communicator : communicators_) settle(communicator, "leaving");
  } catch (const std::exception&) {
    abandon();
  }
}

Wire& NcclWires::want(const WireSpec& spec) {
  Place* found = place_of(spec);
  if (found == nullptr) found = &places_.emplace_back(*this, spec);
  found->spec.exchanges = found->spec.exchanges || spec.exchanges;
  return *found;
}

NcclWires::Place* NcclWires::place_of(const WireSpec& spec) {
  const auto found =
      std::ranges::find_if(places_, [&](const Place& place) { return place.spec.same_as(spec); });
  return found == places_.end() ? nullptr : &*found;
}

void NcclWires::open() {
  std::vector<WireSpec> wanted;
  for (const Place& place : places_) {
    if (place.communicator == nullptr) wanted.push_back(place.spec);
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
  // A broadcast may end on its root before it has moved at all where nothing drives it further, and
  // what comes next blocks: the barrier sees it through.
  Stream control(DeviceKind::cpu, "nccl bootstrap", Stream::Mode::run_inline);
  everyone_->barrier(control);
  control.synchronize();
  of_world_ = nccl_.join({.name = "world", .rank = world_.rank(), .size = world_.size()}, id);
  communicators_.push_back(of_world_);
  settle(of_world_, "joining");
}

/// The world's communicator serves the first wire of all ranks, too.
void NcclWires::split(const std::vector<WireSpec>& all) {
  std::vector<WireSpec> rest;
  const bool first = communicators_.size() == 1;
  const auto taken = std::ranges::find_if(
      all, [&](const WireSpec& spec) { return first && is_everyone(spec, world_.size()); });
  for (const WireSpec& spec : all) {
    if (taken == all.end() || !spec.same_as(*taken)) rest.push_back(spec);
  }
  if (taken != all.end()) place_of(*taken)->communicator = of_world_;
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
    const NcclMember member = mine == nullptr
                                  ? NcclMember{}
                                  : NcclMember{.name = mine->text(),
                                               .rank = place_in(*mine, world_.rank()),
                                               .size = static_cast<int>(mine->ranks.size())};
    void* made = nccl_.split(of_world_, member, colour);
    if (made != nullptr) communicators_.push_back(made);
    settle(of_world_, "splitting");
    if (mine == nullptr) continue;
    settle(made, "forming " + mine->text());
    place_of(*mine)->communicator = made;
  }
}

/// NCCL connects ranks at their first call, for which all must come: not in a step.
void NcclWires::connect(const std::vector<WireSpec>& all) {
  Stream stream(DeviceKind::cuda, "connecting", Stream::Mode::queued);
  const std::int64_t size = world_.size();
  const Slab slab(DeviceKind::cuda, {{"all", {size}, DType::f32}, {"other", {size}, DType::f32}});
  for (const WireSpec& spec : all) {
    const int rank = place_in(spec, world_.rank());
    if (rank < 0) continue;
    Wire& wire = *place_of(spec);
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
  Patience patience(deadline_);
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
  failure_ = "[nccl] rank " + std::to_string(world_.rank()) + ": " + std::string(what) +
             (what.empty() ? "" : ": ") + why;
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

}  // namespace trainctl
