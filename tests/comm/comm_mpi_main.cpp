// Run under mpirun: the shared body over MPI, must be bit-identical to threads, and what happens
// when a rank is late, stopped, gone or calls something else. Modes: body, late, stop, kill,
// message, calls, unchecked, error, unwinding; a second argument makes the sums large.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

#include "base/error.h"
#include "comm/collectives_body.h"
#include "comm/mpi/mpi_calls.h"

namespace trainctl {
namespace {

std::uint64_t hash_of_threads(int size) {
  std::uint64_t hash = 0;
  run_thread_world(size, {.deadline_seconds = 60}, [&](World& world) {
    const BodyReport report = run_collectives_body(world, true);
    const std::uint64_t combined = combined_hash(world, report.hash);
    if (world.rank() == 0) hash = combined;
  });
  return hash;
}

int run_body(World& world) {
  const BodyReport report = run_collectives_body(world, true);
  for (const std::string& failure : report.failures) std::printf("FAILED: %s\n", failure.c_str());
  const std::uint64_t hash = combined_hash(world, report.hash);
  int result = report.failures.empty() ? 0 : 1;
  if (world.rank() == 0) {
    const std::uint64_t expected = hash_of_threads(world.size());
    std::printf("hash over MPI %016lx, threads %016lx\n", hash, expected);
    if (hash != expected) result = 1;
  }
  return result;
}

[[noreturn]] void sleep_for_ever() {
  while (true) pause();
}

/// The last rank leaves the others alone in the second sum; they name it and end the job.
int run_without_last(World& world, const std::string& mode, bool large) {
  const auto group = world.everyone("dp");
  Stream stream(DeviceKind::cpu, "comm", Stream::Mode::queued);
  std::vector<float> data(large ? 3000000 : 10, 1.0F);
  const Tensor tensor = host_tensor(data.data(), std::ssize(data));
  group->all_reduce(tensor, stream);
  stream.synchronize();
  const bool last = world.rank() == world.size() - 1;
  if (last && mode == "late") sleep_for_ever();
  if (last && mode == "stop") kill(getpid(), SIGSTOP);
  if (last && mode == "kill") kill(getpid(), SIGKILL);
  if (last && mode == "message") sleep_for_ever();
  try {
    if (mode == "message") {
      Stream::wait_host(group->receive(tensor, world.size() - 1, 0, stream), 1e9);
    } else {
      group->all_reduce(tensor, stream);
      stream.synchronize();
    }
  } catch (const Error& error) {
    std::printf("survivor: %s\n", error.what());
    std::fflush(stdout);
    // The others have the same deadline: let them speak too.
    std::this_thread::sleep_for(std::chrono::seconds(2));
    world.abort(static_cast<int>(error.code()));
  }
  return 0;
}

/// The last rank calls another operation than the others.
int run_other_calls(World& world) {
  const auto group = world.everyone("dp");
  Stream stream(DeviceKind::cpu, "comm", Stream::Mode::run_inline);
  std::vector<float> data(12, 1.0F);
  group->all_reduce(host_tensor(data.data(), 12), stream);
  if (world.rank() == world.size() - 1) {
    group->barrier(stream);
  } else {
    group->all_reduce(host_tensor(data.data(), 12), stream);
  }
  stream.synchronize();
  return 0;
}

/// A call that MPI refuses becomes an exception with its text.
int run_error() {
  try {
    int value = 0;
    MPI_CHECK(MPI_Send(&value, 1, MPI_INT, 12345, 0, MPI_COMM_WORLD));
  } catch (const Error& error) {
    std::printf("refused: %s\n", error.what());
    return error.code() == ExitCode::peer ? 0 : 1;
  }
  return 1;
}

/// An exception leaves the world behind: the process must end without waiting for the others.
int run_unwinding(World& world) {
  const auto group = world.everyone("dp");
  if (world.rank() == 0) throw Error(ExitCode::diverged, "the loss is NaN");
  sleep_for_ever();
}

int run(const std::string& mode, bool large) {
  const LaunchedAs launched = launched_as();
  if (mode == "absent" && launched.rank == launched.size - 1) sleep_for_ever();
  try {
    const auto world = mpi_world({.deadline_seconds = mode == "body" ? 60.0 : 1.0,
                                  .check_collectives = mode != "unchecked"});
    if (mode == "body") return run_body(*world);
    if (mode == "calls" || mode == "unchecked") return run_other_calls(*world);
    if (mode == "error") return run_error();
    if (mode == "unwinding") return run_unwinding(*world);
    return run_without_last(*world, mode, large);
  } catch (const Error& error) {
    std::printf("%s\n", error.what());
    return static_cast<int>(error.code());
  }
}

}  // namespace
}  // namespace trainctl

int main(int count, char** arguments) {
  return trainctl::run(count > 1 ? arguments[1] : "body", count > 2);
}
