#include "comm/collectives_body.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>

#include "base/dtype.h"
#include "base/error.h"
#include "base/integers.h"
#include "comm/device_copies.h"

namespace trainctl {

namespace {

constexpr double forever = std::numeric_limits<double>::infinity();

/// Values of very different sizes, so that another order of summation gives other bits.
float value_of(int rank, std::int64_t i) {
  const auto seed = static_cast<std::uint64_t>(i * 8191 + rank + 1);
  const std::uint64_t bits = seed * 0x9e3779b97f4a7c15ULL ^ seed * 0xc2b2ae3d27d4eb4fULL >> 29;
  const float mantissa = static_cast<float>(static_cast<std::int32_t>(bits >> 32)) * 0x1.0p-31F;
  return mantissa * static_cast<float>(1 << (bits & 7));
}

template <class T>
std::vector<T> values_of(int rank, std::int64_t count) {
  std::vector<T> values(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    values[static_cast<std::size_t>(i)] = from_float<T>(value_of(rank, i));
  }
  return values;
}

/// The sum that is promised: in rank order, in fp32, rounded once.
template <class T>
std::vector<T> summed(int ranks, std::int64_t count) {
  std::vector<float> sums(static_cast<std::size_t>(count));
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<T> values = values_of<T>(rank, count);
    for (std::size_t i = 0; i < values.size(); ++i) {
      sums[i] = rank == 0 ? to_float(values[i]) : sums[i] + to_float(values[i]);
    }
  }
  std::vector<T> result(sums.size());
  std::ranges::transform(sums, result.begin(), [](float sum) { return from_float<T>(sum); });
  return result;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.empty() || b.empty()) return a.empty() && b.empty();
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

/// One rank's view of one group.
class Body {
 public:
  Body(Group& group, Stream& stream, BodyReport& report)
      : group_(group), stream_(stream), report_(report), me_(group.rank()), size_(group.size()) {}

  void run() {
    // Below and above the sizes at which the algorithm changes.
    for (const std::int64_t count : {0, 1, 5, 100, 4096, 4097, 20011}) {
      check_reductions<float>(count);
      check_reductions<bf16>(count);
      check_reductions<fp16>(count);
    }
    for (const std::int64_t count : {0, 1, 333, 70001}) check_copies(count);
    check_all_to_all();
    if (size_ > 1) {
      check_crossing_messages(10);
      check_crossing_messages(100000);
      check_messages_out_of_order();
      check_collective_passes_message();
    }
    check_values();
    check_arguments();
  }

  /// So much that it is cut into several pieces, the last of them shorter.
  void run_large() {
    check_reductions<float>(1100007);
    check_reductions<bf16>(2100007);
  }

 private:
  template <class T>
  Tensor tensor(std::vector<T>& values) {
    if (stream_.device() == DeviceKind::cuda) return copies_.tensor(values);
    return host_tensor(values.data(), std::ssize(values));
  }

  template <class T>
  void expect(std::vector<T>& result, const std::vector<T>& expected, const std::string& what) {
    copies_.fetch(result);
    report_.hash = fnv1a({reinterpret_cast<const char*>(result.data()), result.size() * sizeof(T)},
                         report_.hash);
    expect(same_bits(result, expected), what + " of " + std::to_string(result.size()));
  }

  void expect(bool holds, const std::string& what) {
    if (holds) return;
    report_.failures.push_back("rank " + std::to_string(me_) + " of " + std::to_string(size_) +
                               " in '" + group_.name() + "': " + what);
  }

  void expect_error(ExitCode code, const std::string& what, const std::function<void()>& action) {
    try {
      action();
    } catch (const Error& error) {
      expect(error.code() == code, what + " gives another code: " + error.what());
      return;
    }
    expect(false, what + " is accepted");
  }

  template <class T>
  void check_reductions(std::int64_t count) {
    std::vector<T> data = values_of<T>(me_, count);
    group_.all_reduce(tensor(data), stream_);
    stream_.synchronize();
    expect(data, summed<T>(size_, count), "all_reduce");

    const std::int64_t shard_count = count / size_;
    const std::vector<T> whole = summed<T>(size_, shard_count * size_);
    const auto begin = whole.begin() + me_ * shard_count;
    const std::vector<T> expected(begin, begin + shard_count);
    data = values_of<T>(me_, shard_count * size_);
    std::vector<T> shard(static_cast<std::size_t>(shard_count));
    group_.reduce_scatter(tensor(data), tensor(shard), stream_);
    stream_.synchronize();
    expect(shard, expected, "reduce_scatter");

    data = values_of<T>(me_, shard_count * size_);
    Tensor inside = tensor(data).slice(me_ * shard_count, (me_ + 1) * shard_count);
    group_.reduce_scatter(tensor(data), inside, stream_);
    group_.all_gather(inside, tensor(data), stream_);
    stream_.synchronize();
    expect(data, whole, "reduce_scatter and all_gather in place");
  }

