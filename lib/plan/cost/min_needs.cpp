#include "plan/cost/min_needs.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/at.h"
#include "plan/cost/device_prices.h"
#include "plan/cost/estimate.h"
#include "plan/cost/forms.h"

namespace trainctl {

namespace {

class StageNeeds {
 public:
  StageNeeds(const Plan& draft, int stage, const RecomputeConfig& recompute,
             const StagePrices& prices)
      : draft_(draft),
        stage_(stage),
        rows_(at(draft.stages, stage)),
        recompute_(recompute),
        prices_(prices),
        blocks_(first_blocks(rows_.units, draft.model.layers, draft.model.layers)) {
    if (!blocks_.empty()) moment_ = fullest_moment(rows_, blocks_);
  }

  bool has_blocks() const { return !blocks_.empty(); }

  /// Seconds of R of one micro-batch in all layers, with which a rank stays within `limit`; the
  /// bytes that no form saves become `lacking`. Every choice of forms needs memory of its own for
  /// the most that one of its layers recomputes: for each such size, the least time with forms that
  /// need no more.
  double repeats(std::int64_t limit, std::int64_t& lacking) {
    std::map<int, std::vector<Form>> forms;
    std::set<std::int64_t> sizes;
    for (const int unit : blocks_) {
      const int like = like_of(unit);
      if (forms.contains(like)) continue;
      for (const Form& one : forms[like] = forms_of(like)) sizes.insert(one.once);
    }
    const std::int64_t others = rows_.memory.device() + min_beside_blocks(draft_, stage_, moment_);
    double seconds = std::numeric_limits<double>::infinity();
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (const std::int64_t once : sizes) {
      std::map<int, std::vector<FormPoint>> hulls;
      for (const auto& [like, all] : forms) hulls[like] = hull_within(all, once);
      FormSavings savings;
      std::int64_t over = others + once - limit;
      for (std::size_t block = 0; block < blocks_.size(); ++block) {
        const std::vector<FormPoint>& hull = hulls.at(like_of(blocks_[block]));
        const std::int64_t kept = at(moment_.kept, blocks_[block]);
        over += hull.front().kept * kept;
        savings.add(block, hull, kept);
      }
      seconds = std::min(seconds, savings.seconds(over));
      least = std::min(least, over - savings.bytes());
    }
    lacking = std::max<std::int64_t>(0, least);
    return lacking > 0 ? 0 : seconds;
  }

 private:
  int like_of(int unit) const {
    return *std::ranges::find_if(blocks_,
                                 [&](int other) { return cost_alike(draft_, other, unit); });
  }

  struct Form {
    FormPoint point;
    std::int64_t once = 0;  // bytes of a layer while it runs F, and between R and W
  };
  std::vector<Form> forms_of(int unit) const {
    std::vector<Form> all;
    for (int parts = 0; parts <= all_parts; ++parts) {
      const BlockForm form = form_with(draft_, recompute_, static_cast<std::uint8_t>(parts));
      if (form.again != parts) continue;
      const double seconds = parts == 0 ? 0 : std::max(0.0, prices_.repeat(unit, form).whole());
      const FormBytes bytes = form_bytes(draft_, stage_, unit, form);
      all.push_back({.point = {.kept = bytes.kept, .seconds = seconds}, .once = bytes.once});
    }
    return all;
  }
  static std::vector<FormPoint> hull_within(const std::vector<Form>& forms, std::int64_t once) {
    std::vector<FormPoint> points;
    for (const Form& one : forms) {
      if (one.once <= once) points.push_back(one.point);
    }
    return hull_of(std::move(points));
  }

