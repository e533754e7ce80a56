#include <algorithm>
#include <utility>

#include "plan/schedule/schedule.h"

namespace trainctl {

namespace {

/// Emits refined rows and knows when a bucket's gradients are final: all weight gradients of its
/// units, over all micro-batches, have been emitted. A unit belongs to one chunk.
class Refinement {
 public:
  Refinement(const ScheduleInput& input, const std::vector<BucketSum>& buckets,
             const std::vector<UnitRange>& gathers, std::size_t rows, bool overlap)
      : buckets_(buckets), gathers_(gathers), forms_(input.forms) {
    int end = 0;
    std::size_t parts = rows;
    for (const UnitRange& range : input.units) {
      Chunk& chunk = chunks_.emplace_back();
      chunk.begin = range.begin;
      chunk.final_from = range.end;
      for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
        const int ready = buckets_[bucket].ready_unit;
        if (overlap && buckets_[bucket].reduced && ready >= range.begin && ready < range.end) {
          chunk.buckets.push_back(static_cast<int>(bucket));
        }
      }
      // Those of experts come last in the layout, but are ready between the others.
      std::stable_sort(chunk.buckets.begin(), chunk.buckets.end(),
                       [&](int a, int b) { return ready_at(a) > ready_at(b); });
      end = std::max(end, range.end);
      parts += static_cast<std::size_t>(input.microbatches) *
               static_cast<std::size_t>(3 * (range.end - range.begin));
    }
    weights_left_.assign(static_cast<std::size_t>(end), input.microbatches);
    rows_.reserve(parts + 3 * buckets_.size() + 3 * gathers_.size() + 1);
  }

  void copy(const Action& row) { rows_.push_back(row); }

  void gather_all(ParamSyncStart when) {
    for (std::size_t block = 0; block < gathers_.size(); ++block) {
      coming_.push_back(static_cast<int>(block));
      rows_.push_back(Action{.kind = ActionKind::gather, .bucket = coming_.back()});
    }
    if (when == ParamSyncStart::overlap) return;
    for (const int block : coming_) await_gather(block);
    coming_.clear();
  }

  /// F, cut where parameters may still be on their way.
  void forward(const Action& row) {
    Action part = row;
    for (int unit = row.begin; unit < row.end; ++unit) {
      const auto reads = [&](int block) {
        const UnitRange& units = gathers_[static_cast<std::size_t>(block)];
        return units.begin <= unit && unit < units.end;
      };
      if (std::none_of(coming_.begin(), coming_.end(), reads)) continue;
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

  /// One unit of a B or W row.
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
    rows_.push_back(part);
    if (row.kind == ActionKind::backward_weight) finish_weight(row.chunk, unit);
  }

  void reduce_all() {
    add_rows(ActionKind::reduce, [](const BucketSum& sum) { return sum.reduced; });
  }

  /// By now every reduce has been started.
  void wait_for_all() {
    add_rows(ActionKind::reduce_embedding, [](const BucketSum& sum) { return sum.embedding; });
    add_rows(ActionKind::wait_reduce, [](const BucketSum& sum) { return sum.has_rows(); });
  }

  std::vector<Action> take() { return std::move(rows_); }

 private:
  struct Chunk {
    int begin = 0;
    int final_from = 0;        // units from here up are final
    std::vector<int> buckets;  // in order of readiness
    std::size_t next = 0;      // into `buckets`
  };

  void await_gather(int block) {
    rows_.push_back(Action{.kind = ActionKind::wait_gather, .bucket = block});
  }

  int ready_at(int bucket) const { return buckets_[static_cast<std::size_t>(bucket)].ready_unit; }

  /// A row for each bucket of which `has_one` is true.
  template <class Predicate>
  void add_rows(ActionKind kind, Predicate has_one) {
    for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
      if (!has_one(buckets_[bucket])) continue;
      rows_.push_back(Action{.kind = kind, .bucket = static_cast<int>(bucket)});
    }
  }

  void finish_weight(int chunk_index, int unit) {
    if (--weights_left_[static_cast<std::size_t>(unit)] > 0) return;
    Chunk& chunk = chunks_[static_cast<std::size_t>(chunk_index)];
    while (chunk.final_from > chunk.begin &&
           weights_left_[static_cast<std::size_t>(chunk.final_from - 1)] == 0) {
      --chunk.final_from;
    }
    while (chunk.next < chunk.buckets.size() &&
           ready_at(chunk.buckets[chunk.next]) >= chunk.final_from) {
      rows_.push_back(Action{.kind = ActionKind::reduce, .bucket = chunk.buckets[chunk.next++]});
    }
  }

  const std::vector<BucketSum>& buckets_;
  const std::vector<UnitRange>& gathers_;
  const StageForms& forms_;
  std::vector<int> weights_left_;  // per unit
  std::vector<Chunk> chunks_;
  std::vector<int> coming_;  // blocks that are gathered and not waited for yet
  std::vector<Action> rows_;
};

bool is_pair(const Action& backward, const Action& weight) {
  return backward.kind == ActionKind::backward_input &&
         weight.kind == ActionKind::backward_weight && backward.chunk == weight.chunk &&
         backward.microbatch == weight.microbatch && backward.begin == weight.begin &&
         backward.end == weight.end;
}

}  // namespace

std::vector<BucketSum> bucket_sums(const FlatLayout& layout,
                                   const std::vector<ParamSpec>& parameters) {
  std::vector<BucketSum> sums;
  for (const Bucket& bucket : layout.buckets) {
    BucketSum& sum = sums.emplace_back();
    sum.ready_unit = bucket.ready_unit;
    for (const int index : bucket.parameters) {
      const ParamSpec& row = parameters[static_cast<std::size_t>(index)];
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
                           const std::vector<UnitRange>& gathers, ParamSyncStart param_sync,
                           bool overlap) {
  Refinement refined(input, buckets, gathers, rows.size(), overlap);
  refined.gather_all(param_sync);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Action& row = rows[i];
    const bool backward =
        row.kind == ActionKind::backward_input || row.kind == ActionKind::backward_weight;
    // A chunk without units hands its gradient on: its B stays, it has no W.
    if (row.kind == ActionKind::backward_weight && row.begin == row.end) continue;
    if (backward && row.begin < row.end) {
      const bool paired = i + 1 < rows.size() && is_pair(row, rows[i + 1]);
      for (int unit = row.end - 1; unit >= row.begin; --unit) {
        refined.unit(row, unit);
        if (paired) refined.unit(rows[i + 1], unit);
      }
      if (paired) ++i;
      continue;
    }
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
