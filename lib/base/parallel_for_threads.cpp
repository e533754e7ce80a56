#include <thread>
#include <vector>

#include "base/parallel_for.h"

namespace trainctl {

namespace {
thread_local int threads = 1;
}

void set_thread_count(int count) { threads = count; }

int thread_count() { return threads; }

void detail::run_workers(int workers, void (*body)(void*, int, int), void* context) {
  std::vector<std::jthread> others;
  others.reserve(static_cast<std::size_t>(workers - 1));
  for (int worker = 1; worker < workers; ++worker) {
    others.emplace_back([=] { body(context, worker, workers); });
  }
  body(context, 0, workers);
}

}  // namespace trainctl
