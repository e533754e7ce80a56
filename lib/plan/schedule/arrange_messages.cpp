#include <algorithm>

#include "plan/schedule/schedule.h"

namespace trainctl {

namespace {

/// What a stage has to send it posts before it waits for anything: its neighbour may be waiting for
/// that.
std::vector<Action> one_by_one(std::vector<Action> rows) {
  for (auto begin = rows.begin(); begin != rows.end();) {
    const auto end =
        std::find_if(begin, rows.end(), [](const Action& row) { return !is_message(row.kind); });
    std::stable_partition(begin, end, [](const Action& row) { return !is_receive(row.kind); });
    begin = end == rows.end() ? end : end + 1;
  }
  return rows;
}

/// Sends stand right behind the pass that makes them, receives before the pass that comes before
/// the one that needs them, and a wait before that one.
class Overlap {
 public:
  explicit Overlap(const std::vector<Action>& rows) : rows_(rows) {}

  std::vector<Action> run() {
    for (std::size_t at = 0; at < rows_.size(); ++at) {
      const Action& row = rows_[at];
      if (is_receive(row.kind)) {
        receive(row, at);
      } else if (is_message(row.kind)) {
        send(row);
      } else {
        if (is_pass(row.kind)) begin_pass(row, at);
        result_.push_back(row);
      }
    }
    return std::move(result_);
  }

 private:
  static bool same_place(const Action& a, const Action& b) {
    return a.chunk == b.chunk && a.microbatch == b.microbatch;
  }

  bool needs(const Action& pass, const Action& received) const {
    const bool forward = received.kind == ActionKind::receive_forward;
    const ActionKind kind = forward ? ActionKind::forward : ActionKind::backward_input;
    return pass.kind == kind && same_place(pass, received);
  }

  void receive(const Action& row, std::size_t at) {
    const auto next = std::find_if(rows_.begin() + static_cast<std::ptrdiff_t>(at), rows_.end(),
                                   [](const Action& other) { return is_pass(other.kind); });
    received_.push_back(row);
    if (!any_pass_ || next == rows_.end() || !needs(*next, row)) return result_.push_back(row);
    result_.insert(result_.begin() + static_cast<std::ptrdiff_t>(pass_begin_++), row);
  }

  void send(const Action& row) {
    const ActionKind kind =
        row.kind == ActionKind::send_forward ? ActionKind::forward : ActionKind::backward_input;
    std::size_t end = result_.size();
    while (end > 0 && !(result_[end - 1].kind == kind && same_place(result_[end - 1], row))) --end;
    // W that follows its B at once stays with it: the two are one pass.
    const bool pair = end > 0 && end < result_.size() && kind == ActionKind::backward_input &&
                      result_[end].kind == ActionKind::backward_weight &&
                      same_place(result_[end], row);
    if (pair) ++end;
    result_.insert(result_.begin() + static_cast<std::ptrdiff_t>(end), row);
    if (end <= pass_begin_) ++pass_begin_;
  }

  void begin_pass(const Action& row, std::size_t at) {
    const bool pair = row.kind == ActionKind::backward_weight && at > 0 &&
                      rows_[at - 1].kind == ActionKind::backward_input &&
                      same_place(rows_[at - 1], row);
    if (pair) return;
    any_pass_ = true;
    pass_begin_ = result_.size();
    const auto received = std::find_if(received_.begin(), received_.end(),
                                       [&](const Action& one) { return needs(row, one); });
    if (received == received_.end()) return;
    Action wait = *received;
    wait.kind = received->kind == ActionKind::receive_forward ? ActionKind::wait_forward
                                                              : ActionKind::wait_backward;
    result_.push_back(wait);
    received_.erase(received);
  }

  const std::vector<Action>& rows_;
  std::vector<Action> result_;
  std::vector<Action> received_;  // and not yet waited for
  std::size_t pass_begin_ = 0;    // of the last pass, in `result_`
  bool any_pass_ = false;
};

}  // namespace

std::vector<Action> arrange_messages(std::vector<Action> rows, const ScheduleInput& input) {
  switch (input.messages.mode) {
    case MessageMode::batched: return rows;
    case MessageMode::single: return one_by_one(std::move(rows));
    case MessageMode::overlapped: return Overlap(rows).run();
  }
  return rows;
}

}  // namespace trainctl
