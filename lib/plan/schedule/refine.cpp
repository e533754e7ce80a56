#include <algorithm>
#include <utility>

#include "base/at.h"
#include "plan/schedule/schedule.h"

namespace trainctl {

std::vector<Action> in_turns(const std::vector<Action>& one, const std::vector<Action>& other) {
  std::vector<Action> rows;
  rows.reserve(one.size() + other.size());
  const std::vector<Action>* passes[] = {&one, &other};
  std::size_t next[] = {0, 0};
  while (rows.size() < one.size() + other.size()) {
    for (const int pass : {0, 1}) {
      const std::vector<Action>& mine = *passes[pass];
      bool under_way = false;
      while (!under_way && next[pass] < mine.size()) {
        rows.push_back(mine[next[pass]++]);
        under_way = rows.back().sends_rows();
      }
    }
  }
  return rows;
}

namespace {

/// Emits refined rows and tracks when a bucket's gradients are final: after all weight gradients of
/// its units, over all micro-batches. A unit belongs to one chunk.
class Refinement {
 public:
  Refinement(const ScheduleInput& input, const std::vector<BucketSum>& buckets,
             const std::vector<GatherBlock>& gathers, std::size_t rows, bool overlap)
      : buckets_(buckets),
        gathers_(gathers),
        forms_(input.forms),
        legs_(input.legs),
        deferral_(input.deferral),
        microbatches_(static_cast<std::size_t>(input.microbatches)),
        visits_(buckets.size(), 0) {
    int end = 0;
    std::size_t parts = rows;
    for (const UnitRange& range : input.units) {
      Chunk& chunk = chunks_.emplace_back();
      chunk.begin = range.begin;
      const bool defers = range.holds(deferral_.unit);
      chunk.once.final_from = defers ? deferral_.unit : range.end;
      for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
        const BucketSum& sum = buckets_[bucket];
        if (!sum.reduced || !range.holds(sum.ready_unit)) continue;
        if (sum.repeated) chunk.each_buckets.push_back(static_cast<int>(bucket));
        if (!overlap || sum.repeated) continue;
        const bool late = deferral_.microbatches > 0 && sum.head >= 0;
        auto& list = late ? late_buckets_ : chunk.once_buckets;
        list.push_back(static_cast<int>(bucket));
      }
      // Buckets of experts are last in the layout, but become ready between the others.
      for (auto* list : {&chunk.once_buckets, &chunk.each_buckets}) {
        std::ranges::stable_sort(*list, {}, [&](int bucket) { return -ready_at(bucket); });
      }
      chunk.each.assign(microbatches_, chunk.once);
      chunk.together = !overlap;
      end = std::max(end, range.end);
      parts += static_cast<std::size_t>(input.microbatches) *
               static_cast<std::size_t>(3 * (range.end - range.begin));
    }
    weights_left_.assign(static_cast<std::size_t>(end), input.microbatches);
    weight_done_.assign(static_cast<std::size_t>(end) * microbatches_, 0);
    rows_.reserve(parts + 3 * buckets_.size() + 3 * gathers_.size() + 1);
  }

  void copy(const Action& row) { rows_.push_back(row); }

  void gather_all(ParamSyncStart when) {
    for (std::size_t block = 0; block < gathers_.size(); ++block) {
      if (gathers_[block].freed) continue;
      coming_.push_back(static_cast<int>(block));
      rows_.push_back(Action{.kind = ActionKind::gather, .bucket = coming_.back()});
    }
    if (when == "overlap") return;
    for (const int block : coming_) await_gather(block);
    coming_.clear();
  }

  /// Adds an F, split where a gather may be unfinished, and around units with host copies.
  void forward(const Action& row) {
    Action part = row;
    for (int unit = row.begin; unit < row.end; ++unit) {
      const auto reads = [&](int block) { return at(gathers_, block).holds(unit); };
      const bool freed =
          std::any_of(gathers_.begin(), gathers_.end(), [&](const GatherBlock& block) {
            return block.freed && (block.holds(unit) || block.holds(unit - 1));
          });
      const bool copied = forms_.on_host(unit) || forms_.on_host(unit - 1);
      if (!freed && !copied && std::none_of(coming_.begin(), coming_.end(), reads)) continue;
      part.end = unit;
      if (part.begin < part.end) rows_.push_back(part);
      part.begin = unit;
      for (const int block : coming_) {
        if (reads(block)) await_gather(block);
      }
      std::erase_if(coming_, reads);
    }
    part.end = row.end;
    rows_.push_back(part);
  }

  /// Adds one unit of a B or W row.
  void unit(const Action& row, int unit) {
    Action part = row;
    part.begin = unit;
    part.end = unit + 1;
    const bool again = row.kind == ActionKind::backward_input &&
                       forms_.of(unit, row.chunk, row.microbatch).repeats();
    if (again) {
      part.kind = ActionKind::repeat;
      rows_.push_back(part);
      part.kind = row.kind;
    }
    const bool weight = row.kind == ActionKind::backward_weight;
    if (weight && deferral_.concerns(part)) {
      deferred_.push_back(part);
      return;
    }
    rows_.push_back(part);
    if (weight) finish_weight(part);
  }

