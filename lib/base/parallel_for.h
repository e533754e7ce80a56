// The only code that uses several cores inside a rank. Waiting threads spin briefly and then sleep,
// which OpenMP allows only by environment variables set before the program starts; oneDNN gets one
// thread.
#pragma once

#include <cstdint>

namespace trainctl {

/// Sets the number of threads that parallel_for uses when called from this thread. Each rank's
/// thread sets it once, from the plan, before its first op; new threads start with 1.
void set_thread_count(int count);
int thread_count();

namespace detail {
/// Calls body(context, worker, workers) once on each of `workers` threads and returns when all
/// calls have ended. The body must not throw.
void run_workers(int workers, void (*body)(void*, int, int), void* context);
}  // namespace detail

/// Calls body(begin, end) on disjoint ranges that cover [0, count): the split depends on `count`,
/// `grain` (the smallest range worth a thread) and thread_count() only. Does not allocate. The body
/// must not throw.
template <class Body>
void parallel_for(std::int64_t count, std::int64_t grain, Body&& body) {
  if (count <= 0) return;
  const std::int64_t most = (count + grain - 1) / grain;
  const int workers = most < thread_count() ? static_cast<int>(most) : thread_count();
  if (workers <= 1) {
    body(std::int64_t{0}, count);
    return;
  }
  auto part = [&](int worker, int total) {
    const std::int64_t begin = count * worker / total;
    const std::int64_t end = count * (worker + 1) / total;
    if (begin < end) body(begin, end);
  };
  detail::run_workers(
      workers,
      [](void* context, int worker, int total) {
        (*static_cast<decltype(part)*>(context))(worker, total);
      },
      &part);
}

}  // namespace trainctl
