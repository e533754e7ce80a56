#include "comm/nccl/device_world.h"

#include <algorithm>
#include <cstdlib>
#include <deque>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "comm/group.h"
#include "comm/nccl/device_group.h"
#include "device/cuda_device.h"
#include "device/slab.h"
#include "device/stream.h"

namespace trainctl {

std::map<std::string, std::string> environment_to_share(int version, const std::string& host,
                                                        int rank) {
  constexpr int first_that_shares = 23003;
  std::map<std::string, std::string> entries{{"NCCL_MAX_NCHANNELS", "1"},
                                             {"NCCL_SOCKET_IFNAME", "lo"}};
  if (version >= first_that_shares) {
    entries["NCCL_MULTI_RANK_GPU_ENABLE"] = "1";
  } else {
    entries["NCCL_HOSTID"] = formatted("{}-{}", host, rank);
  }
  return entries;
}

// Messages of device tensors over a group of host memory: their buffers in page-locked memory, and
// events at which received data is on the device. Used by one thread; internal to comm/.

class Arrivals final : public OwnEvents {
 public:
  explicit Arrivals(const std::string& name)
      : OwnEvents(name), calls_(DeviceKind::cpu, name, Stream::Mode::run_inline) {}

  /// Sends `data`: waits here until the device has computed it, but not for the message.
  void send(Group& host, const Tensor& data, int to, int tag, Stream& stream) {
    Message& message = free_message(data);
    stream.copy(message.host, data);
    stream.synchronize();
    message.done = host.send(message.host, to, tag, calls_);
  }

  /// Returns an event that is done when `data` has arrived. A wait for the event copies `data` to
  /// the device, after all work enqueued on `stream` so far.
  Event receive(Group& host, const Tensor& data, int from, int tag, Stream& stream) {
    Message& message = free_message(data);
    message.to = data;
    message.before = stream.record();
    message.ticket = ++last_;
    message.done = host.receive(message.host, from, tag, calls_);
    return event(message.ticket);
  }

 private:
  struct Message {
    Slab room;
    Tensor host;  // the used part of `room`
    Event done;   // the message, on the host
    Tensor to;    // destination on the device; empty for a send
    Event before;
    std::uint64_t ticket = 0;  // 0 for a send or a free entry
  };

  /// An entry that is free and large enough, or a new one; the first steps add as many as are ever
  /// in flight at once.
  Message& free_message(const Tensor& data) {
    const auto is_free = [&](const Message& one) {
      return one.ticket == 0 && one.room.bytes().numel() >= data.bytes() &&
             Stream::reached(one.done);
    };
    auto found = std::ranges::find_if(messages_, is_free);
    if (found == messages_.end()) {
      found = messages_.insert(messages_.end(), Message{});
      found->room = Slab::on_host_for(DeviceKind::cuda, {{"message", {data.bytes()}, DType::u8}});
    }
    found->host = Tensor{found->room.at("message").data, data.shape, data.dtype, DeviceKind::cpu};
    return *found;
  }

  Message* find(std::uint64_t ticket) {
    const auto found = std::ranges::find(messages_, ticket, &Message::ticket);
    return found == messages_.end() ? nullptr : &*found;
  }

  bool wait(std::uint64_t ticket, double seconds) override {
    Message* message = find(ticket);
    if (message == nullptr) return true;
    if (!Stream::wait_host(message->done, seconds)) return false;
    if (!Stream::wait_host(message->before, seconds)) return false;
    cuda_copy(message->to.data, message->host.data, message->to.bytes());
    message->ticket = 0;
    return true;
  }

  bool reached(std::uint64_t ticket) override { return wait(ticket, 0); }

  std::deque<Message> messages_;
  std::uint64_t last_ = 0;
  Stream calls_;  // stream of the host group's calls; runs in the caller
};

// A group whose tensors lie on a device and travel through the host's memory: for machines without
// NCCL, and for ranks that share a device. Internal to comm/.

/// Every call waits on the host for the device, and a collective for the other ranks, so that
/// collectives come one after another in the order of the calls. Sums are those of the host's
/// group, in group-rank order. When send() returns, its data is on the way to the host; received
/// data is copied to the device by a wait for its event.
class StagedGroup final : public GroupOverHost {
 public:
  StagedGroup(std::unique_ptr<Group> host, double deadline_seconds)
      : GroupOverHost(std::move(host)),
        deadline_(deadline_seconds),
        calls_(DeviceKind::cpu, name(), Stream::Mode::run_inline),
        arrivals_(name()) {}

  void all_reduce(const Tensor& data, Stream& stream) override {
    const Tensor staged = fetch(data, stream);
    on_host().all_reduce(staged, calls_);
    put(staged, data, stream);
  }

  void reduce_scatter(const Tensor& data, const Tensor& shard, Stream& stream) override {
    const Tensor staged = fetch(data, stream);
    const Tensor sum = to_.like(shard);
    on_host().reduce_scatter(staged, sum, calls_);
    put(sum, shard, stream);
  }

  void all_gather(const Tensor& shard, const Tensor& data, Stream& stream) override {
    const Tensor staged = fetch(shard, stream);
    const Tensor all = to_.like(data);
    on_host().all_gather(staged, all, calls_);
    put(all, data, stream);
  }

  void broadcast(const Tensor& data, int root, Stream& stream) override {
    const Tensor staged = rank() == root ? fetch(data, stream) : from_.like(data);
    on_host().broadcast(staged, root, calls_);
    if (rank() != root) put(staged, data, stream);
  }

