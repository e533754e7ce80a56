#include "faulty_world.h"

#include <limits>

#include "comm/world.h"

namespace trainctl {

namespace {

constexpr double no_deadline = std::numeric_limits<double>::infinity();

/// Counts the calls that each fault could mean, over all groups of one rank.
class Faults {
 public:
  Faults(int rank, const std::vector<GroupFault>& faults)
      : rank_(rank), faults_(faults), seen_(faults.size()) {}

  Event pass(const GroupCall& call) {
    const GroupFault* chosen = nullptr;
    for (std::size_t i = 0; i < faults_.size(); ++i) {
      const GroupFault& fault = faults_[i];
      if (fault.rank != rank_ || !means(fault, call)) continue;
      seen_[i] += 1;
      const bool now = fault.occurrence == 0 || fault.occurrence == seen_[i];
      if (now && chosen == nullptr) chosen = &fault;
    }
    return chosen != nullptr ? chosen->act(call) : call.make();
  }

 private:
  static bool means(const GroupFault& fault, const GroupCall& call) {
    return (fault.group.empty() || fault.group == call.group->name()) &&
           (!fault.operation || *fault.operation == call.operation);
  }

  const int rank_;
  const std::vector<GroupFault>& faults_;
  std::vector<int> seen_;
};

class FaultyGroup : public Group {
 public:
  FaultyGroup(std::unique_ptr<Group> inner, Faults& faults)
      : inner_(std::move(inner)), faults_(faults) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  const std::string& name() const override { return inner_->name(); }
  double deadline_seconds() const override { return inner_->deadline_seconds(); }

  void all_reduce(const Tensor& data, Stream& stream) override {
    pass({.operation = GroupOperation::all_reduce, .input = data, .output = data}, stream,
         [=, this, &stream] { inner_->all_reduce(data, stream); });
  }
  void reduce_scatter(const Tensor& data, const Tensor& shard, Stream& stream) override {
    pass({.operation = GroupOperation::reduce_scatter, .input = data, .output = shard}, stream,
         [=, this, &stream] { inner_->reduce_scatter(data, shard, stream); });
  }
  void all_gather(const Tensor& shard, const Tensor& data, Stream& stream) override {
    pass({.operation = GroupOperation::all_gather, .input = shard, .output = data}, stream,
         [=, this, &stream] { inner_->all_gather(shard, data, stream); });
  }
  void broadcast(const Tensor& data, int root, Stream& stream) override {
    const Tensor input = root == rank() ? data : Tensor{};
    pass({.operation = GroupOperation::broadcast, .input = input, .output = data, .peer = root},
         stream, [=, this, &stream] { inner_->broadcast(data, root, stream); });
  }
  void all_to_all(const Tensor& send, std::span<const std::int64_t> send_counts,
                  const Tensor& receive, std::span<const std::int64_t> receive_counts,
                  Stream& stream) override {
    const std::vector<std::int64_t> sends(send_counts.begin(), send_counts.end());
    const std::vector<std::int64_t> receives(receive_counts.begin(), receive_counts.end());
    pass({.operation = GroupOperation::all_to_all, .input = send, .output = receive}, stream,
         [=, this, &stream] { inner_->all_to_all(send, sends, receive, receives, stream); });
  }
  Event send(const Tensor& data, int to, int tag, Stream& stream) override {
    return pass_message({.operation = GroupOperation::send, .input = data, .peer = to}, stream,
                        [=, this, &stream] { return inner_->send(data, to, tag, stream); });
  }
  Event receive(const Tensor& data, int from, int tag, Stream& stream) override {
    return pass_message({.operation = GroupOperation::receive, .output = data, .peer = from},
                        stream,
                        [=, this, &stream] { return inner_->receive(data, from, tag, stream); });
  }
  void barrier(Stream& stream) override {
    pass({.operation = GroupOperation::barrier}, stream,
         [this, &stream] { inner_->barrier(stream); });
  }

 private:
  struct Call {
    GroupOperation operation;
    Tensor input{};
    Tensor output{};
    int peer = -1;
  };

  Event pass_message(const Call& call, Stream& stream, std::function<Event()> make) {
    return faults_.pass({.operation = call.operation,
                         .group = inner_.get(),
                         .stream = &stream,
                         .input = call.input,
                         .output = call.output,
                         .peer = call.peer,
                         .make = std::move(make)});
  }
  void pass(const Call& call, Stream& stream, const std::function<void()>& make) {
    pass_message(call, stream, [make] {
      make();
      return Event{};
    });
  }

  std::unique_ptr<Group> inner_;
  Faults& faults_;
};

class FaultyWorld : public ForwardingWorld {
 public:
  FaultyWorld(World& inner, const std::vector<GroupFault>& faults)
      : ForwardingWorld(inner), faults_(inner.rank(), faults) {}

  std::unique_ptr<Group> group(const std::string& name, std::span<const int> ranks) override {
    return std::make_unique<FaultyGroup>(inner().group(name, ranks), faults_);
  }

 private:
  Faults faults_;
};

/// A stream's task is trivially copyable, so it points to `change`, which the list of faults keeps.
void change_later(Stream& stream, const std::function<void(const Tensor&)>& change,
                  const Tensor& tensor) {
  if (tensor.empty()) return;
  const auto* kept = &change;
  stream.enqueue(Task([kept, tensor] { (*kept)(tensor); }));
}

/// Stays in place when the action is copied.
using Change = std::shared_ptr<const std::function<void(const Tensor&)>>;

Change shared(std::function<void(const Tensor&)> change) {
  return std::make_shared<const std::function<void(const Tensor&)>>(std::move(change));
}

}  // namespace

FaultAction left_out() {
  return [](const GroupCall&) { return Event{}; };
}

FaultAction made_twice() {
  return [](const GroupCall& call) {
    call.make();
    return call.make();
  };
}

FaultAction with_input(std::function<void(const Tensor&)> change) {
  return [change = shared(std::move(change))](const GroupCall& call) {
    change_later(*call.stream, *change, call.input);
    return call.make();
  };
}

FaultAction with_output(std::function<void(const Tensor&)> change) {
  return [change = shared(std::move(change))](const GroupCall& call) {
    const Event event = call.make();
    Stream::wait_host(event, no_deadline);
    change_later(*call.stream, *change, call.output);
    return event;
  };
}

FaultAction after(std::function<void()> wait) {
  return [wait = std::move(wait)](const GroupCall& call) {
    wait();
    return call.make();
  };
}

std::vector<GroupFault> exchanged(GroupFault first, GroupFault second) {
  const auto held = std::make_shared<std::function<Event()>>();
  first.act = [held](const GroupCall& call) {
    *held = call.make;
    return Event{};
  };
  second.act = [held](const GroupCall& call) {
    const Event event = call.make();
    if (*held) (*held)();
    return event;
  };
  return {std::move(first), std::move(second)};
}

std::unique_ptr<World> faulty_world(World& world, const std::vector<GroupFault>& faults) {
  return std::make_unique<FaultyWorld>(world, faults);
}

}  // namespace trainctl
