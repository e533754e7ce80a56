#include "device/stream.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/parallel_for.h"
#include "catch.h"
#include "device/count_new.h"

namespace trainctl {
namespace {

constexpr double forever = std::numeric_limits<double>::infinity();

/// A door that a task can be held at.
struct Door {
  std::promise<void> opener;
  std::shared_future<void> open = opener.get_future().share();
};

Task hold_at(const Door& door) {
  const std::shared_future<void>* open = &door.open;
  return Task([open] { open->wait(); });
}

std::string failure_of(const Event& event) {
  try {
    Stream::wait_host(event, forever);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("a default event is complete") {
  REQUIRE(Stream::reached(Event{}));
  REQUIRE(Stream::wait_host(Event{}, 0));
}

TEST_CASE("an inline stream runs work in the caller") {
  Stream stream(DeviceKind::cpu, "compute", Stream::Mode::run_inline);
  std::thread::id where;
  std::thread::id* out = &where;
  stream.enqueue(Task([out] { *out = std::this_thread::get_id(); }));
  REQUIRE(where == std::this_thread::get_id());
  REQUIRE(Stream::reached(stream.record()));
  REQUIRE(stream.native() == nullptr);
}

TEST_CASE("a queued stream runs work in order on its own thread") {
  std::vector<int> order;
  order.reserve(1000);
  std::thread::id where;
  {
    Stream stream(DeviceKind::cpu, "a name longer than fifteen characters", Stream::Mode::queued);
    for (int i = 0; i < 1000; ++i) {
      stream.enqueue(Task([&order, i] { order.push_back(i); }));
    }
    stream.enqueue(Task([&where] { where = std::this_thread::get_id(); }));
    stream.synchronize();
  }
  std::vector<int> expected(1000);
  std::iota(expected.begin(), expected.end(), 0);
  REQUIRE(order == expected);
  REQUIRE(where != std::this_thread::get_id());
}

TEST_CASE("the thread of a stream uses one thread in parallel_for") {
  set_thread_count(2);
  int count = 0;
  Stream stream(DeviceKind::cpu, "comm", Stream::Mode::queued);
  stream.enqueue(Task([&count] { count = thread_count(); }));
  stream.synchronize();
  set_thread_count(1);
  REQUIRE(count == 1);
}

TEST_CASE("an event is reached when the work before it is done, not before") {
  Stream stream(DeviceKind::cpu, "comm", Stream::Mode::queued);
  Door door;
  const Event before = stream.record();
  stream.enqueue(hold_at(door));
  const Event after = stream.record();
  REQUIRE(Stream::reached(before));
  REQUIRE_FALSE(Stream::reached(after));
  REQUIRE_FALSE(Stream::wait_host(after, 0.01));
  door.opener.set_value();
  REQUIRE(Stream::wait_host(after, forever));
  REQUIRE(Stream::reached(after));
}

TEST_CASE("a stream waits for another's event without blocking the host") {
  Stream first(DeviceKind::cpu, "first", Stream::Mode::queued);
  Stream second(DeviceKind::cpu, "second", Stream::Mode::queued);
  Door door;
  std::atomic<int> value{0};
  first.enqueue(hold_at(door));
  first.enqueue(Task([&value] { value = 1; }));
  second.wait(first.record());
  int seen = -1;
  second.enqueue(Task([&value, &seen] { seen = value; }));
  const Event done = second.record();
  REQUIRE_FALSE(Stream::wait_host(done, 0.01));
  door.opener.set_value();
  REQUIRE(Stream::wait_host(done, forever));
  REQUIRE(seen == 1);
}

TEST_CASE("an inline stream waits in the caller") {
  Stream comm(DeviceKind::cpu, "comm", Stream::Mode::queued);
  Stream compute(DeviceKind::cpu, "compute", Stream::Mode::run_inline);
  int value = 0;
  comm.enqueue(Task([&value] { value = 7; }));
  compute.wait(comm.record());
  REQUIRE(value == 7);
}

TEST_CASE("a failure skips later work and surfaces at later events only") {
  for (const auto mode : {Stream::Mode::run_inline, Stream::Mode::queued}) {
    Stream stream(DeviceKind::cpu, "comm", mode);
    bool ran = false;
    const Event before = stream.record();
    stream.enqueue(Task([] { throw Error(ExitCode::peer, "rank 3 is gone"); }));
    const Event at = stream.record();
    stream.enqueue(Task([&ran] { ran = true; }));
    const Event later = stream.record();
    REQUIRE(failure_of(later) == "rank 3 is gone");
    REQUIRE(failure_of(at) == "rank 3 is gone");
    REQUIRE(failure_of(before).empty());
    REQUIRE_FALSE(ran);
    REQUIRE(Stream::reached(later));
    REQUIRE_THROWS_AS(stream.synchronize(), Error);
  }
}

TEST_CASE("a failure passes on to the streams that wait for it") {
  Stream first(DeviceKind::cpu, "first", Stream::Mode::queued);
  Stream second(DeviceKind::cpu, "second", Stream::Mode::queued);
  Stream compute(DeviceKind::cpu, "compute", Stream::Mode::run_inline);
  first.enqueue(Task([] { throw std::runtime_error("broken"); }));
  second.wait(first.record());
  REQUIRE(failure_of(second.record()) == "broken");
  REQUIRE_THROWS_WITH(compute.wait(second.record()), "broken");
}

TEST_CASE("the destructor finishes what is queued and forgets failures") {
  std::atomic<int> ran{0};
  {
    Stream stream(DeviceKind::cpu, "comm", Stream::Mode::queued);
    for (int i = 0; i < 100; ++i) stream.enqueue(Task([&ran] { ran += 1; }));
  }
  REQUIRE(ran == 100);
  {
    Stream stream(DeviceKind::cpu, "comm", Stream::Mode::queued);
    stream.enqueue(Task([] { throw Error(ExitCode::peer, "nobody looks"); }));
    for (int i = 0; i < 600; ++i) stream.enqueue(Task([&ran] { ran += 1; }));
  }
  REQUIRE(ran == 100);
}

TEST_CASE("a full queue blocks the producer until there is room") {
  Stream stream(DeviceKind::cpu, "comm", Stream::Mode::queued);
  Door door;
  std::atomic<int> enqueued{0};
  std::atomic<int> ran{0};
  stream.enqueue(hold_at(door));
  std::thread producer([&] {
    for (int i = 0; i < 2000; ++i) {
      stream.enqueue(Task([&ran] { ran += 1; }));
      enqueued += 1;
    }
  });
  while (enqueued < 255) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const int held_back_at = enqueued;
  door.opener.set_value();
  producer.join();
  stream.synchronize();
  REQUIRE(held_back_at == 255);
  REQUIRE(ran == 2000);
}

TEST_CASE("copies and zeroes happen in queue order") {
  for (const auto mode : {Stream::Mode::run_inline, Stream::Mode::queued}) {
    const std::int64_t count = 3 << 20;
    std::vector<std::uint8_t> from(count, 9);
    std::vector<std::uint8_t> to(count, 1);
    Stream stream(DeviceKind::cpu, "copies", mode);
    const Tensor target = host_tensor(to.data(), count);
    stream.copy(target, host_tensor(from.data(), count));
    stream.zero(target.slice(1, count - 1));
    stream.synchronize();
    REQUIRE(to.front() == 9);
    REQUIRE(to.back() == 9);
    REQUIRE(std::accumulate(to.begin(), to.end(), 0) == 18);
  }
}

TEST_CASE("enqueueing, recording and waiting do not allocate") {
  Stream first(DeviceKind::cpu, "first", Stream::Mode::queued);
  Stream second(DeviceKind::cpu, "second", Stream::Mode::queued);
  Stream compute(DeviceKind::cpu, "compute", Stream::Mode::run_inline);
  std::vector<float> data(64);
  const Tensor tensor = host_tensor(data.data(), 64);
  const auto step = [&] {
    for (int i = 0; i < 500; ++i) {
      compute.zero(tensor);
      first.wait(compute.record());
      first.zero(tensor);
      second.wait(first.record());
      compute.wait(second.record());
    }
  };
  step();
  const std::int64_t before = count_of_new();
  step();
  REQUIRE(count_of_new() == before);
  auto made = std::make_unique<int>(3);
  REQUIRE(count_of_new() == before + 1);
}

/// An object with events of its own, as the messages of a group are.
class Ledger final : public OwnEvents {
 public:
  Ledger() : OwnEvents("ledger") {}
  std::atomic<std::uint64_t> done{0};  // the last ticket

 private:
  bool wait(std::uint64_t ticket, double) override {
    while (done < ticket) std::this_thread::yield();
    return true;
  }
  bool reached(std::uint64_t ticket) override { return done >= ticket; }
};

TEST_CASE("a stream waits for events that an object keeps itself") {
  Ledger ledger;
  Stream comm(DeviceKind::cpu, "comm", Stream::Mode::queued);
  comm.wait(ledger.event(1));
  const Event done = comm.record();
  REQUIRE_FALSE(Stream::wait_host(done, 0.01));
  REQUIRE_FALSE(Stream::reached(ledger.event(1)));
  ledger.done = 1;
  REQUIRE(Stream::wait_host(done, forever));
  REQUIRE(Stream::reached(ledger.event(1)));
  REQUIRE_FALSE(Stream::reached(ledger.event(2)));
}

}  // namespace
}  // namespace trainctl
