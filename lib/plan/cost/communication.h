// Collects what one rank of a stage sends in a step; internal to communication*.cpp. Bytes count
// whole tensors: the result of an all-gather, the input of a reduce-scatter.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plan/plan.h"

namespace trainctl {

class UseList {
 public:
  struct Call {
    std::string operation, what, purpose, group;  // of CollectiveUse
    std::int64_t ranks = 0;                       // 0: as many as the group's kind has
    UnitKind unit = UnitKind::block;              // purpose layers
    bool at_most = false;                         // of CollectiveUse
  };

  UseList(const Plan& plan, std::int64_t rank, const Config& config)
      : plan_(plan), stage_(plan.stage_of(rank)), rank_(rank), config_(config) {}

  /// `count` calls of `bytes` each; ignored for a group of one rank.
  void add(const Call& call, std::int64_t count, std::int64_t bytes) {
    add_total(call, count, count * bytes);
  }
  /// `bytes` in total.
  void add_total(const Call& call, std::int64_t count, std::int64_t bytes);
  /// What a region of layers exchanges over tp, by the collectives of plan/tables/layout.h.
  struct Region {
    std::string what;
    UnitKind unit = UnitKind::block;
    std::int64_t elements = 0;  // of the tensor
    std::int64_t bytes = 0;     // of each; 0: as the residual stream
    bool chunked = false;       // in chunks of the residual stream's rows
  };
  void reshard(Layout from, Layout to, const Region& region, std::int64_t count);

  const Plan& plan() const { return plan_; }
  const StagePlan& stage() const { return stage_; }
  std::int64_t rank() const { return rank_; }
  const Config& config() const { return config_; }
  std::int64_t element() const { return size_of(plan_.compute); }
  std::int64_t gradient() const { return size_of(plan_.gradient.dtype); }
  /// Of a micro-batch's residual stream, before it is split over tp.
  std::int64_t stream_elements() const { return plan_.local.tokens * plan_.model.hidden; }
  Layout stream() const { return plan_.sequence_parallel ? Layout::tokens : Layout::invariant; }
  bool holds(int unit) const { return trainctl::holds(stage_.units, unit); }
  std::vector<CollectiveUse> take() { return std::move(uses_); }

 private:
  std::int64_t ranks_of(const std::string& group) const;

  const Plan& plan_;
  const StagePlan& stage_;
  std::int64_t rank_;
  const Config& config_;
  std::vector<CollectiveUse> uses_;
};

/// The operation of a collective; "": none.
std::string_view word_for(Collective collective);

/// How a block's tensors of this rank's tokens become tensors of its heads, over tp.
struct HeadExchange {
  const char* operation = "";
  std::int64_t q = 0, kv = 0;  // bytes of one call: of queries or results, of keys or values
};
HeadExchange head_exchange(const Plan& plan, const LocalShape& local);

/// Gradients, parameters and scalars: communication_state.cpp.
void add_state(UseList& list);

}  // namespace trainctl
