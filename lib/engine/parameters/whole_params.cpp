#include "engine/parameters/whole_params.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/at.h"
#include "base/log.h"
#include "comm/await.h"
#include "comm/others_wait.h"
#include "device/host_values.h"
#include "device/working_thread.h"
#include "plan/tables/shard.h"

namespace trainctl {

namespace {

enum Tag : int { request_tag = 1, part_tag };

constexpr std::int64_t no_more = -1;     // the request that ends all
constexpr std::int64_t still_here = -2;  // and one that asks for nothing

constexpr std::chrono::milliseconds between_signs{200};

}  // namespace

/// The thread that tells the others that the one which made it still works.
class WholeParams::Signs {
 public:
  Signs(Group& everyone, double deadline)
      : everyone_(everyone),
        deadline_(deadline),
        worker_(longest_idle(everyone)),
        thread_([this] { work(); }) {}
  ~Signs() {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  Signs(const Signs&) = delete;
  Signs& operator=(const Signs&) = delete;

 private:
  void work() {
    set_log_rank(everyone_.rank(), everyone_.size());
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, between_signs, [this] { return closing_; })) {
      lock.unlock();
      if (worker_.is_stuck()) end_stuck("weights", worker_.idle_seconds());
      if (!tell()) return;
      lock.lock();
    }
  }

  /// False if another rank is lost: the next wait for it says so.
  bool tell() {
    try {
      std::int64_t sign = still_here;
      for (int rank = 1; rank < everyone_.size(); ++rank) {
        await(everyone_.send(host_tensor(&sign, 1), rank, request_tag, stream_), deadline_,
              [] { return "the message with a sign of rank 0"; });
      }
      return true;
    } catch (const Error&) {
      return false;
    }
  }

  Group& everyone_;
  const double deadline_;
  WorkingThread worker_;
  Stream stream_{DeviceKind::cpu, "signs", Stream::Mode::run_inline};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool closing_ = false;
  std::thread thread_;
};

WholeParams::WholeParams(const Plan& plan, const ParamStore& store, Group& everyone,
                         double deadline_seconds, std::span<std::byte> work)
    : plan_(plan), store_(store), everyone_(everyone), deadline_(deadline_seconds), rest_(work) {
  if (everyone.rank() != 0) return;
  find_parts();
  take_memory(work);
  if (everyone.size() > 1) signs_ = std::make_unique<Signs>(everyone, deadline_);
}

WholeParams::~WholeParams() = default;

/// Of ranks that own the same values, one gives them.
void WholeParams::find_parts() {
  for (int rank = 0; rank < everyone_.size(); ++rank) {
    const StagePlan& stage = plan_.stage_of(rank);
    const OwnershipTable table = make_ownership(plan_, rank);
    for (int i = 0; i < static_cast<int>(stage.parameters.size()); ++i) {
      const Ownership& own = at(table.parameters, i);
      if (!own.counts || own.owned.length() == 0) continue;
      const ParamSpec& row = at(stage.parameters, i);
      Whole& whole = parameters_[row.name];
      whole.shape = row.global_shape;
      whole.parts.push_back({rank, i, own.owned});
    }
  }
}

void WholeParams::take_memory(std::span<std::byte> work) {
  std::int64_t largest = 0;
  std::int64_t largest_part = 0;
  for (const auto& [name, whole] : parameters_) {
    largest = std::max(largest, whole.shape.numel());
    for (const Part& part : whole.parts) {
      if (part.rank != 0) largest_part = std::max(largest_part, part.owned.length());
    }
  }
  const std::int64_t bytes = (largest + largest_part) * size_of(DType::f32);
  if (std::ssize(work) < bytes) {
    own_ = Slab(DeviceKind::cpu, {{"whole", {largest}}, {"received", {largest_part}}});
    whole_ = own_.at("whole");
    received_ = own_.at("received");
    return;
  }
  auto* values = reinterpret_cast<float*>(work.data());
  whole_ = host_tensor(values, largest);
  received_ = host_tensor(values + largest, largest_part);
  rest_ = work.subspan(static_cast<std::size_t>(bytes));
}

void WholeParams::finish(const Event& event, const char* what, const std::string& name) const {
  await(event, deadline_, [&] { return "the message with " + std::string(what) + name; });
}

/// `values`: what the part's rank owns of its share, as it is kept.
void WholeParams::place(const Part& part, const Tensor& values, const Tensor& whole) const {
  const ParamSpec& row = at(plan_.stage_of(part.rank).parameters, part.index);
  for (const ShardPiece& piece : pieces_in(row, plan_.mesh, part.rank, part.owned)) {
    const Tensor kept = values.view({values.numel()});
    load_floats(kept.slice(piece.local, piece.local + piece.length),
                whole.as<float>() + piece.global);
  }
}

Tensor WholeParams::get(const std::string& name) {
  const Whole& found = parameters_.at(name);
  const Part& first = found.parts.front();
  const bool is_here = first.rank == 0 && first.owned.length() == found.shape.numel();
  const ParamSpec& row = at(plan_.stage_of(first.rank).parameters, first.index);
  const bool on_host = store_.made_gradients().device == DeviceKind::cpu;
  if (is_here && on_host && row.master == DType::f32) return store_.master(first.index);
  for (const Part& part : found.parts) {
    if (part.rank == 0) continue;
    std::int64_t index = part.index;
    finish(everyone_.send(host_tensor(&index, 1), part.rank, request_tag, stream_),
           "the request for ", name);
  }
  const Tensor whole = whole_.slice(0, found.shape.numel()).view(found.shape);
  for (const Part& part : found.parts) {
    if (part.rank == 0) {
      place(part, HostValues(store_.master(part.index)).values(), whole);
      continue;
    }
    const Tensor values{received_.data, {part.owned.length()}, row.master, DeviceKind::cpu};
    finish(everyone_.receive(values, part.rank, part_tag, stream_), "a part of ", name);
    place(part, values, whole);
  }
  return whole;
}

void WholeParams::end() {
  signs_.reset();
  std::int64_t request = no_more;
  for (int rank = 1; rank < everyone_.size(); ++rank) {
    finish(everyone_.send(host_tensor(&request, 1), rank, request_tag, stream_),
           "the end of an export", "");
  }
}

void WholeParams::give() {
  std::int64_t index = no_more;
  while (true) {
    finish(everyone_.receive(host_tensor(&index, 1), 0, request_tag, stream_),
           "a request of rank 0", "");
    if (index == no_more) return;
    if (index == still_here) continue;
    const HostValues part(store_.master(static_cast<int>(index)));
    const std::string& name = at(store_.table(), static_cast<int>(index)).name;
    finish(everyone_.send(part.values(), 0, part_tag, stream_), "a part of ", name);
  }
}

}  // namespace trainctl