  /// Adds B of all units of a row, with its adjacent W (null if there is none).
  void backward(const Action& row, const Action* weight) {
    for (int at = row.end - 1; at >= row.begin; --at) {
      unit(row, at);
      if (weight != nullptr) unit(*weight, at);
    }
  }

  /// Adds `row`, its W and an F of another micro-batch in legs, interleaved.
  void beside(const Action& up, const Action& row, const Action* weight) {
    std::vector<Action> before = std::exchange(rows_, {});
    forward(up);
    const std::vector<Action> forwards = cut_into_legs(std::exchange(rows_, {}));
    backward(row, weight);
    const std::vector<Action> backwards = cut_into_legs(std::exchange(rows_, std::move(before)));
    const std::vector<Action> both = in_turns(backwards, forwards);
    rows_.insert(rows_.end(), both.begin(), both.end());
  }

  /// Adds the deferred rows, after all passes.
  void make_deferred() {
    rows_.insert(rows_.end(), deferred_.begin(), deferred_.end());
    for (const int bucket : late_buckets_) start_sum(bucket);
  }

  void reduce_all() {
    add_rows(ActionKind::reduce, [](const BucketSum& sum) { return sum.reduced && !sum.repeated; });
  }

  /// Waits for all sums; called after every `reduce` row.
  void wait_for_all() {
    add_rows(ActionKind::reduce_embedding, [](const BucketSum& sum) { return sum.embedding; });
    add_rows(ActionKind::wait_reduce, [](const BucketSum& sum) { return sum.has_rows(); });
  }

  std::vector<Action> take() { return std::move(rows_); }

 private:
  struct Front {
    int final_from = 0;    // units from this one up are final
    std::size_t next = 0;  // next bucket in order of readiness
  };
  struct Chunk {
    int begin = 0;
    Front once;                                   // final over all micro-batches
    std::vector<Front> each;                      // final by micro-batch
    std::vector<int> once_buckets, each_buckets;  // buckets in order of readiness
    bool together = false;                        // a micro-batch's sums wait for all its W
  };

  bool in_legs(int unit) const { return unit < std::ssize(legs_) && at(legs_, unit) != 0; }

  std::vector<Action> cut_into_legs(const std::vector<Action>& rows) const {
    std::vector<Action> made;
    for (const Action& row : rows) {
      const bool cut = is_pass(row.kind) && row.kind != ActionKind::backward_weight;
      Action part = row;
      for (int unit = row.begin; cut && unit < row.end; ++unit) {
        const bool sends = row.kind != ActionKind::repeat ||
                           forms_.of(unit, row.chunk, row.microbatch).repeats(BlockPart::mlp);
        if (!in_legs(unit) || !sends) continue;
        part.end = unit;
        if (part.begin < part.end) made.push_back(part);
        part.begin = unit;
        part.end = unit + 1;
        for (const ExchangePhase leg :
             {ExchangePhase::out, ExchangePhase::work, ExchangePhase::home}) {
          if (leg == ExchangePhase::home && row.kind == ActionKind::repeat) continue;
          part.leg = leg;
          made.push_back(part);
        }
        part = row;
        part.begin = unit + 1;
      }
      if (!cut || part.begin < part.end || row.begin == row.end) made.push_back(part);
    }
    return made;
  }

  void await_gather(int block) {
    rows_.push_back(Action{.kind = ActionKind::wait_gather, .bucket = block});
  }

  int ready_at(int bucket) const { return at(buckets_, bucket).ready_unit; }

  /// Adds a row for each bucket with has_one(bucket).
  template <class Predicate>
  void add_rows(ActionKind kind, Predicate has_one) {
    for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
      if (!has_one(buckets_[bucket])) continue;
      const bool last = kind == ActionKind::wait_reduce && visits_[bucket] > 0;
      rows_.push_back(Action{.kind = kind,
                             .bucket = static_cast<int>(bucket),
                             .visit = last ? visits_[bucket] - 1 : 0});
    }
  }

  /// Lowers the front while the unit below is final, and starts the sums of the buckets that are
  /// final then.
  template <class IsFinal>
  void advance(const Chunk& chunk, const std::vector<int>& buckets, bool together, Front& front,
               IsFinal is_final) {
    while (front.final_from > chunk.begin && is_final(front.final_from - 1)) --front.final_from;
    while (front.next < buckets.size()) {
      const int bucket = buckets[front.next];
      if ((together ? chunk.begin : ready_at(bucket)) < front.final_from) return;
      ++front.next;
      start_sum(bucket);
    }
  }

