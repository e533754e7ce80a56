#include "bench/figures.h"

#include <algorithm>
#include <cstdio>
#include <iterator>

#include "formats/print/text.h"

namespace trainctl {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

std::string Range::of_pairs(const std::function<std::string(double)>& text) const {
  return text(median) + "  (" + text(low) + " .. " + text(high) + ", " +
         grouped_count(count, "pair") + ")";
}

std::string Range::of_pairs(const char* format) const {
  return of_pairs([format](double value) { return printed(format, value); });
}

Range range_of(const std::vector<double>& values) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return {.median = median(values), .low = *low, .high = *high, .count = std::ssize(values)};
}

std::vector<double> ratios_of(const std::vector<double>& above, const std::vector<double>& below) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < above.size(); ++i) ratios.push_back(above[i] / below[i]);
  return ratios;
}

void say_pair(int pair, int pairs, const Timed& one, const Timed& other) {
  std::fprintf(stderr, "pair %d/%d: %s %.4g s, %s %.4g s\n", pair + 1, pairs, one.what, one.seconds,
               other.what, other.seconds);
}

void begin_part(const std::string& what) { std::fprintf(stderr, "%s ...\n", what.c_str()); }

const char* verdict(bool kept) { return kept ? "kept" : "MISSED"; }

}  // namespace trainctl