  void check_copies(std::int64_t count) {
    std::vector<float> expected;
    for (int rank = 0; rank < size_; ++rank) {
      const auto part = values_of<float>(rank, count);
      expected.insert(expected.end(), part.begin(), part.end());
    }
    std::vector<float> shard = values_of<float>(me_, count);
    std::vector<float> data(expected.size());
    group_.all_gather(tensor(shard), tensor(data), stream_);
    stream_.synchronize();
    expect(data, expected, "all_gather");
    for (int root = 0; root < size_; ++root) {
      shard = values_of<float>(me_, count);
      group_.broadcast(tensor(shard), root, stream_);
      stream_.synchronize();
      expect(shard, values_of<float>(root, count), "broadcast");
    }
    group_.barrier(stream_);
    stream_.synchronize();
  }

  /// How many elements `from` sends to `to`: uneven, some none, some many.
  static std::int64_t count_between(int from, int to) {
    return (from * 3 + to * 5) % 7 * (from == 1 ? 9001 : 1);
  }

  void check_all_to_all() {
    std::vector<std::int64_t> send_counts;
    std::vector<std::int64_t> receive_counts;
    std::vector<std::int32_t> send;
    std::vector<std::int32_t> expected;
    for (int peer = 0; peer < size_; ++peer) {
      send_counts.push_back(count_between(me_, peer));
      receive_counts.push_back(count_between(peer, me_));
      for (int i = 0; i < send_counts.back(); ++i) send.push_back((me_ * 10 + peer) * 100000 + i);
      for (int i = 0; i < receive_counts.back(); ++i) {
        expected.push_back((peer * 10 + me_) * 100000 + i);
      }
    }
    std::vector<std::int32_t> receive(expected.size());
    group_.all_to_all(tensor(send), send_counts, tensor(receive), receive_counts, stream_);
    // The counts are the caller's again at once.
    std::ranges::fill(send_counts, -1);
    std::ranges::fill(receive_counts, -1);
    stream_.synchronize();
    expect(receive, expected, "all_to_all");
  }

