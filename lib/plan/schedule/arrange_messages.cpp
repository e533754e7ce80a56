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
  Overlap(const std::vector<Action>& rows, bool beside) : rows_(rows), beside_(beside) {}

  std::vector<Action> run() {
    for (std::size_t at = 0; at < rows_.size(); ++at) {
      const Action& row = rows_[at];
      if (is_receive(row.kind)) {
        receive(row, at);
      } else if (is_message(row.kind)) {
        send(row);
      } else {
        if (is_pass(row.kind)) begin_pass(at);
        result_.push_back(row);
      }
    }
    return std::move(result_);
  }

 private:
  static bool same_place(const Action& a, const Action& b) {
    return a.chunk == b.chunk && a.microbatch == b.microbatch;
  }

  /// Whether `row`, right behind `before`, is one pass with it: W with its B, and F with the B that
  /// runs beside it.
  bool continues(const Action& before, const Action& row) const {
    if (before.kind == ActionKind::forward) {
      return beside_ && row.kind == ActionKind::backward_input &&
             before.microbatch != row.microbatch;
    }
    return before.kind == ActionKind::backward_input && row.kind == ActionKind::backward_weight &&
           same_place(before, row);
  }
  std::size_t pass_end(const std::vector<Action>& rows, std::size_t at) const {
    std::size_t end = at + 1;
    while (end < rows.size() && continues(rows[end - 1], rows[end])) ++end;
    return end;
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
    const auto first = static_cast<std::size_t>(next - rows_.begin());
    bool needed = false;
    for (std::size_t i = first; next != rows_.end() && i < pass_end(rows_, first); ++i) {
      needed = needed || needs(rows_[i], row);
    }
    if (!any_pass_ || !needed) return result_.push_back(row);
    result_.insert(result_.begin() + static_cast<std::ptrdiff_t>(pass_begin_++), row);
  }

  void send(const Action& row) {
    const ActionKind kind =
        row.kind == ActionKind::send_forward ? ActionKind::forward : ActionKind::backward_input;
    std::size_t end = result_.size();
    while (end > 0 && !(result_[end - 1].kind == kind && same_place(result_[end - 1], row))) --end;
    if (end > 0) end = pass_end(result_, end - 1);
    result_.insert(result_.begin() + static_cast<std::ptrdiff_t>(end), row);
    if (end <= pass_begin_) ++pass_begin_;
  }

  void begin_pass(std::size_t at) {
    if (at > 0 && continues(rows_[at - 1], rows_[at])) return;
    any_pass_ = true;
    pass_begin_ = result_.size();
    for (std::size_t i = at; i < pass_end(rows_, at); ++i) await(rows_[i]);
  }

  void await(const Action& row) {
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
  bool beside_;
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
    case MessageMode::overlapped: return Overlap(rows, !input.legs.empty()).run();
  }
  return rows;
}

}  // namespace trainctl
