#include "product_times.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <utility>

namespace cuda_on_host {

namespace {

struct Times {
  bool on = false;
  std::array<float, proposed_algorithms> milliseconds{};
  std::map<int, std::array<long, proposed_algorithms>> counts;  // by device
  std::map<std::pair<int, int>, long> targets;                  // by device and multiprocessors

  Times() {
    const char* value = std::getenv("CUDA_ON_HOST_PRODUCT_TIMES");
    auto& [first, second, third, fourth] = milliseconds;
    if (value == nullptr) return;
    on = std::sscanf(value, "%f,%f,%f,%f", &first, &second, &third, &fourth) == 4;
    if (on) return;
    std::fprintf(stderr, "CUDA_ON_HOST_PRODUCT_TIMES needs four numbers, not '%s'\n", value);
    std::abort();
  }
  ~Times() {
    if (!on) return;
    for (const auto& [device, count] : counts) {
      std::fprintf(stderr, "products of device %d by proposal: %ld %ld %ld %ld\n", device, count[0],
                   count[1], count[2], count[3]);
    }
    for (const auto& [target, count] : targets) {
      std::fprintf(stderr, "products of device %d for %d multiprocessors: %ld\n", target.first,
                   target.second, count);
    }
  }
};

Times& times() {
  static Times of_process;
  return of_process;
}

}  // namespace

bool product_times() { return times().on; }

float note_product(int device, std::uint64_t proposal, int multiprocessors) {
  if (!times().on) return 0;
  ++times().counts[device][proposal];
  ++times().targets[{device, multiprocessors}];
  return times().milliseconds[proposal];
}

std::size_t version_on_host() {
  const char* value = std::getenv("CUDA_ON_HOST_CUBLASLT");
  return value == nullptr ? 130000 : std::strtoul(value, nullptr, 10);
}

}  // namespace cuda_on_host
