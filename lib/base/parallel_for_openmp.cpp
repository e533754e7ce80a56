#include <omp.h>

#include "base/parallel_for.h"

namespace trainctl {

namespace {
thread_local int threads = 1;
}

void set_thread_count(int count) {
  threads = count;
  omp_set_num_threads(count);
}

int thread_count() { return threads; }

void detail::run_workers(int workers, void (*body)(void*, int, int), void* context) {
#pragma omp parallel num_threads(workers)
  body(context, omp_get_thread_num(), omp_get_num_threads());
}

}  // namespace trainctl
