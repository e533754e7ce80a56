#include "plan/cost/least_needs.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "base/at.h"
#include "plan/cost/device_prices.h"
#include "plan/cost/estimate.h"
#include "plan/cost/forms.h"

namespace trainctl {

namespace {

/// A form of one block and micro-batch.
struct Form {
  std::int64_t kept = 0;
  double seconds = 0;  // of its R
};

/// The forms of which no mixture of two others is better, from the one that keeps everything on.
std::vector<Form> hull_of(std::vector<Form> all) {
  std::ranges::sort(all, [](const Form& a, const Form& b) {
    return std::tuple(-a.kept, a.seconds) < std::tuple(-b.kept, b.seconds);
  });
  std::vector<Form> hull;
  const auto slope = [](const Form& a, const Form& b) {
    return (b.seconds - a.seconds) / static_cast<double>(a.kept - b.kept);
  };
  for (const Form& one : all) {
    while (!hull.empty() && one.seconds <= hull.back().seconds) hull.pop_back();
    if (!hull.empty() && one.kept == hull.back().kept) continue;
    while (hull.size() > 1 &&
           slope(hull[hull.size() - 2], hull.back()) >= slope(hull.back(), one)) {
      hull.pop_back();
    }
    hull.push_back(one);
  }
  return hull;
}

/// A step along a hull: bytes that are saved at a stage's fullest moment, and what that costs in
/// every micro-batch.
struct Saving {
  std::int64_t bytes = 0;
  double seconds = 0;
  double price() const { return seconds / static_cast<double>(bytes); }
};

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
    if (!blocks_.empty()) kept_ = kept_at_peak(rows_, blocks_);
  }

  /// Without repeats.
  std::int64_t bytes() {
    std::int64_t bytes = rows_.memory.device();
    for (const int unit : blocks_) {
      const BlockForm whole{};
      const int like = like_of(unit);
      if (!whole_.contains(like)) whole_[like] = form_bytes(draft_, stage_, like, whole).kept;
      bytes += whole_.at(like) * at(kept_, unit);
    }
    return bytes;
  }

  /// Seconds of R of one micro-batch in all layers, if `over` bytes must be saved; the bytes that
  /// no form saves become `lacking`.
  double repeats(std::int64_t over, std::int64_t& lacking) {
    std::vector<Saving> savings;
    std::map<int, std::vector<Form>> hulls;
    for (const int unit : blocks_) {
      const int like = like_of(unit);
      if (!hulls.contains(like)) hulls[like] = hull_of(forms_of(like));
      const std::vector<Form>& hull = hulls.at(like);
      for (std::size_t i = 1; i < hull.size(); ++i) {
        const std::int64_t saved = (hull[i - 1].kept - hull[i].kept) * at(kept_, unit);
        if (saved > 0) savings.push_back({saved, hull[i].seconds - hull[i - 1].seconds});
      }
    }
    std::ranges::stable_sort(savings, {}, &Saving::price);
    double seconds = 0;
    for (const Saving& one : savings) {
      if (over <= 0) break;
      const double share =
          std::min(1.0, static_cast<double>(over) / static_cast<double>(one.bytes));
      seconds += share * one.seconds;
      over -= one.bytes;
    }
    lacking = std::max<std::int64_t>(0, over);
    return seconds;
  }

 private:
  int like_of(int unit) const {
    return *std::ranges::find_if(blocks_,
                                 [&](int other) { return cost_alike(draft_, other, unit); });
  }

  std::vector<Form> forms_of(int unit) const {
    std::vector<Form> all;
    for (int parts = 0; parts <= all_parts; ++parts) {
      const BlockForm form = form_with(draft_, recompute_, static_cast<std::uint8_t>(parts));
      if (form.again != parts) continue;
      const double seconds = parts == 0 ? 0 : std::max(0.0, prices_.repeat(unit, form).whole());
      all.push_back({form_bytes(draft_, stage_, unit, form).kept, seconds});
    }
    return all;
  }

  const Plan& draft_;
  int stage_;
  const StagePlan& rows_;
  const RecomputeConfig& recompute_;
  const StagePrices& prices_;
  std::vector<int> blocks_;
  std::vector<std::int64_t> kept_;     // by unit: micro-batches at the fullest moment
  std::map<int, std::int64_t> whole_;  // by unit that stands for others: kept without repeats
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

}  // namespace

LeastNeeds least_needs(const Plan& draft, const Config& config, const Machine& machine,
                       std::optional<std::int64_t> limit) {
  LeastNeeds needs;
  const auto prices = device_prices(draft, price_list(draft, machine));
  std::vector<double> repeats(draft.stages.size(), 0.0);
  for (int stage = 0; stage < draft.map.stages; ++stage) {
    if (!limit) {
      const std::int64_t bytes = at(draft.stages, stage).memory.device();
      if (bytes > needs.bytes) needs.stage = stage;
      needs.bytes = std::max(needs.bytes, bytes);
      continue;
    }
    StageNeeds one(draft, stage, config.recompute, *at(prices, stage));
    const std::int64_t bytes = one.bytes();
    needs.bytes = std::max(needs.bytes, bytes);
    if (bytes <= *limit) continue;
    needs.repeats = true;
    std::int64_t lacking = 0;
    at(repeats, stage) = one.repeats(bytes - *limit, lacking);
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