  const Plan& draft_;
  int stage_;
  const StagePlan& rows_;
  const RecomputeConfig& recompute_;
  const StagePrices& prices_;
  std::vector<int> blocks_;
  FullestMoment moment_{};
};

/// When the first B of a stage begins in a play, and what its compute queue does from then on.
struct Backward {
  double begin = 0, work = 0;
};

std::vector<Backward> backwards_in(const Simulation& played, const SimulationInput& input) {
  std::vector<Backward> all(input.ranks.size());
  std::vector<char> begun(input.ranks.size(), 0);
  for (const RowTime& time : played.times) {
    const auto rank = static_cast<std::size_t>(time.rank);
    const Action& row = at(input.ranks, time.rank).rows[static_cast<std::size_t>(time.row)];
    if (begun[rank] == 0 && row.kind != ActionKind::backward_input) continue;
    if (begun[rank] == 0) all[rank].begin = time.start;
    begun[rank] = 1;
    all[rank].work += time.finish - time.start;
  }
  return all;
}

/// Seconds after the last row of each stage until the first stage has passed the last gradient on:
/// its B and W of the first chunk, and the messages. 0 where W lies apart.
std::vector<double> tails_of(const Plan& draft, const Config& config,
                             const SimulationInput& input) {
  std::vector<double> tails(input.ranks.size(), 0.0);
  const ScheduleTraits& traits = traits_of(config.parallel.pipeline.scheduler);
  const bool deferred = config.parallel.pipeline.defer_embedding_wgrad_compute;
  if (traits.places_weights || draft.late_weights || deferred) return tails;
  double tail = 0;
  for (std::size_t stage = 0; stage < input.ranks.size(); ++stage) {
    const RankRows& rank = input.ranks[stage];
    tails[stage] = tail;
    int last = -1;  // micro-batch
    for (const Action& row : rank.rows) {
      if (row.kind == ActionKind::backward_input && row.chunk == 0) last = row.microbatch;
    }
    for (const Action& row : rank.rows) {
      const bool pass = row.kind == ActionKind::backward_input ||
                        row.kind == ActionKind::backward_weight || is_receive(row.kind);
      const bool back = row.kind != ActionKind::receive_forward;
      if (pass && back && row.chunk == 0 && row.microbatch == last) tail += input.cost(rank, row);
    }
  }
  return tails;
}

/// The bytes of a draft in its own forms: its activations have no places yet.
std::int64_t drafted_bytes(const Plan& draft, int stage) {
  const MemoryEstimate& memory = at(draft.stages, stage).memory;
  const SlotBytes slots = count_slots(draft, stage);
  return memory.device() + slots.device + (memory.on_cuda ? 0 : slots.host);
}

}  // namespace

LeastNeeds min_needs(const Plan& draft, const Config& config, const Machine& machine,
                     std::optional<std::int64_t> limit) {
  LeastNeeds needs;
  const auto prices = device_prices(draft, price_list(draft, machine));
  std::vector<double> repeats(draft.stages.size(), 0.0);
  for (int stage = 0; stage < draft.map.stages; ++stage) {
    const std::int64_t bytes = drafted_bytes(draft, stage);
    if (!limit && bytes > needs.bytes) needs.stage = stage;
    needs.bytes = std::max(needs.bytes, bytes);
    if (!limit || bytes <= *limit) continue;
    needs.repeats = true;
    StageNeeds one(draft, stage, config.recompute, *at(prices, stage));
    std::int64_t lacking = bytes - *limit;
    if (one.has_blocks()) at(repeats, stage) = one.repeats(*limit, lacking);
    if (lacking <= needs.lacking) continue;
    needs.lacking = lacking;
    needs.stage = stage;
  }
  if (needs.lacking > 0) return needs;
  PlayedStep step = play_step(draft, machine, prices);
  needs.seconds = step.time.step();
  if (!needs.repeats) return needs;
  const auto backwards = backwards_in(step.played, step.input);
  const auto tails = tails_of(draft, config, step.input);
  double more = 0;
  for (int stage = 0; stage < draft.map.stages; ++stage) {
    const Backward& one = at(backwards, stage);
    const double repeated = static_cast<double>(draft.microbatches) * at(repeats, stage);
    more = std::max(more, one.begin + one.work + repeated + at(tails, stage) - step.played.seconds);
  }
  needs.seconds += more;
  return needs;
}

}  // namespace trainctl
