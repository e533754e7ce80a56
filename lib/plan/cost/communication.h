// Collects what one rank of a stage sends in a step; for communication.cpp and the prices of
// blocks. Bytes count whole tensors: the result of an all-gather, the input of a reduce-scatter.
#pragma once

#include <algorithm>
#include <vector>

#include "plan/model/declaration.h"
#include "plan/plan.h"
#include "plan/rules/resolve.h"

namespace trainctl {

class UseList {
 public:
  /// Collects the collectives of a rank of `stage`, one of plan.stages.
  UseList(const Plan& plan, const StagePlan& stage) : plan_(plan), stage_(stage) {}

  /// Adds `count` calls of `bytes` each; ignored for a group of one rank. `call` says the rest;
  /// its ranks are those of the group's kind where it says 0.
  void add(const CollectiveUse& call, std::int64_t count, std::int64_t bytes) {
    add_total(call, count, count * bytes);
  }
  /// Adds `count` calls with `bytes` in total.
  void add_total(CollectiveUse call, std::int64_t count, std::int64_t bytes);
  /// Adds a layer's exchange `count` times, in F or, with `back`, in B, as the collective of
  /// plan/tables/layout.h. If `chunked`, it is cut into chunks of the residual stream's rows.
  void exchange(const Exchange& one, bool back, bool chunked, std::int64_t count,
                UnitKind unit = UnitKind::block);
  void call(const LayerCall& one, std::int64_t count, UnitKind unit = UnitKind::block);

  const Plan& plan() const { return plan_; }
  const StagePlan& stage() const { return stage_; }
  std::int64_t gradient() const { return size_of(plan_.gradient.dtype); }
  /// Number of elements of a micro-batch's residual stream, before it is split over tp.
  std::int64_t stream_elements() const { return plan_.local.tokens * plan_.model.hidden; }
  bool holds(int unit) const { return trainctl::holds(stage_.units, unit); }
  std::vector<CollectiveUse> take() { return std::move(uses_); }

 private:
  std::int64_t ranks_of(GroupKind group) const;

  const Plan& plan_;
  const StagePlan& stage_;
  std::vector<CollectiveUse> uses_;
};

/// How often the passes F, B, W and R (recomputation) of one block run on a rank in a step.
struct BlockPasses {
  std::int64_t once = 0;                    // number of F, B and W each
  std::int64_t repeated[block_parts] = {};  // by part: number of R rows that recompute it
  std::int64_t gathered[block_parts] = {};  // by part: micro-batches with a kept gathered input
  std::int64_t sliced = 0;                  // number of R rows that gather the block's input

  /// Counts the R rows of `count` micro-batches that are kept in `form`.
  void add_repeats(const BlockForm& form, std::int64_t count);
  BlockPasses without_repeats() const;
  /// How often F and R run the part.
  std::int64_t of(BlockPart part) const { return once + repeated[static_cast<int>(part)]; }
  /// How often F and R gather the input of the part; weight_gathers(): how often W does.
  std::int64_t gathers(BlockPart part) const {
    const int number = static_cast<int>(part);
    return once + std::max<std::int64_t>(0, repeated[number] - gathered[number]);
  }
  std::int64_t weight_gathers(BlockPart part) const {
    return std::max<std::int64_t>(0, once - gathered[static_cast<int>(part)]);
  }
};
/// The passes of a step through the block `unit` on a rank of `stage`.
BlockPasses passes_of(const Plan& plan, const StagePlan& stage, int unit);
/// The number of micro-batches that keep more activations of `unit` than the others.
std::int64_t count_partial(const StagePlan& stage, int unit);

/// Adds the collectives inside the layers of block `unit` for these passes.
void add_block(UseList& list, int unit, const BlockPasses& passes);

/// Whether the call is part of the optimizer, after all passes.
inline bool in_optimizer(const CollectiveUse& use) {
  return use.purpose == TrafficPurpose::scalars || use.cargo == Cargo::matrices;
}

}  // namespace trainctl
