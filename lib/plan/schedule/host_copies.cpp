// Rows that copy what a layer keeps to the host after its F and back before its R or B.
#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "plan/schedule/schedule.h"

namespace trainctl {

namespace {

/// A buffer's use by one unit and micro-batch: F until the copy out is done, or from the copy back
/// to the last row that reads it.
struct BufferUse {
  Action row;             // the pass that begins it
  std::size_t first = 0;  // rows
  std::size_t last = 0;
  bool backward = false;
};

/// In the order in which they begin.
std::vector<BufferUse> buffer_uses(const std::vector<Action>& rows, const StageForms& forms) {
  std::vector<BufferUse> uses;
  std::map<std::tuple<bool, int, int>, std::size_t> known;  // by direction, micro-batch and unit
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const Action& action = rows[row];
    if (!is_pass(action.kind) || action.begin == action.end || !forms.on_host(action.begin)) {
      continue;
    }
    const bool backward = action.kind != ActionKind::forward;
    const auto [found, fresh] =
        known.try_emplace({backward, action.microbatch, action.begin}, uses.size());
    if (fresh) uses.push_back({action, row, row, backward});
    uses[found->second].last = row;
  }
  return uses;
}

/// The first row of each chunk's and micro-batch's backward.
std::map<std::pair<int, int>, std::size_t> backward_starts(const std::vector<Action>& rows) {
  std::map<std::pair<int, int>, std::size_t> starts;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const bool forward = rows[row].kind == ActionKind::forward;
    if (!is_pass(rows[row].kind) || forward) continue;
    starts.try_emplace({rows[row].chunk, rows[row].microbatch}, row);
  }
  return starts;
}

/// Writes the rows around the uses.
class Copier {
 public:
  Copier(const std::vector<Action>& rows, const StageForms& forms, int ahead)
      : rows_(rows), uses_(buffer_uses(rows, forms)), ahead_(static_cast<std::size_t>(ahead)) {
    const auto starts = backward_starts(rows);
    for (std::size_t use = 0; use < uses_.size(); ++use) {
      const BufferUse& mine = uses_[use];
      begin_at_[mine.first].push_back(use);
      if (!mine.backward) {
        end_at_[mine.last].push_back(use);
        continue;
      }
      std::size_t earliest = starts.at({mine.row.chunk, mine.row.microbatch});
      if (use > ahead_) earliest = std::max(earliest, uses_[use - 1 - ahead_].last + 1);
      reload_at_[std::min(earliest, mine.first)].push_back(use);
    }
  }

  std::vector<Action> write() {
    for (std::size_t row = 0; row < rows_.size(); ++row) {
      for (const std::size_t use : reload_at_[row]) reload(use);
      for (const std::size_t use : begin_at_[row]) begin(use);
      made_.push_back(rows_[row]);
      for (const std::size_t use : end_at_[row]) {
        add(ActionKind::offload, use);
        leaving_.push_back(use);
      }
    }
    return std::move(made_);
  }

 private:
  /// What use number `use` may not find under way: the copies out of those that are further back
  /// than `ahead`, and its own unit's.
  void await(std::size_t use) {
    std::erase_if(leaving_, [&](std::size_t other) {
      const Action& row = uses_[other].row;
      const bool own =
          row.microbatch == uses_[use].row.microbatch && row.begin == uses_[use].row.begin;
      if (other + ahead_ >= use && !own) return false;
      add(ActionKind::wait_offload, other);
      return true;
    });
  }

  void reload(std::size_t use) {
    await(use);
    add(ActionKind::reload, use);
  }

  void begin(std::size_t use) {
    if (uses_[use].backward) return add(ActionKind::wait_reload, use);
    await(use);
  }

  void add(ActionKind kind, std::size_t use) {
    Action row = uses_[use].row;
    row.kind = kind;
    row.leg = Leg::whole;
    made_.push_back(row);
  }

  const std::vector<Action>& rows_;
  std::vector<BufferUse> uses_;
  std::size_t ahead_;
  std::map<std::size_t, std::vector<std::size_t>> begin_at_;   // by row: the uses that it begins
  std::map<std::size_t, std::vector<std::size_t>> end_at_;     // the forward ones that it ends
  std::map<std::size_t, std::vector<std::size_t>> reload_at_;  // and those that start before it
  std::vector<std::size_t> leaving_;  // uses whose copies out nobody has waited for
  std::vector<Action> made_;
};

}  // namespace

std::vector<Action> copy_to_host(const std::vector<Action>& rows, const ScheduleInput& input,
                                 int ahead) {
  return Copier(rows, input.forms, ahead).write();
}

}  // namespace trainctl
