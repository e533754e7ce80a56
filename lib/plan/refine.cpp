#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "plan/schedule.h"

namespace trainctl {

namespace {

/// Emits refined rows and knows when a bucket's gradients are final: all weight gradients of its
/// units, over all chunks and micro-batches, have been emitted.
class Refinement {
 public:
  Refinement(const ScheduleInput& input, const FlatLayout& layout, bool reduces)
      : layout_(layout),
        reduces_(reduces),
        weights_left_(static_cast<std::size_t>(input.units), input.chunks * input.microbatches),
        units_left_(input.units) {}

  void copy(const Action& row) { rows_.push_back(row); }

  /// One unit of a B or W row.
  void unit(const Action& row, int unit) {
    Action part = row;
    part.begin = unit;
    part.end = unit + 1;
    rows_.push_back(part);
    if (row.kind == ActionKind::backward_weight) finish_weight(unit);
  }

  void wait_for_all() {
    if (!reduces_) return;
    for (std::size_t bucket = 0; bucket < layout_.buckets.size(); ++bucket) {
      rows_.push_back(Action{.kind = ActionKind::wait_reduce, .bucket = static_cast<int>(bucket)});
    }
  }

  std::vector<Action> take() { return std::move(rows_); }

 private:
  void finish_weight(int unit) {
    --weights_left_[static_cast<std::size_t>(unit)];
    // Units finish from the top: `units_left_` is the lowest unit above which all are final.
    while (units_left_ > 0 && weights_left_[static_cast<std::size_t>(units_left_ - 1)] == 0) {
      --units_left_;
    }
    if (!reduces_) return;
    while (next_bucket_ < layout_.buckets.size() &&
           layout_.buckets[next_bucket_].ready_unit >= units_left_) {
      rows_.push_back(Action{.kind = ActionKind::reduce, .bucket = static_cast<int>(next_bucket_)});
      ++next_bucket_;
    }
  }

  const FlatLayout& layout_;
  bool reduces_;
  std::vector<int> weights_left_;  // per unit
  int units_left_;
  std::size_t next_bucket_ = 0;
  std::vector<Action> rows_;
};

bool is_pair(const Action& backward, const Action& weight) {
  return backward.kind == ActionKind::backward_input &&
         weight.kind == ActionKind::backward_weight && backward.chunk == weight.chunk &&
         backward.microbatch == weight.microbatch && backward.begin == weight.begin &&
         backward.end == weight.end;
}

}  // namespace

std::vector<Action> refine(const std::vector<Action>& rows, const ScheduleInput& input,
                           const FlatLayout& layout, std::int64_t data_parallel) {
  Refinement refined(input, layout, data_parallel > 1);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Action& row = rows[i];
    const bool backward =
        row.kind == ActionKind::backward_input || row.kind == ActionKind::backward_weight;
    if (backward) {
      const bool paired = i + 1 < rows.size() && is_pair(row, rows[i + 1]);
      for (int unit = row.end - 1; unit >= row.begin; --unit) {
        refined.unit(row, unit);
        if (paired) refined.unit(rows[i + 1], unit);
      }
      if (paired) ++i;
      continue;
    }
    if (row.kind == ActionKind::step) refined.wait_for_all();
    refined.copy(row);
  }
  return refined.take();
}

int peak_microbatches(const std::vector<Action>& rows) {
  // A micro-batch is alive from its fetch (or F) to its last row on this rank.
  using Key = std::pair<int, int>;
  std::map<Key, std::pair<std::size_t, std::size_t>> lives;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const ActionKind kind = rows[i].kind;
    const bool uses = kind == ActionKind::fetch || kind == ActionKind::forward ||
                      kind == ActionKind::backward_input || kind == ActionKind::backward_weight;
    if (!uses) continue;
    const auto [life, is_new] =
        lives.try_emplace(Key{rows[i].chunk, rows[i].microbatch}, std::pair{i, i});
    if (!is_new) life->second.second = i;
  }
  std::vector<int> change(rows.size() + 1, 0);
  for (const auto& [key, life] : lives) {
    ++change[life.first];
    --change[life.second + 1];
  }
  int alive = 0;
  int peak = 0;
  for (int delta : change) peak = std::max(peak, alive += delta);
  return peak;
}

std::string to_string(const Action& action) {
  const std::string place = std::to_string(action.chunk) + "." + std::to_string(action.microbatch);
  const std::string units =
      "[" + std::to_string(action.begin) + "," + std::to_string(action.end) + ")";
  switch (action.kind) {
    case ActionKind::fetch: return "fetch " + place;
    case ActionKind::forward: return "F" + place + units;
    case ActionKind::backward_input: return "B" + place + units;
    case ActionKind::backward_weight: return "W" + place + units;
    case ActionKind::reduce: return "reduce " + std::to_string(action.bucket);
    case ActionKind::wait_reduce: return "wait_reduce " + std::to_string(action.bucket);
    case ActionKind::step: return "step";
    case ActionKind::send_forward: return "send_forward " + place;
    case ActionKind::receive_forward: return "receive_forward " + place;
    case ActionKind::send_backward: return "send_backward " + place;
    case ActionKind::receive_backward: return "receive_backward " + place;
  }
  return "?";
}

}  // namespace trainctl
