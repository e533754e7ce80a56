// Lower bounds of the seconds of a step and the bytes of a rank, before a plan of the layout is
// made.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "plan/cost/device_prices.h"
#include "plan/cost/forms.h"
#include "plan/cost/min_needs.h"
#include "plan/prices/machine.h"
#include "plan/tables/stage_map.h"
#include "run/layouts/search_layouts.h"

namespace trainctl {

/// A lower bound of the step, the larger of two times. First, all operations of the model at the
/// highest rate of the device, over all ranks. Second, the greatest time of a stage: forward passes
/// of the stages before it, the passes of all its micro-batches by the prices of its units, and
/// backward passes of the stages before it. If weight gradients (W) are computed apart, these last
/// passes either exclude W, or all passes count and no way back.
class ArrangementBound {
 public:
  /// `machine` must outlive this object.
  ArrangementBound(const ArrangementSearch& search, const FreeKeys& free, const Machine& machine);
  double seconds(const RunArrangement& layout);
  /// Whether a rank's planned memory is all on its device; with offloading, some is on the host.
  bool counts_states() const { return !search_.config.offload.enable; }
  /// A lower bound of the bytes of parameters, gradients and optimizer state on the fullest rank; 0
  /// if counts_states() is false.
  std::int64_t state_bytes(const RunArrangement& layout);

  /// Closer bounds of seconds and bytes, with the exchanges between replicas of a stage and the
  /// parts that these exchanges divide. Drafts of some layers and of one more on a stage's ranks
  /// give both. Sums and gathers share one queue, and slow the work that they overlap. If states
  /// and the activations kept by the schedule take more than `limit` bytes on a stage, its layers
  /// recompute the cheapest parts that save enough, where a part of a layer may have another form
  /// than the rest. If no form saves enough, `bytes` are above the limit. Nothing else is set.
  LeastNeeds closer(const RunArrangement& layout, std::int64_t limit);

 private:
  /// Prices of one unit on a rank, for one micro-batch.
  struct Unit {
    double forward = 0, input = 0, weight = 0;  // seconds of its passes
    double elements = 0;                        // number of its parameters' elements
    double passes() const { return forward + input + weight; }
    Unit& operator+=(const Unit& other);
  };
  /// Prices of the units of a model on a rank.
  struct Units {
    std::vector<Unit> before{};  // [unit] sums over earlier units; last: sum over all
    double weight = 0, gradient = 0,
           optimizer = 0;  // bytes per element, without sharding
    Unit of(const UnitRange& chunk) const;
    Unit first_layer{};
    /// The forms of a layer that no mixture of two other forms beats; empty if layers differ or
    /// their forms are unknown.
    std::vector<FormPoint> forms{};
  };
  struct Repeats;
  /// The share of one layer in the time and memory of a stage's rank, with one micro-batch.
  struct Shares {
    double bytes = 0;
    double sums = 0, gathers = 0;  // seconds of gradient sums and parameter gathers
  };
  struct Alone;
  std::optional<Alone> draft_of(Config config, std::int64_t ranks) const;
  /// The level of the parallel optimizer. If the search does not choose it, the highest level, so
  /// that only state which no level shards counts in full.
  int max_level(const RunArrangement& layout) const {
    constexpr int highest = 3;
    return free_.optimizer ? layout.optimizer_level : highest;
  }
  static double bytes_of_layer(const StagePlan& stage, const Units& units, int level);
  std::optional<Shares> shares_of(const RunArrangement& alone, std::int64_t layers);
  const std::optional<Shares>& layer_shares(const RunArrangement& layout);
  double batches_of(const RunArrangement& layout) const;
  double largest_stage(const RunArrangement& layout);  // number of layers of the largest stage
  /// Whether F and B (with W) alternate until the end of a step.
  bool in_turns(const RunArrangement& layout) const;
  double of_stages(const RunArrangement& layout, const Repeats& repeats);
  Repeats repeats_of(const RunArrangement& layout, double layer_bytes, std::int64_t limit);
  /// The micro-batches that each chunk of each stage keeps when the stage keeps most.
  const std::vector<std::vector<std::int64_t>>& kept_of(const RunArrangement& layout);
  const StageMap& map_of(const RunArrangement& layout);
  std::int64_t layers_at(const StageMap& map, int stage, int chunk) const {
    return count_blocks(map.at(stage, chunk), search_.config.model.num_layers);
  }
  const Units* units_of(const RunArrangement& layout);
  void add_units(const Plan& plan, const StagePrices& prices, Units& units) const;
  std::vector<FormPoint> forms_of(const Plan& plan, const StagePrices& prices) const;

  const ArrangementSearch& search_;
  const FreeKeys free_;
  const Machine& machine_;
  bool alike_ = true;  // whether all layers cost the same
  double ideal_ = 0;   // seconds of all operations of the model, without any other work
  double apart_ = 1;   // factor of a step's time that grows with the number of hosts
  std::map<RunArrangement, StageMap> maps_;
  std::map<RunArrangement, std::optional<Units>> units_;
  std::map<RunArrangement, std::optional<Shares>> shares_;
  std::map<std::pair<RunArrangement, std::int64_t>, std::vector<std::vector<std::int64_t>>> kept_;
};

}  // namespace trainctl
