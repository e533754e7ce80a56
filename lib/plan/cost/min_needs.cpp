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
        blocks_(blocks_of(rows_.units, draft.model.layers)) {
    if (!blocks_.empty()) kept_ = kept_at_most(rows_, blocks_);
  }

  bool has_blocks() const { return !blocks_.empty(); }

  /// Seconds of R for one micro-batch in all layers, with which a rank needs at most `limit` bytes;
  /// sets `lacking` to the bytes that no form saves. Any choice of forms needs memory for the
  /// largest recomputation of one layer. So for each such size, the forms within it are considered,
  /// and the cheapest result is taken.
  double repeats(std::int64_t limit, std::int64_t& lacking) {
    if (choices_.empty()) add_choices();
    double seconds = std::numeric_limits<double>::infinity();
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (const Choices& one : choices_) {
      const std::int64_t over = one.bytes - limit;
      seconds = std::min(seconds, one.savings.seconds(over));
      least = std::min(least, over - one.savings.bytes());
    }
    lacking = std::max<std::int64_t>(0, least);
    return lacking > 0 ? 0 : seconds;
  }

 private:
  int like_of(int unit) const {
    return *std::ranges::find_if(blocks_,
                                 [&](int other) { return cost_alike(draft_, other, unit); });
  }

  /// The forms that need no more than some bytes once.
  struct Choices {
    std::int64_t bytes = 0;  // bytes of a rank if nothing is saved
    FormSavings savings{};
  };
  void add_choices() {
    std::map<int, std::vector<Form>> forms;
    std::map<std::pair<int, std::int64_t>, std::int64_t> blocks;  // how many are and keep alike
    std::set<std::int64_t> sizes;
    for (const int unit : blocks_) {
      const int like = like_of(unit);
      ++blocks[{like, at(kept_, unit)}];
      if (forms.contains(like)) continue;
      for (const Form& one : forms[like] = forms_of(like)) sizes.insert(one.once);
    }
    const std::int64_t others = rows_.memory.device() + min_beside_blocks(draft_, stage_, blocks_);
    for (const std::int64_t once : sizes) {
      std::map<int, std::vector<FormPoint>> hulls;
      for (const auto& [like, all] : forms) hulls[like] = hull_within(all, once);
      Choices& made = choices_.emplace_back(Choices{.bytes = others + once});
      for (const auto& [one, alike] : blocks) {
        const auto& [like, kept] = one;
        const std::vector<FormPoint>& hull = hulls.at(like);
        made.bytes += hull.front().kept * kept * alike;
        made.savings.add(static_cast<std::size_t>(like), hull, kept, alike);
      }
    }
  }

  struct Form {
    FormPoint point;
    std::int64_t once = 0;  // bytes of a layer during F, and from R to W
  };
  std::vector<Form> forms_of(int unit) const {
    std::vector<Form> all;
    for (int parts = 0; parts <= all_parts; ++parts) {
      const BlockForm form = form_with(draft_, recompute_, static_cast<std::uint8_t>(parts));
      if (form.repeated != parts) continue;
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
  std::vector<std::int64_t> kept_{};  // by unit: micro-batches kept at the fullest moment
  std::vector<Choices> choices_{};    // by the bytes that a form needs once; empty until used
};

/// When the first B of a stage begins in a simulation, and the work from then on [seconds].
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

/// The way of the first and of the last gradient through the first chunks of the stages.
struct WayBack {
  bool in_turns = false;         // F and B end a step in turns, W with B
  std::vector<double> messages;  // seconds until a stage has the first gradient of the next one
  std::vector<double> first;     // seconds of its passes with that
  std::vector<double> last;      // seconds of the last gradient's message and passes
};

WayBack way_back(const Plan& draft, const Config& config, const SimulationInput& input) {
  const ScheduleTraits& traits = traits_of(config.parallel.pipeline.scheduler);
  const bool deferred = config.parallel.pipeline.defer_embedding_wgrad_compute;
  WayBack way;
  way.in_turns = !traits.places_weights && !draft.late_weights && !deferred;
  for (const RankRows& rank : input.ranks) {
    int last = 0;
    for (const Action& row : rank.rows) {
      if (row.kind == ActionKind::backward_input && row.chunk == 0) last = row.microbatch;
    }
    double message = 0, first_passes = 0, last_passes = 0;
    for (const Action& row : rank.rows) {
      const bool weights = way.in_turns && row.kind == ActionKind::backward_weight;
      const bool pass = row.kind == ActionKind::backward_input || weights;
      const bool receives = row.kind == ActionKind::receive_backward;
      if (row.chunk != 0 || !(pass || receives)) continue;
      if (row.microbatch == 0) (pass ? first_passes : message) += input.cost(rank, row);
      if (row.microbatch == last) last_passes += input.cost(rank, row);
    }
    way.messages.push_back(message);
    way.first.push_back(first_passes);
    way.last.push_back(last_passes);
  }
  return way;
}

/// The bytes of a draft in its own forms; its activations are not placed yet.
std::int64_t drafted_bytes(const Plan& draft, int stage) {
  const MemoryEstimate& memory = at(draft.stages, stage).memory;
  const SlotBytes slots = count_slots(draft, stage);
  return memory.device() + slots.device + (memory.on_cuda ? 0 : slots.host);
}

/// The bounds of a draft, which answer for any limit.
class DraftNeeds {
 public:
  DraftNeeds(const Plan& draft, const Config& config, const Machine& machine)
      : draft_(draft),
        config_(config),
        machine_(machine),
        prices_(device_prices(draft, price_list(draft, machine))) {
    for (int stage = 0; stage < draft.map.stages; ++stage) {
      bytes_.push_back(drafted_bytes(draft, stage));
      stages_.emplace_back();
    }
  }

  LeastNeeds within(std::optional<std::int64_t> limit) {
    LeastNeeds needs;
    std::vector<double> repeats(bytes_.size(), 0.0);
    for (int stage = 0; stage < draft_.map.stages; ++stage) {
      const std::int64_t bytes = at(bytes_, stage);
      if (!limit && bytes > needs.bytes) needs.stage = stage;
      needs.bytes = std::max(needs.bytes, bytes);
      if (!limit || bytes <= *limit) continue;
      needs.repeats = true;
      StageNeeds& one = stage_needs(stage);
      std::int64_t lacking = bytes - *limit;
      if (one.has_blocks()) at(repeats, stage) = one.repeats(*limit, lacking);
      if (lacking <= needs.lacking) continue;
      needs.lacking = lacking;
      needs.stage = stage;
    }
    if (needs.lacking > 0) return needs;
    play();
    needs.seconds = step_->time.step();
    if (needs.repeats) needs.seconds += seconds_more(repeats);
    return needs;
  }

 private:
  StageNeeds& stage_needs(int stage) {
    auto& one = at(stages_, stage);
    if (!one) one.emplace(draft_, stage, config_.recompute, *at(prices_, stage));
    return *one;
  }
  void play() {
    if (step_) return;
    step_ = play_step(draft_, machine_, prices_);
    backwards_ = backwards_in(step_->played, step_->input);
    way_ = way_back(draft_, config_, step_->input);
  }
  /// Seconds that a step is longer with these seconds of R in each stage. With one chunk a stage
  /// the first gradient comes through the stages behind it, each of which repeats its layers
  /// first, and the last one passes the stages before it in the same way. With several
  /// chunks it is not known which of them repeats.
  double seconds_more(const std::vector<double>& repeats) const {
    const int stages = draft_.map.stages;
    const bool one_chunk = draft_.map.chunks == 1;
    std::vector<double> begins;
    for (const Backward& one : backwards_) begins.push_back(one.begin);
    for (int stage = stages - 2; one_chunk && stage >= 0; --stage) {
      const double behind = at(begins, stage + 1) + at(repeats, stage + 1) +
                            at(way_.first, stage + 1) + at(way_.messages, stage);
      at(begins, stage) = std::max(at(begins, stage), behind);
    }
    double more = 0, tail = 0;
    for (int stage = 0; stage < stages; ++stage) {
      const double repeated = static_cast<double>(draft_.microbatches) * at(repeats, stage);
      const double end = at(begins, stage) + at(backwards_, stage).work + repeated + tail;
      more = std::max(more, end - step_->played.seconds);
      if (way_.in_turns) tail += at(way_.last, stage) + (one_chunk ? at(repeats, stage) : 0);
    }
    return more;
  }

  const Plan& draft_;
  const Config& config_;
  const Machine& machine_;
  StagePricesList prices_;
  std::vector<std::int64_t> bytes_{};                // bytes of each stage with the draft's forms
  std::vector<std::optional<StageNeeds>> stages_{};  // the stages above a limit
  std::optional<PlayedStep> step_{};
  std::vector<Backward> backwards_{};
  WayBack way_{};
};

}  // namespace

LeastNeeds min_needs(const Plan& draft, const Config& config, const Machine& machine,
                     std::optional<std::int64_t> limit) {
  return DraftNeeds(draft, config, machine).within(limit);
}

std::vector<LeastNeeds> min_needs(const Plan& draft, const Config& config, const Machine& machine,
                                  std::span<const std::int64_t> limits) {
  DraftNeeds needs(draft, config, machine);
  std::vector<LeastNeeds> all;
  for (const std::int64_t limit : limits) all.push_back(needs.within(limit));
  return all;
}

}  // namespace trainctl
