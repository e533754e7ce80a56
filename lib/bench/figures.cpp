#include "bench/figures.h"

#include <algorithm>

namespace trainctl {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

const char* verdict(bool kept) { return kept ? "kept" : "MISSED"; }

}  // namespace trainctl