  void start_sum(int bucket) {
    rows_.push_back(
        Action{.kind = ActionKind::reduce, .bucket = bucket, .visit = at(visits_, bucket)++});
  }

  void finish_weight(const Action& row) {
    Chunk& chunk = at(chunks_, row.chunk);
    const auto microbatch = static_cast<std::size_t>(row.microbatch);
    const auto done = [&](int unit) -> char& {
      return weight_done_[static_cast<std::size_t>(unit) * microbatches_ + microbatch];
    };
    done(row.begin) = 1;
    advance(chunk, chunk.each_buckets, chunk.together, chunk.each[microbatch],
            [&](int unit) { return done(unit) != 0; });
    const auto left = [&](int unit) -> int& { return at(weights_left_, unit); };
    if (--left(row.begin) > 0) return;
    advance(chunk, chunk.once_buckets, false, chunk.once,
            [&](int unit) { return left(unit) == 0; });
  }

  const std::vector<BucketSum>& buckets_;
  const std::vector<GatherBlock>& gathers_;
  const StageForms& forms_;
  const std::vector<char>& legs_;
  const Deferral deferral_;
  std::size_t microbatches_;
  std::vector<int> weights_left_;  // number of missing W, per unit
  std::vector<char> weight_done_;  // whether W is done, per unit and micro-batch
  std::vector<int> visits_;        // per bucket: number of sums so far
  std::vector<Chunk> chunks_;
  std::vector<Action> deferred_;   // deferred W rows
  std::vector<int> late_buckets_;  // buckets of the head, if some W is deferred
  std::vector<int> coming_;        // gathered blocks that are not awaited yet
  std::vector<Action> rows_;
};

/// Whether a forward and a backward row are independent and not empty.
bool are_apart(const Action& forward, const Action& backward) {
  return forward.kind == ActionKind::forward && backward.kind == ActionKind::backward_input &&
         forward.microbatch != backward.microbatch && forward.begin < forward.end &&
         backward.begin < backward.end;
}

bool is_pair(const Action& backward, const Action& weight) {
  return backward.kind == ActionKind::backward_input &&
         weight.kind == ActionKind::backward_weight && backward.chunk == weight.chunk &&
         backward.microbatch == weight.microbatch && backward.begin == weight.begin &&
         backward.end == weight.end;
}

}  // namespace

std::vector<BucketSum> bucket_sums(const FlatBuffer& layout,
                                   const std::vector<ParamSpec>& parameters) {
  std::vector<BucketSum> sums;
  for (const Bucket& bucket : layout.buckets) {
    BucketSum& sum = sums.emplace_back();
    sum.ready_unit = bucket.ready_unit;
    for (const int index : bucket.parameters) {
      const ParamSpec& row = at(parameters, index);
      const auto place = std::lower_bound(sum.units.begin(), sum.units.end(), row.unit);
      if (place == sum.units.end() || *place != row.unit) sum.units.insert(place, row.unit);
      const auto& axes = row.gradient_sum;
      sum.reduced = sum.reduced || row.tp_copies > 1 ||
                    std::find(axes.begin(), axes.end(), true) != axes.end();
      sum.embedding = sum.embedding || row.two_homes;
    }
  }
  return sums;
}

std::vector<Action> refine(const std::vector<Action>& rows, const ScheduleInput& input,
                           const std::vector<BucketSum>& buckets,
                           const std::vector<GatherBlock>& gathers, ParamSyncStart param_sync,
                           bool overlap) {
  Refinement refined(input, buckets, gathers, rows.size(), overlap);
  refined.gather_all(param_sync);
  const auto pair_at = [&](std::size_t at) {  // the W that belongs to the B in row `at`
    return at + 1 < rows.size() && is_pair(rows[at], rows[at + 1]) ? &rows[at + 1] : nullptr;
  };
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Action& row = rows[i];
    const bool backward =
        row.kind == ActionKind::backward_input || row.kind == ActionKind::backward_weight;
    // A chunk without units passes its gradient on in B and has no W.
    if (row.kind == ActionKind::backward_weight && row.begin == row.end) continue;
    if (backward && row.begin < row.end) {
      const Action* weight = pair_at(i);
      refined.backward(row, weight);
      if (weight != nullptr) ++i;
      continue;
    }
    if (!input.legs.empty() && i + 1 < rows.size() && are_apart(row, rows[i + 1])) {
      const Action* weight = pair_at(++i);
      refined.beside(row, rows[i], weight);
      if (weight != nullptr) ++i;
      continue;
    }
    if (row.kind == ActionKind::step) refined.make_deferred();
    if (row.kind == ActionKind::step && !overlap) refined.reduce_all();
    if (row.kind == ActionKind::forward) {
      refined.forward(row);
      continue;
    }
    if (row.kind == ActionKind::step) refined.wait_for_all();
    refined.copy(row);
  }
  return refined.take();
}

}  // namespace trainctl
