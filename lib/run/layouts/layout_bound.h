// Seconds of a step and bytes of a rank that a layout takes at least, before any plan of it is
// made.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "plan/cost/step_time.h"
#include "plan/prices/machine.h"
#include "run/layouts/search_layouts.h"

namespace trainctl {

/// The largest of two sums. All operations of the model at the highest rate of the device, over all
/// ranks. And where all layers are alike, for each stage: the forward passes of the stages before
/// it, the passes of all its micro-batches as they are priced, and the backward passes of the
/// stages before it.
class LayoutBound {
 public:
  /// `machine` must outlive it.
  LayoutBound(const LayoutSearch& search, const FreeKeys& free, const Machine& machine);
  double seconds(const RankLayout& layout);
  /// Of the fullest rank, for parameters, gradients and optimizer. 0 where layers are not alike.
  std::int64_t state_bytes(const RankLayout& layout);

  /// The same with what replicas of a stage exchange and divide, by drafts of some layers and of
  /// one more on the ranks of a stage. Sums and gathers are in one queue, and slow what is computed
  /// beside them.
  struct Closer {
    double seconds = 0;
    std::int64_t bytes = 0;
  };
  Closer closer(const RankLayout& layout);

 private:
  /// What a rank has of the units of a model.
  struct Units {
    UnitTimes times;
    double layer = 0, embedding = 0, head = 0;  // elements of parameters
    double weight = 0, gradient = 0,
           optimizer = 0;  // bytes of an element, where nothing is divided
  };
  /// What a layer adds to a rank of a stage with one micro-batch.
  struct Shares {
    double bytes = 0;
    double sums = 0, gathers = 0;  // seconds
  };
  static double bytes_of_layer(const StagePlan& stage, const Units& units, int level);
  std::optional<Shares> shares_of(const RankLayout& alone, std::int64_t layers);
  const std::optional<Shares>& layer_shares(const RankLayout& layout);
  double batches_of(const RankLayout& layout) const;
  double largest_stage(const RankLayout& layout) const;  // layers
  double of_stages(const RankLayout& layout);
  const Units* units_of(const RankLayout& layout);

  const LayoutSearch& search_;
  const FreeKeys free_;
  const Machine& machine_;
  bool alike_ = false;     // all layers
  bool in_turns_ = false;  // F and B end a step in turns, W with B
  bool straight_ = false;  // the embedding lies on the first stage, the head on the last one
  double ideal_ = 0;       // seconds of all operations, nothing else
  double apart_ = 1;       // what the number of hosts makes of a step
  std::map<RankLayout, std::optional<Units>> units_;
  std::map<RankLayout, std::optional<Shares>> shares_;
};

}  // namespace trainctl
