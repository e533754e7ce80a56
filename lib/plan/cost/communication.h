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
  /// `bytes` in total.
  void add_total(CollectiveUse call, std::int64_t count, std::int64_t bytes);
  /// Adds a declared exchange of a layer `count` times: an exchange in F or, with `back`, in B, by
  /// the collectives of plan/tables/layout.h; in chunks of the residual stream's rows if `chunked`.
  void exchange(const Exchange& one, bool back, bool chunked, std::int64_t count,
                UnitKind unit = UnitKind::block);
  void call(const LayerCall& one, std::int64_t count, UnitKind unit = UnitKind::block);

  const Plan& plan() const { return plan_; }
  const StagePlan& stage() const { return stage_; }
  std::int64_t gradient() const { return size_of(plan_.gradient.dtype); }
  /// The elements of a micro-batch's residual stream, before it is split over tp.
  std::int64_t stream_elements() const { return plan_.local.tokens * plan_.model.hidden; }
  bool holds(int unit) const { return trainctl::holds(stage_.units, unit); }
  std::vector<CollectiveUse> take() { return std::move(uses_); }

 private:
  std::int64_t ranks_of(GroupKind group) const;

  const Plan& plan_;
  const StagePlan& stage_;
  std::vector<CollectiveUse> uses_;
};

/// How often the parts of one block run on a rank, and what of it R gathers again.
struct BlockPasses {
  std::int64_t once = 0;                    // F, B and W
  std::int64_t repeated[block_parts] = {};  // R that makes the part
  std::int64_t gathered[block_parts] = {};  // whose gathered input of the part is kept until W
  std::int64_t sliced = 0;                  // R that gathers the block's input

  /// R of `count` micro-batches that are kept in this form.
  void add_repeats(const BlockForm& form, std::int64_t count);
  BlockPasses without_repeats() const;
  /// How often the part is made: in F and R.
  std::int64_t of(BlockPart part) const { return once + repeated[static_cast<int>(part)]; }
  /// How often F and R gather its input, and W.
  std::int64_t gathers(BlockPart part) const {
    const int number = static_cast<int>(part);
    return once + std::max<std::int64_t>(0, repeated[number] - gathered[number]);
  }
  std::int64_t weight_gathers(BlockPart part) const {
    return std::max<std::int64_t>(0, once - gathered[static_cast<int>(part)]);
  }
};
/// The passes of a step through the block `unit`.
BlockPasses passes_of(const Plan& plan, const StagePlan& stage, int unit);
/// Micro-batches of a step that keep more of `unit` than the others.
std::int64_t count_partial(const StagePlan& stage, int unit);

/// Adds the collectives that these passes through the block `unit` need inside its layers.
void add_block(UseList& list, int unit, const BlockPasses& passes);

/// Whether the optimizer makes the call, after the passes.
inline bool in_optimizer(const CollectiveUse& use) {
  return use.purpose == TrafficPurpose::scalars || use.cargo == Cargo::matrices;
}

}  // namespace trainctl
