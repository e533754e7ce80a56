// parallel.product_algorithms: timed. After the first step of a run, rank 0 once times the
// algorithms for the matrix products of all ranks. Every rank then uses the fastest ones, and so do
// sessions that resume the run: product_algorithms.json is in the directory of the run and in its
// checkpoints (docs/checkpoints.md).
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

class TimedProducts {
 public:
  /// The setting of rank 0's configuration applies to all ranks. Nothing is timed on the CPU.
  /// Collective, as are load() and time().
  TimedProducts(const Config& config, const Plan& plan, const World& world, Group& everyone);

  /// Uses the algorithms stored with the checkpoint. If the file is damaged, or is for another
  /// library or device, a warning is logged, and time() times all products. `run`: the directory of
  /// the run.
  void load(const std::filesystem::path& checkpoint, const std::filesystem::path& run,
            const Fence& fence);
  /// Starts to note matrix products, before a step whose products are timed.
  void note();
  /// After that step, times the noted products of all ranks that have no stored algorithm, in
  /// memory allocated for this. If memory is short, logs a warning and keeps the library's
  /// proposals. Writes the file to the directory `run` unless that is empty.
  void time(const OpContext& context, const std::filesystem::path& run, const Fence& fence);
  /// The text of product_algorithms.json, as checkpoints store it; may be empty.
  const std::string& text() const { return text_; }

 private:
  using Calls = std::map<ProductKey, std::int64_t>;
  bool first() const { return everyone_.rank() == 0; }
  void agree(std::string text, const std::filesystem::path& run, const Fence& fence);
  std::string stored(const std::filesystem::path& file) const;
  std::string timed(const OpContext& context, const Calls& calls) const;

  Group& everyone_;
  bool on_ = false;
  // The library's version and its device; on others algorithms may be missing or slower.
  std::int64_t library_ = 0;
  std::string device_;  // name, compute capability and multiprocessors
  std::vector<ProductAlgorithm> algorithms_;
  std::string text_;
};

}  // namespace trainctl