  /// Everybody posts all sends before any receive, then waits.
  void check_crossing_messages(std::int64_t count) {
    std::vector<float> mine = values_of<float>(me_, count);
    std::vector<std::vector<float>> received(static_cast<std::size_t>(size_));
    std::vector<Event> events;
    for (int peer = 0; peer < size_; ++peer) {
      if (peer != me_) events.push_back(group_.send(tensor(mine), peer, 3, stream_));
    }
    for (int peer = 0; peer < size_; ++peer) {
      auto& data = received[static_cast<std::size_t>(peer)];
      data.resize(static_cast<std::size_t>(count));
      if (peer != me_) events.push_back(group_.receive(tensor(data), peer, 3, stream_));
    }
    for (const Event& event : events) expect(Stream::wait_host(event, forever), "message waits");
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == me_) continue;
      expect(received[static_cast<std::size_t>(peer)], values_of<float>(peer, count), "message");
    }
  }

  /// Rank 0 waits for the second message before the first is even sent.
  void check_messages_out_of_order() {
    std::vector<std::int32_t> first{1};
    std::vector<std::int32_t> second{2};
    std::vector<std::int32_t> answer{0};
    if (me_ == 0) {
      std::vector<std::int32_t> a{0};
      std::vector<std::int32_t> b{0};
      const Event got_a = group_.receive(tensor(a), 1, 1, stream_);
      const Event got_b = group_.receive(tensor(b), 1, 2, stream_);
      Stream::wait_host(got_b, forever);
      expect(b, second, "second message");
      Stream::wait_host(group_.send(tensor(b), 1, 0, stream_), forever);
      Stream::wait_host(got_a, forever);
      expect(a, first, "first message");
    } else if (me_ == 1) {
      const Event sent = group_.send(tensor(second), 0, 2, stream_);
      Stream::wait_host(group_.receive(tensor(answer), 0, 0, stream_), forever);
      expect(answer, second, "answer");
      Stream::wait_host(group_.send(tensor(first), 0, 1, stream_), forever);
      Stream::wait_host(sent, forever);
    }
  }

  /// A posted receive that nobody answers yet does not hold up the collective behind it.
  void check_collective_passes_message() {
    std::vector<float> data{static_cast<float>(me_)};
    std::vector<float> received{-1};
    const int to = (me_ + 1) % size_;
    const int from = (me_ + size_ - 1) % size_;
    const Event got = group_.receive(tensor(received), from, 5, stream_);
    group_.barrier(stream_);
    stream_.synchronize();
    expect(!Stream::reached(got), "a message that nobody sent is there");
    expect(!Stream::wait_host(got, 0.001), "a message that nobody sent has come");
    group_.barrier(stream_);
    stream_.synchronize();
    const Event sent = group_.send(tensor(data), to, 5, stream_);
    stream_.wait(got);
    stream_.wait(sent);
    stream_.synchronize();
    expect(Stream::reached(got), "the message has come");
    expect(received, {static_cast<float>(from)}, "message behind a barrier");
  }

  void check_values() {
    copies_ = {};  // these are the host's
    std::vector<double> expected(static_cast<std::size_t>(size_));
    std::vector<std::uint64_t> expected_bits(static_cast<std::size_t>(size_));
    for (int rank = 0; rank < size_; ++rank) {
      expected[static_cast<std::size_t>(rank)] = 0.1 * rank;
      expected_bits[static_cast<std::size_t>(rank)] =
          ~std::uint64_t{0} - static_cast<unsigned>(rank);
    }
    std::vector<double> values = gather_values(group_, 0.1 * me_);
    expect(values, expected, "gather_values");
    auto bits = gather_values(group_, ~std::uint64_t{0} - static_cast<unsigned>(me_));
    expect(bits, expected_bits, "gather_values of bits");
    const int root = size_ - 1;
    for (const std::string& text : {std::string("the last rank's words"), std::string()}) {
      std::string bytes = me_ == root ? text : "something longer that is replaced by all";
      broadcast_bytes(group_, bytes, root);
      expect(bytes == text, "broadcast_bytes gives '" + bytes + "'");
    }
    // The first rank has nothing to say.
    const auto said = gather_bytes(group_, std::string(static_cast<std::size_t>(me_), 'x'), root);
    expect(std::ssize(said) == (me_ == root ? size_ : 0), "gather_bytes reaches others");
    for (std::size_t rank = 0; rank < said.size(); ++rank) {
      expect(said[rank] == std::string(rank, 'x'), "gather_bytes gives '" + said[rank] + "'");
    }
  }

  void check_arguments() {
    if (size_ == 1) return;
    std::vector<float> three(3);
    std::vector<std::int32_t> whole(static_cast<std::size_t>(size_));
    const std::vector<std::int64_t> counts(static_cast<std::size_t>(size_), 1);
    const std::vector<std::int64_t> wrong(static_cast<std::size_t>(size_), 2);
    const auto refused = [&](const std::string& what, const std::function<void()>& action) {
      expect_error(ExitCode::internal, what, action);
    };
    refused("a sum of integers", [&] { group_.all_reduce(tensor(whole), stream_); });
    refused("a shard that does not fit",
            [&] { group_.reduce_scatter(tensor(three), tensor(three), stream_); });
    refused("a gather that does not fit",
            [&] { group_.all_gather(tensor(three), tensor(three), stream_); });
    refused("a root outside", [&] { group_.broadcast(tensor(three), size_, stream_); });
    refused("counts that do not add up",
            [&] { group_.all_to_all(tensor(whole), counts, tensor(whole), wrong, stream_); });
    refused("a message to itself", [&] { group_.send(tensor(three), me_, 0, stream_); });
    refused("a message from outside", [&] { group_.receive(tensor(three), -1, 0, stream_); });
    refused("a negative tag", [&] { group_.send(tensor(three), (me_ + 1) % size_, -1, stream_); });
  }

  Group& group_;
  Stream& stream_;
  BodyReport& report_;
  DeviceCopies copies_;
  const int me_;
  const int size_;
};

}  // namespace

BodyReport run_collectives_body(World& world, bool large) {
  BodyReport report;
  report.hash = fnv_offset;
  const auto group = world.everyone("world");
  for (const auto mode : {Stream::Mode::run_inline, Stream::Mode::queued}) {
    Stream stream(DeviceKind::cpu, "body", mode);
    Body body(*group, stream, report);
    body.run();
    if (large && mode == Stream::Mode::queued) body.run_large();
  }
  // Every second rank, and a second group of the same name and ranks: each has its own messages.
  std::vector<int> half;
  for (int rank = world.rank() % 2; rank < world.size(); rank += 2) half.push_back(rank);
  const auto smaller = world.group("half", half);
  const auto again = world.group("half", half);
  Stream stream(DeviceKind::cpu, "half", Stream::Mode::queued);
  Body(*smaller, stream, report).run();
  Body(*again, stream, report).run();
  return report;
}

BodyReport run_device_body(World& world) {
  BodyReport report;
  report.hash = fnv_offset;
  const auto group = world.everyone("device");
  Stream stream(DeviceKind::cuda, "body", Stream::Mode::queued);
  Body(*group, stream, report).run();
  return report;
}

std::uint64_t combined_hash(World& world, std::uint64_t hash) {
  const auto group = world.everyone("hash");
  const std::vector<std::uint64_t> all = gather_values(*group, hash);
  return fnv1a({reinterpret_cast<const char*>(all.data()), all.size() * sizeof hash});
}

}  // namespace trainctl
