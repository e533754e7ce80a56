#include "device/stream_cuda.h"

#include <cuda_runtime_api.h>

#include <chrono>
#include <string>
#include <thread>

#include "base/error.h"
#include "device/cuda_check.h"
#include "device/cuda_queue.h"
#include "device/patience.h"
#include "device/wait_pace.h"

namespace trainctl {
namespace {

// The mode is not asked: a CUDA stream is always queued.
void* create(const char* name, bool) { return new CudaQueue(name); }

void destroy(void* queue) { delete &queue_of(queue); }

void enqueue(void* queue, const Task&) {
  throw Error(ExitCode::unavailable, "[stream " + queue_of(queue).name() +
                                         "] host tasks run on CPU streams, not on CUDA ones");
}

void copy(void* queue, void* to, const void* from, std::int64_t bytes) {
  const auto count = static_cast<std::size_t>(bytes);
  CUDA_CHECK(cudaMemcpyAsync(to, from, count, cudaMemcpyDefault, queue_of(queue).stream()));
}

void zero(void* queue, void* to, std::int64_t bytes) {
  CUDA_CHECK(cudaMemsetAsync(to, 0, static_cast<std::size_t>(bytes), queue_of(queue).stream()));
}

std::uint64_t record(void* queue) { return queue_of(queue).record(); }

void wait(void* queue, void* other, std::uint64_t ticket) {
  queue_of(other).hold(queue_of(queue).stream(), ticket);
}

bool reached(void* queue, std::uint64_t ticket) { return queue_of(queue).reached(ticket); }

void sleep(double seconds) {
  if (seconds <= 0) return std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

/// Asks again and again, so that a deadline can be kept.
bool wait_host(void* queue, std::uint64_t ticket, double seconds) {
  CudaQueue& waited_for = queue_of(queue);
  Patience patience(seconds);
  WaitPace pace = waited_for.pace();
  const bool ended = wait_at_pace(
      pace, ticket, patience, [&] { return waited_for.reached(ticket); }, sleep);
  waited_for.set_pace(pace);
  return ended;
}

void* native(void* queue) { return queue_of(queue).stream(); }

}  // namespace

const StreamApi cuda_streams{.create = create,
                             .destroy = destroy,
                             .enqueue = enqueue,
                             .copy = copy,
                             .zero = zero,
                             .record = record,
                             .wait = wait,
                             .wait_host = wait_host,
                             .reached = reached,
                             .native = native};

}  // namespace trainctl
