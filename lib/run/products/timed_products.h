// parallel.product_algorithms: timed. Rank 0 times the products of all ranks once, after the first
// step of a run. Every rank computes them by the algorithms that it found, as do sessions that
// resume the run: product_algorithms.json is in its directory and its checkpoints
// (docs/checkpoints.md).
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "comm/world.h"
#include "config/schema/config.h"
#include "ops/cuda_libraries.h"
#include "plan/plan.h"

namespace trainctl {

/// Whose algorithms they are: another library or device may not have them, or not as the fastest.
struct ProductSite {
  std::int64_t library = 0;  // CudaProducts::version
  std::string device;        // name, compute capability and multiprocessors
  std::string to_string() const;
  friend bool operator==(const ProductSite&, const ProductSite&) = default;
};

class TimedProducts {
 public:
  /// Rank 0's configuration holds for all. On the CPU nothing is ever timed. Collective, as are
  /// load() and time().
  TimedProducts(const Config& config, const Plan& plan, const World& world, Group& everyone);

  /// Takes what is stored with the checkpoint. If that is damaged, or of another library or device,
  /// a warning says so, and time() does all again. `run`: the directory of the run.
  void load(const std::filesystem::path& checkpoint, const std::filesystem::path& run,
            const Fence& fence);
  /// Before a step whose products are timed.
  void note();
  /// After it: times those of any rank that have no stored algorithm, on memory that is allocated
  /// for this. Where there is not enough of it a warning says so, and proposals stay. `run`: the
  /// directory that gets their file; empty: none.
  void time(const OpContext& context, const std::filesystem::path& run, const Fence& fence);
  /// product_algorithms.json, as checkpoints store it, or empty.
  const std::string& text() const { return text_; }

 private:
  using Calls = std::map<ProductKey, std::int64_t>;
  bool first() const { return everyone_.rank() == 0; }
  void agree(std::string text, const std::filesystem::path& run, const Fence& fence);
  std::string stored(const std::filesystem::path& file) const;
  std::string timed(const OpContext& context, const Calls& calls) const;

  Group& everyone_;
  bool on_ = false;
  ProductSite site_;
  std::vector<ProductAlgorithm> algorithms_;
  std::string text_;
};

}  // namespace trainctl