  void all_to_all(const Tensor& send, std::span<const std::int64_t> send_counts,
                  const Tensor& receive, std::span<const std::int64_t> receive_counts,
                  Stream& stream) override {
    const Tensor staged = fetch(send, stream);
    const Tensor come = to_.like(receive);
    on_host().all_to_all(staged, send_counts, come, receive_counts, calls_);
    put(come, receive, stream);
  }

  void barrier(Stream& stream) override {
    wait(stream.record());
    on_host().barrier(calls_);
  }

  Event send(const Tensor& data, int to, int tag, Stream& stream) override {
    arrivals_.send(on_host(), data, to, tag, stream);
    return {};
  }

  Event receive(const Tensor& data, int from, int tag, Stream& stream) override {
    return arrivals_.receive(on_host(), data, from, tag, stream);
  }

 private:
  /// Page-locked memory, which grows to the largest tensor of a first step.
  class StagingBuffer {
   public:
    Tensor like(const Tensor& data) {
      if (slab_.bytes().numel() < data.bytes()) {
        slab_ = Slab::on_host_for(DeviceKind::cuda, {{"room", {data.bytes()}, DType::u8}});
      }
      return {slab_.bytes().data, data.shape, data.dtype, DeviceKind::cpu};
    }

   private:
    Slab slab_;
  };

  /// Copies `data` to the host, once the device has computed it.
  Tensor fetch(const Tensor& data, Stream& stream) {
    const Tensor staged = from_.like(data);
    stream.copy(staged, data);
    wait(stream.record());
    return staged;
  }

  /// Copies to the device and waits for the copy, which frees the staging buffers.
  void put(const Tensor& from, const Tensor& to, Stream& stream) {
    stream.copy(to, from);
    wait(stream.record());
  }

  void wait(const Event& event) const {
    await(event, deadline_, [this] { return "the device's part of a call of '" + name() + "'"; });
  }

  const double deadline_;
  Stream calls_;  // stream of the host group's calls; runs in the caller
  StagingBuffer from_, to_;
  Arrivals arrivals_;
};

namespace {

const char* name_of(Lane lane) {
  switch (lane) {
    case Lane::layers: return "layers";
    case Lane::experts: return "experts";
    case Lane::gradients: return "gradients";
  }
  return "";
}

/// Why the ranks cannot all use NCCL; "" if they can. Collective.
std::string why_no_nccl(World& world) {
  const auto everyone = world.everyone("wires");
  const auto missing = gather_bytes(*everyone, nccl_module().missing(), 0);
  std::string why;
  for (std::size_t rank = 0; rank < missing.size() && why.empty(); ++rank) {
    if (missing[rank].empty()) continue;
    why = formatted("rank {} has no NCCL ({})", rank, missing[rank]);
  }
  broadcast_bytes(*everyone, why, 0);
  return why;
}

/// Prepares NCCL for ranks that share a device; every rank must be a process.
void share_over_nccl(const World& world, const std::string& why_no_nccl) {
  std::string why = why_no_nccl;
  if (world.in_one_process()) {
    why = "the ranks are threads of one process, and NCCL knows a process by one name";
  }
  require(why.empty(), ExitCode::unavailable,
          "ranks cannot share a device over NCCL (parallel.share_devices: nccl): " + why +
              "; set share_devices to true");
  for (const auto& [name, value] :
       environment_to_share(nccl_module().version(), world.host(), world.rank())) {
    setenv(name.c_str(), value.c_str(), 0);
  }
}

}  // namespace

DeviceWorld::DeviceWorld(World& world, DeviceKind device, double deadline_seconds,
                         DeviceSharing sharing)
    : world_(world), device_(device), deadline_seconds_(deadline_seconds) {
  if (device == DeviceKind::cuda) cuda_select_device(world.local_rank(), shares(sharing));
  if (device == DeviceKind::cpu || world.size() == 1) return;
  const bool without_nccl = sharing == DeviceSharing::without_nccl;
  on_one_device_ = without_nccl && world.in_one_process() && cuda_module().device_count() == 1;
  if (on_one_device_) return;
  const std::string why = without_nccl ? "ranks share CUDA devices" : why_no_nccl(world);
  if (sharing == DeviceSharing::nccl) share_over_nccl(world, why);
  staged_ = !why.empty();
  if (staged_ && world.rank() == 0) {
    log_warning(why + ": tensors travel through the host's memory, which is slow");
  }
  if (!staged_) wires_ = std::make_unique<NcclWires>(world, deadline_seconds);
}

DeviceWorld::~DeviceWorld() = default;

std::string DeviceWorld::host_part() const {
  if (on_one_device_) return "ranks share a device, and meet on the host";
  return staged_ ? "tensors travel through the host's memory" : "";
}

std::unique_ptr<Group> DeviceWorld::group(const std::string& name, std::span<const int> ranks,
                                          Lane lane, Carries carries) const {
  auto host = world_.group(name, ranks);
  if (host->size() == 1) return host;
  if (staged_) return std::make_unique<StagedGroup>(std::move(host), deadline_seconds_);
  if (wires_ == nullptr) return host;
  const WireSpec spec{.lane = name_of(lane),
                      .ranks = {ranks.begin(), ranks.end()},
                      .exchanges = carries == Carries::all};
  const bool collectives = carries != Carries::messages;
  return device_group(std::move(host), *wires_, spec, collectives, world_.traffic());
}

std::unique_ptr<Group> DeviceWorld::everyone(const std::string& name) const {
  return group(name, world_.all_ranks());
}

void DeviceWorld::open() const {
  if (wires_ != nullptr) wires_->open();
}

}  // namespace trainctl
