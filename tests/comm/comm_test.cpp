#include <cstdlib>

#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>

#include "base/dtype.h"
#include "base/error.h"
#include "base/integers.h"
#include "catch.h"
#include "comm/collectives_body.h"
#include "comm/host/host_group.h"
#include "device/count_new.h"
#include "thorough.h"

namespace trainctl {
namespace {

using RankBody = std::function<void(World&)>;

/// The world's first failure, "" when all is well.
std::string failure_of_world(int size, const WorldOptions& options, const RankBody& body) {
  try {
    run_thread_world(size, options, body);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

/// The message of each rank about its own failure.
std::vector<std::string> failures_of_ranks(int size, const WorldOptions& options,
                                           const RankBody& body) {
  std::vector<std::string> failures(static_cast<std::size_t>(size));
  run_thread_world(size, options, [&](World& world) {
    try {
      body(world);
    } catch (const Error& error) {
      failures[static_cast<std::size_t>(world.rank())] = error.what();
    }
  });
  return failures;
}

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// "WHAT waited N s for WHOM", N at least the deadline: other work on the machine adds to it.
bool holds_wait(const std::string& text, const std::string& what, double deadline,
                const std::string& whom) {
  const std::string begin = what + " waited ";
  const std::size_t place = text.find(begin);
  if (place == std::string::npos) return false;
  const std::string rest = text.substr(place + begin.size());
  std::size_t digits = 0;
  const double waited = std::stod(rest, &digits);
  return waited >= deadline && rest.substr(digits).starts_with(" s for " + whom);
}

TEST_CASE("every operation works alone") {
  const auto world = self_world();
  REQUIRE(world->size() == 1);
  REQUIRE(world->local_size() == 1);
  REQUIRE_FALSE(world->host().empty());
  const BodyReport report = run_collectives_body(*world, true);
  REQUIRE(report.failures == std::vector<std::string>{});
  const std::vector<int> zero{0};
  const auto group = world->group("alone", zero);
  Stream stream(DeviceKind::cpu, "alone", Stream::Mode::run_inline);
  float value = 1;
  REQUIRE_THROWS_AS(group->send(host_tensor(&value, 1), 0, 0, stream), Error);
  const std::vector<int> two{0, 1};
  REQUIRE_THROWS_AS(world->group("two", two), Error);
}

TEST_CASE("every operation works among threads") {
  const int size = GENERATE(1, 2, 3, 8);
  if (brief() && size == 8) return;  // three run the same code
  std::mutex mutex;
  std::vector<std::string> failures;
  std::vector<std::uint64_t> hashes;
  run_thread_world(size, {.deadline_seconds = 60}, [&](World& world) {
    const BodyReport report = run_collectives_body(world, size == 2);
    const std::uint64_t hash = combined_hash(world, report.hash);
    const std::lock_guard lock(mutex);
    failures.insert(failures.end(), report.failures.begin(), report.failures.end());
    hashes.push_back(hash);
  });
  REQUIRE(failures == std::vector<std::string>{});
  REQUIRE(hashes == std::vector<std::uint64_t>(static_cast<std::size_t>(size), hashes[0]));
}

TEST_CASE("the sum has one order, and 16-bit types are rounded once") {
  const float large = 0x1.0p24F;
  const float one = 1;
  const float minus = -0x1.0p24F;
  const void* parts[] = {&large, &one, &minus};
  float sum = -1;
  sum_in_rank_order(&sum, parts, 1, DType::f32);
  REQUIRE(sum == 0);  // (2^24 + 1) rounds to 2^24
  const void* other_order[] = {&large, &minus, &one};
  sum_in_rank_order(&sum, other_order, 1, DType::f32);
  REQUIRE(sum == 1);
  const bf16 a = to_bf16(256);
  const bf16 b = to_bf16(1);
  const void* halves[] = {&a, &b, &b};
  bf16 rounded{};
  sum_in_rank_order(&rounded, halves, 1, DType::bf16);
  REQUIRE(to_float(rounded) == 258);  // rounding after each step would stay at 256
  const fp16 c = to_fp16(2048);
  const fp16 d = to_fp16(1);
  const void* small[] = {&c, &d, &d};
  fp16 once{};
  sum_in_rank_order(&once, small, 1, DType::f16);
  REQUIRE(to_float(once) == 2050);  // rounding after each step would stay at 2048
}

TEST_CASE("a rank that does not come is named by all others") {
  const auto failures = failures_of_ranks(3, {.deadline_seconds = 1.0}, [](World& world) {
    const auto group = world.everyone("dp");
    Stream stream(DeviceKind::cpu, "comm", Stream::Mode::queued);
    std::vector<float> data(100);
    // A collective of all ranks, so that one that fails is not the first.
    group->all_reduce(host_tensor(data.data(), 100), stream);
    stream.synchronize();
    if (world.rank() == 1) return;
    group->all_reduce(host_tensor(data.data(), 100), stream);
    stream.synchronize();
  });
  for (const int rank : {0, 2}) {
    const std::string& text = failures[static_cast<std::size_t>(rank)];
    INFO(text);
    REQUIRE(holds_wait(text, "all_reduce 'dp'", 1.0, "rank 1 (host "));
    REQUIRE_FALSE(holds(text, "rank 0"));
    REQUIRE_FALSE(holds(text, "rank 2"));
  }
  REQUIRE(failures[1].empty());
}

TEST_CASE("a message that does not come names its sender, one that is not taken its receiver") {
  const auto failures = failures_of_ranks(3, {.deadline_seconds = 0.2}, [](World& world) {
    const auto group = world.everyone("pp");
    Stream stream(DeviceKind::cpu, "comm", Stream::Mode::run_inline);
    float value = 0;
    const Tensor data = host_tensor(&value, 1);
    if (world.rank() == 0) Stream::wait_host(group->receive(data, 2, 0, stream), 1e9);
    if (world.rank() == 1) {
      stream.wait(group->send(data, 2, 0, stream));
      stream.synchronize();
    }
  });
  REQUIRE(holds_wait(failures[0], "receive 'pp'", 0.2, "rank 2 (host "));
  REQUIRE(holds_wait(failures[1], "send 'pp'", 0.2, "rank 2 (host "));
}

TEST_CASE("a message behind a failure of its stream fails with it") {
  const auto failures = failures_of_ranks(2, {.deadline_seconds = 20}, [](World& world) {
    const auto group = world.everyone("pp");
    Stream stream(DeviceKind::cpu, "comm", Stream::Mode::queued);
    stream.enqueue(Task([] { throw Error(ExitCode::internal, "broken before"); }));
    float value = 0;
    const Event event = group->receive(host_tensor(&value, 1), 1 - world.rank(), 0, stream);
    Stream::wait_host(event, 20);
  });
  REQUIRE(failures[0] == "broken before");
  REQUIRE(failures[1] == "broken before");
}

TEST_CASE("the first failure of a world is rethrown and wakes the others") {
  std::atomic<int> woken{0};
  const std::string failure = failure_of_world(4, {.deadline_seconds = 600}, [&](World& world) {
    const auto group = world.everyone("dp");
    Stream stream(DeviceKind::cpu, "comm", Stream::Mode::queued);
    float value = 0;
    const Tensor data = host_tensor(&value, 1);
    if (world.rank() == 2) throw std::runtime_error("the loss is NaN");
    try {
      if (world.rank() == 1) {
        Stream::wait_host(group->receive(data, 2, 0, stream), 1e9);
      } else {
        group->all_reduce(data, stream);
        stream.synchronize();
      }
    } catch (const Error& error) {
      if (error.code() == ExitCode::peer && holds(error.what(), "rank 2 failed: the loss is NaN")) {
        woken += 1;
      }
      throw;
    }
  });
  REQUIRE(failure == "the loss is NaN");
  REQUIRE(woken == 3);
}

TEST_CASE("abort ends the world with the exit code") {
  try {
    run_thread_world(2, {.deadline_seconds = 600}, [](World& world) {
      const auto group = world.everyone("dp");
      if (world.rank() == 1) {
        world.abort(71);
        return;
      }
      Stream stream(DeviceKind::cpu, "comm", Stream::Mode::run_inline);
      group->barrier(stream);
      stream.synchronize();
    });
    FAIL("the world ended well");
  } catch (const Error& error) {
    REQUIRE(error.code() == ExitCode::diverged);
  }
}

TEST_CASE("ranks that disagree about an operation are told so") {
  const auto run = [](const std::function<void(Group&, Stream&, std::vector<float>&)>& call) {
    return failures_of_ranks(2, {.deadline_seconds = 0.2}, [&](World& world) {
      const auto group = world.everyone("dp");
      Stream stream(DeviceKind::cpu, "comm", Stream::Mode::run_inline);
      std::vector<float> data(8);
      call(*group, stream, data);
      stream.synchronize();
    });
  };
  const auto other_operation = run([](Group& group, Stream& stream, std::vector<float>& data) {
    const Tensor whole = host_tensor(data.data(), 8);
    if (group.rank() == 0) group.all_reduce(whole, stream);
    if (group.rank() == 1) group.broadcast(whole, 0, stream);
  });
  REQUIRE(holds(other_operation[0], "calls broadcast"));
  const auto other_size = run([](Group& group, Stream& stream, std::vector<float>& data) {
    group.all_reduce(host_tensor(data.data(), 8 - group.rank()), stream);
  });
  REQUIRE(holds(other_size[0], "28 bytes"));
  const auto other_root = run([](Group& group, Stream& stream, std::vector<float>& data) {
    group.broadcast(host_tensor(data.data(), 8), group.rank(), stream);
  });
  REQUIRE(holds(other_root[0],
                "calls broadcast of 32 bytes of fp32 from rank 1 of the group as call 1, "
                "rank 0 calls broadcast of 32 bytes of fp32 from rank 0 of the group as call 1"));
  const auto other_type = run([](Group& group, Stream& stream, std::vector<float>& data) {
    const Tensor words = host_tensor(reinterpret_cast<std::int32_t*>(data.data()), 8);
    const Tensor numbers = host_tensor(data.data(), 8);
    group.broadcast(group.rank() == 0 ? words : numbers, 0, stream);
  });
  REQUIRE(holds(other_type[0], "32 bytes of i32"));
  const auto other_counts = run([](Group& group, Stream& stream, std::vector<float>& data) {
    const std::vector<std::int64_t> two{1, 1};
    const std::vector<std::int64_t> three{2, 1};
    const Tensor send = host_tensor(data.data(), 2);
    group.all_to_all(send, two, host_tensor(data.data() + 4, 3), three, stream);
  });
  REQUIRE(holds(other_counts[1], "sends 1 elements where 2 are expected"));
  const auto other_message = run([](Group& group, Stream& stream, std::vector<float>& data) {
    const Tensor mine = host_tensor(data.data(), 2 + group.rank());
    const Event event =
        group.rank() == 0 ? group.send(mine, 1, 0, stream) : group.receive(mine, 0, 0, stream);
    group.barrier(stream);
    Stream::wait_host(event, 0.01);
  });
  REQUIRE(holds(other_message[0] + other_message[1], "sends 8 bytes where 12 are expected"));
}

TEST_CASE("a group of which one is not a member is refused") {
  const std::string failure = failure_of_world(2, {}, [](World& world) {
    const std::vector<int> other{1 - world.rank()};
    world.group("other", other);
  });
  REQUIRE(holds(failure, "group 'other' does not hold rank"));
}

TEST_CASE("a group that two streams use at once is refused") {
  const auto failures = failures_of_ranks(2, {.deadline_seconds = 0.3}, [](World& world) {
    const auto group = world.everyone("dp");
    if (world.rank() == 1) return;
    Stream first(DeviceKind::cpu, "first", Stream::Mode::queued);
    Stream second(DeviceKind::cpu, "second", Stream::Mode::queued);
    group->barrier(first);
    group->barrier(second);
    try {
      second.synchronize();
    } catch (const Error&) {
      first.synchronize();
      throw;
    }
    first.synchronize();
  });
  REQUIRE_FALSE(failures[0].empty());
}

TEST_CASE("collectives and messages do not allocate after the first") {
  std::atomic<std::int64_t> allocated{-1};
  run_thread_world(2, {.deadline_seconds = 60}, [&](World& world) {
    const auto group = world.everyone("dp");
    Stream stream(DeviceKind::cpu, "comm", Stream::Mode::queued);
    std::vector<float> data(100000);
    std::vector<float> more(100000);
    const Tensor whole = host_tensor(data.data(), 100000);
    const Tensor other = host_tensor(more.data(), 100000);
    const std::vector<std::int64_t> counts{50000, 50000};
    const auto step = [&] {
      for (int i = 0; i < 20; ++i) {
        group->all_reduce(whole, stream);
        group->all_to_all(whole, counts, other, counts, stream);
        const Event sent = group->send(whole, 1 - world.rank(), 0, stream);
        const Event got = group->receive(other, 1 - world.rank(), 0, stream);
        stream.wait(sent);
        stream.wait(got);
        group->barrier(stream);
        stream.synchronize();
      }
    };
    step();
    const std::int64_t before = count_of_new();
    step();
    // Both ranks are past the barrier, so neither is still in its first round.
    if (world.rank() == 0) allocated = count_of_new() - before;
  });
  REQUIRE(allocated == 0);
}

TEST_CASE("more messages than there is room for wait their turn") {
  const auto failures = failures_of_ranks(2, {.deadline_seconds = 20}, [](World& world) {
    const auto group = world.everyone("pp");
    Stream stream(DeviceKind::cpu, "comm", Stream::Mode::run_inline);
    std::vector<std::int32_t> data(1000);
    Event last;
    for (std::int32_t i = 0; i < 1000; ++i) {
      auto& value = data[static_cast<std::size_t>(i)];
      if (world.rank() == 0) value = i;
      const Tensor one = host_tensor(&value, 1);
      last = world.rank() == 0 ? group->send(one, 1, 0, stream) : group->receive(one, 0, 0, stream);
    }
    Stream::wait_host(last, 20);
    group->barrier(stream);
    stream.synchronize();
    for (std::int32_t i = 0; i < 1000; ++i) {
      require(data[static_cast<std::size_t>(i)] == i, ExitCode::internal, "out of order");
    }
  });
  REQUIRE(failures == std::vector<std::string>(2));
}

TEST_CASE("the emulated wire takes at least its time") {
  using Clock = std::chrono::steady_clock;
  std::atomic<bool> slow_enough{true};
  const WorldOptions options{
      .deadline_seconds = 20, .wire_alpha_seconds = 0.01, .wire_beta_seconds_per_byte = 1e-6};
  run_thread_world(2, options, [&](World& world) {
    const auto group = world.everyone("dp");
    Stream stream(DeviceKind::cpu, "comm", Stream::Mode::queued);
    std::vector<float> data(2500);
    const Tensor whole = host_tensor(data.data(), 2500);
    const auto took = [&](Clock::time_point start) {
      return std::chrono::duration<double>(Clock::now() - start).count();
    };
    auto start = Clock::now();
    group->all_reduce(whole, stream);
    stream.synchronize();
    if (took(start) < 0.03) slow_enough = false;  // two messages, 10 kB in all
    start = Clock::now();
    Stream::wait_host(
        world.rank() == 0 ? group->send(whole, 1, 0, stream) : group->receive(whole, 0, 0, stream),
        20);
    if (took(start) < 0.02) slow_enough = false;
  });
  REQUIRE(slow_enough);
}

TEST_CASE("what a rank sends itself needs no wire") {
  using Clock = std::chrono::steady_clock;
  std::atomic<double> most = 0;
  std::atomic<double> least = 1e9;
  run_thread_world(
      2, {.deadline_seconds = 20, .wire_beta_seconds_per_byte = 1e-3}, [&](World& world) {
        const auto group = world.everyone("dp");
        Stream stream(DeviceKind::cpu, "comm", Stream::Mode::queued);
        std::vector<float> given(2020);
        std::vector<float> taken(2020);
        std::vector<std::int64_t> counts(2, 20);                // 80 bytes to the other: 0.08 s
        counts[static_cast<std::size_t>(world.rank())] = 2000;  // 8 s if it counted
        const auto start = Clock::now();
        group->all_to_all(host_tensor(given.data(), 2020), counts, host_tensor(taken.data(), 2020),
                          counts, stream);
        stream.synchronize();
        const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
        if (seconds > most) most = seconds;
        if (seconds < least) least = seconds;
      });
  CHECK(least >= 0.08);
  CHECK(most < 8);
}

/// Sets variables for one test and removes them again.
class Environment {
 public:
  void set(const char* name, const char* value) {
    setenv(name, value, 1);
    names_.push_back(name);
  }
  ~Environment() {
    for (const char* name : names_) unsetenv(name);
  }

 private:
  std::vector<const char*> names_;
};

TEST_CASE("the launcher is read from the environment") {
  Environment outside;
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE",
                           "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS"}) {
    unsetenv(name);
  }
  REQUIRE(launched_as().size == 1);
  REQUIRE(launched_as().launcher.empty());
  Environment environment;
  environment.set("SLURM_PROCID", "3");
  environment.set("SLURM_NTASKS", "4");
  REQUIRE(launched_as().rank == 3);
  REQUIRE(launched_as().size == 4);
  REQUIRE(launched_as().launcher == "Slurm");
  environment.set("SLURM_STEP_NUM_TASKS", "8");
  REQUIRE(launched_as().size == 8);
  environment.set("PMI_RANK", "1");
  environment.set("PMI_SIZE", "2");
  REQUIRE(launched_as().launcher == "MPICH");
  environment.set("OMPI_COMM_WORLD_RANK", "5");
  environment.set("OMPI_COMM_WORLD_SIZE", "6");
  REQUIRE(launched_as().launcher == "Open MPI");
  REQUIRE(launched_as().rank == 5);
  environment.set("OMPI_COMM_WORLD_RANK", "7");  // not below the size
  REQUIRE(launched_as().launcher == "MPICH");
  environment.set("PMI_SIZE", "two");
  REQUIRE(launched_as().launcher == "Slurm");
}

}  // namespace
}  // namespace trainctl
