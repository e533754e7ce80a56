#include "comm/self_group.h"

#include <unistd.h>

#include <cassert>
#include <limits>

#include "base/error.h"
#include "comm/world.h"

namespace trainctl {

namespace {

class SelfGroup : public Group {
 public:
  explicit SelfGroup(std::string name) : name_(std::move(name)) {}

  int rank() const override { return 0; }
  int size() const override { return 1; }
  const std::string& name() const override { return name_; }
  double deadline_seconds() const override { return std::numeric_limits<double>::infinity(); }

  void all_reduce(const Tensor&, Stream&) override {}
  void reduce_scatter(const Tensor& data, const Tensor& shard, Stream& stream) override {
    copy("reduce_scatter", data, shard, stream);
  }
  void all_gather(const Tensor& shard, const Tensor& data, Stream& stream) override {
    copy("all_gather", shard, data, stream);
  }
  void broadcast(const Tensor&, int root, Stream&) override {
    assert(root == 0);
    static_cast<void>(root);
  }
  void all_to_all(const Tensor& send, std::span<const std::int64_t> send_counts,
                  const Tensor& receive, std::span<const std::int64_t> receive_counts,
                  Stream& stream) override {
    assert(send_counts.size() == 1 && send_counts[0] == send.numel());
    assert(receive_counts.size() == 1 && receive_counts[0] == receive.numel());
    static_cast<void>(send_counts);
    static_cast<void>(receive_counts);
    copy("all_to_all", send, receive, stream);
  }
  Event send(const Tensor&, int, int, Stream&) override { refuse("send"); }
  Event receive(const Tensor&, int, int, Stream&) override { refuse("receive"); }
  void barrier(Stream&) override {}

 private:
  void copy(const char* operation, const Tensor& from, const Tensor& to, Stream& stream) const {
    if (from.bytes() != to.bytes()) {
      throw Error(ExitCode::internal, "[" + std::string(operation) + "] '" + name_ +
                                          "': " + from.shape.to_string() + " does not fit " +
                                          to.shape.to_string());
    }
    if (from.data != to.data && from.bytes() > 0) stream.copy(to, from);
  }
  [[noreturn]] void refuse(const char* operation) const {
    throw Error(ExitCode::internal,
                "[" + std::string(operation) + "] '" + name_ + "' has no other rank");
  }

  const std::string name_;
};

class SelfWorld : public World {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  int local_rank() const override { return 0; }
  int local_size() const override { return 1; }
  const std::string& host() const override { return host_; }
  Traffic& traffic() override { return traffic_; }
  std::unique_ptr<Group> group(const std::string& name, std::span<const int> ranks) override {
    require(ranks.size() == 1 && ranks[0] == 0, ExitCode::internal,
            "group '" + name + "' asks for ranks of a world that has one");
    return self_group(name);
  }
  void abort(int) noexcept override {}

 private:
  const std::string host_ = host_name();
  Traffic traffic_;
};

}  // namespace

std::unique_ptr<Group> self_group(const std::string& name) {
  return std::make_unique<SelfGroup>(name);
}

int place_among(std::span<const int> ranks, int rank) {
  for (std::size_t place = 0; place < ranks.size(); ++place) {
    if (ranks[place] == rank) return static_cast<int>(place);
  }
  return -1;
}

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

std::unique_ptr<World> self_world() { return std::make_unique<SelfWorld>(); }

}  // namespace trainctl
