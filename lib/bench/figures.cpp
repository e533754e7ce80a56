#include "bench/figures.h"

#include <algorithm>
#include <cstdio>

namespace trainctl {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

void begin_part(const std::string& what) { std::fprintf(stderr, "%s ...\n", what.c_str()); }

const char* verdict(bool kept) { return kept ? "kept" : "MISSED"; }

}  // namespace trainctl
