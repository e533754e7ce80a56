#include "engine/timers.h"

#include <algorithm>
#include <cassert>

namespace trainctl {

namespace {

double& of(TimerSeconds& seconds, Timer timer) { return seconds[static_cast<std::size_t>(timer)]; }

void add_row(std::span<const Action> rows, const Action& row, const RowRecord& record,
             TimerSeconds& seconds) {
  const double all = record.finish - record.start;
  const double work = all - record.waited;
  switch (row.kind) {
    case ActionKind::fetch: of(seconds, Timer::batch) += all; return;
    case ActionKind::forward: of(seconds, Timer::forward_compute) += work; return;
    case ActionKind::repeat:
    case ActionKind::backward_input:
    case ActionKind::backward_weight: of(seconds, Timer::backward_compute) += work; return;
    case ActionKind::gather:
    case ActionKind::wait_gather:
    case ActionKind::free: of(seconds, Timer::params_gather) += all; return;
    case ActionKind::reduce: of(seconds, Timer::all_grads_sync) += all; return;
    case ActionKind::reduce_embedding: of(seconds, Timer::embedding_grads) += all; return;
    case ActionKind::wait_reduce: {
      const bool embedding = sums_embedding(rows, row.bucket);
      of(seconds, embedding ? Timer::embedding_grads : Timer::all_grads_sync) += all;
      return;
    }
    case ActionKind::offload:
    case ActionKind::wait_offload:
    case ActionKind::reload:
    case ActionKind::wait_reload: return;  // only in the whole
    case ActionKind::step: of(seconds, Timer::optimizer) += all; return;
    case ActionKind::send_forward: of(seconds, Timer::forward_send) += all; return;
    case ActionKind::receive_forward:
    case ActionKind::wait_forward: of(seconds, Timer::forward_recv) += all; return;
    case ActionKind::send_backward: of(seconds, Timer::backward_send) += all; return;
    case ActionKind::receive_backward:
    case ActionKind::wait_backward: of(seconds, Timer::backward_recv) += all; return;
  }
}

}  // namespace

TimerSeconds timers_of(const Trace& trace, std::int64_t step) {
  TimerSeconds seconds{};
  const auto rows = trace.rows();
  const auto records = trace.step(step);
  double end = records.front().start;  // of what comes before the optimizer
  for (std::size_t i = 0; i < rows.size(); ++i) {
    add_row(rows, rows[i], records[i], seconds);
    if (rows[i].kind != ActionKind::step) end = records[i].finish;
  }
  of(seconds, Timer::forward_backward) = end - records.front().start;
  of(seconds, Timer::interval) = trace.seconds_of(step);
  return seconds;
}

std::size_t end_of_passes(std::span<const Action> rows) {
  const auto last = std::find_if(rows.rbegin(), rows.rend(), [](const Action& row) {
    return is_pass(row.kind) || is_message(row.kind) || is_message_wait(row.kind);
  });
  return static_cast<std::size_t>(rows.rend() - last);
}

void TimerSums::add(const Trace& trace) {
  const TimerSeconds last = timers_of(trace, trace.completed_steps());
  for (std::size_t i = 0; i < sums_.size(); ++i) sums_[i] += last[i];
  ++steps_;
}

std::vector<TimerRange> TimerSums::take(Group& everyone) {
  assert(steps_ > 0);
  for (double& sum : sums_) sum /= static_cast<double>(steps_);
  std::vector<double> all(sums_.size() * static_cast<std::size_t>(everyone.size()));
  Stream stream(DeviceKind::cpu, "timers", Stream::Mode::run_inline);
  gather_values(everyone, sums_, all, stream);
  std::vector<TimerRange> ranges;
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    if (timer_names[i].level > level_) continue;
    TimerRange range{timer_names[i].name, all[i], all[i]};
    for (std::size_t at = i; at < all.size(); at += sums_.size()) {
      range.least = std::min(range.least, all[at]);
      range.most = std::max(range.most, all[at]);
    }
    if (range.most > 0) ranges.push_back(range);
  }
  sums_ = {};
  steps_ = 0;
  return ranges;
}

}  // namespace trainctl
