#include "bench/figures.h"

#include <algorithm>
#include <cstdio>
#include <iterator>

#include "device/cuda_device.h"
#include "formats/print/text.h"

namespace trainctl {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

std::string spread_of_pairs(const std::vector<double>& values,
                            const std::function<std::string(double)>& text) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return text(median(values)) + "  (" + text(*low) + " .. " + text(*high) + ", " +
         grouped_count(std::ssize(values), "pair") + ")";
}

std::string spread_of_pairs(const std::vector<double>& values, const char* format) {
  return spread_of_pairs(values, [format](double value) { return printed(format, value); });
}

std::vector<double> ratios_of(const std::vector<double>& above, const std::vector<double>& below) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < above.size(); ++i) ratios.push_back(above[i] / below[i]);
  return ratios;
}

void say_pair(int pair, int pairs, const char* one, double one_seconds, const char* other,
              double other_seconds) {
  std::fprintf(stderr, "pair %d/%d: %s %.4g s, %s %.4g s\n", pair + 1, pairs, one, one_seconds,
               other, other_seconds);
}

void begin_part(const std::string& what) { std::fprintf(stderr, "%s ...\n", what.c_str()); }

const char* verdict(bool kept) { return kept ? "kept" : "MISSED"; }

WorkClock::WorkClock(Stream& stream) : stream_(stream) {
  if (stream.device() == DeviceKind::cpu) return;
  before_ = std::make_unique<LargeCopy>(stream.device(), bytes_beyond_cache(stream.device()));
}

void WorkClock::begin() {
  events_.clear();
  times_.clear();
  marks_ = 0;
  if (before_) before_->enqueue(stream_);
  mark();
}

void WorkClock::lap() { mark(); }

void WorkClock::mark() {
  ++marks_;
  if (before_) {
    events_.set(stream_);
  } else {
    times_.push_back(Clock::now());
  }
}

std::vector<double> WorkClock::laps() {
  if (before_) stream_.synchronize();
  const auto at = [&](std::size_t mark) {
    if (before_) return events_.seconds(mark);
    return std::chrono::duration<double>(times_[mark] - times_[0]).count();
  };
  std::vector<double> seconds;
  for (std::size_t mark = 1; mark < marks_; ++mark) seconds.push_back(at(mark) - at(mark - 1));
  return seconds;
}

namespace {

constexpr int tries = 4;

/// A product to measure the rate with: on a CPU of a size that uses the same kernels as larger
/// ones; on a device one long enough to time, and as fast as larger ones.
std::unique_ptr<SquareProduct> suitable_product(const OpContext& ops, DType compute,
                                                WorkClock& clock) {
  if (ops.stream->device() == DeviceKind::cpu) {
    return std::make_unique<SquareProduct>(ops, 768, compute);
  }
  constexpr double long_enough = 1e-3;
  constexpr std::int64_t largest = 16384;
  for (std::int64_t n = 64;; n *= 2) {
    auto product = std::make_unique<SquareProduct>(ops, n, compute);
    product->run(ops);
    const double seconds = clock.seconds([&] { product->enqueue(ops); });
    if (seconds > long_enough || n == largest) return product;
  }
}

}  // namespace

MachineLimits::MachineLimits(const OpContext& ops, DType compute)
    : ops_(ops),
      clock_(*ops.stream),
      product_(suitable_product(ops, compute, clock_)),
      copy_(ops.stream->device(), bytes_beyond_cache(ops.stream->device())) {}

void MachineLimits::measure() {
  for (int i = 0; i < tries; ++i) {
    const double product = clock_.seconds([&] { product_->enqueue(ops_); });
    products_ = std::max(products_, product_->flops() / product);
    const double copy = clock_.seconds([&] { copy_.enqueue(*ops_.stream); });
    copies_ = std::max(copies_, copy_.bytes() / copy);
  }
}

}  // namespace trainctl
