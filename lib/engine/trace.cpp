#include "engine/trace.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <chrono>

#include "base/hash.h"
#include "device/cuda_device.h"

namespace trainctl {

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// One step of one rank, in rank 0's clock.
struct RankStep {
  double begin = 0;
  double forward_backward_end = 0;
  double end = 0;
  double busy = 0;  // before the optimizer
  double exposed = 0;
};
constexpr std::size_t rank_step_values = 5;

RankStep measure_rank(std::span<const Action> rows, std::span<const RowRecord> records,
                      double offset) {
  RankStep step{.begin = records.front().start + offset,
                .forward_backward_end = records.back().finish + offset,
                .end = records.back().finish + offset};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].kind == ActionKind::step) {
      step.forward_backward_end = records[i].start + offset;
      break;
    }
    if (is_message(rows[i].kind)) continue;
    step.busy += records[i].finish - records[i].start - records[i].waited;
    const bool sum = rows[i].kind == ActionKind::wait_reduce;
    const bool exposed = rows[i].kind == ActionKind::wait_gather || is_host_copy(rows[i].kind) ||
                         (sum && !sums_embedding(rows, rows[i].bucket));
    if (exposed) step.exposed += records[i].waited;
  }
  return step;
}

}  // namespace

Trace::Trace(std::span<const Action> rows, std::int64_t steps, bool ranges)
    : rows_(rows),
      kept_steps_(steps),
      ring_(rows.size() * static_cast<std::size_t>(steps)),
      seconds_(static_cast<std::size_t>(steps)),
      ranges_(ranges) {}

void Trace::follow(const Stream& compute) {
  device_ = &compute;
  name_rows();
}

/// The names are made here, since a step allocates nothing.
void Trace::name_rows() {
  names_.clear();
  if (!ranges_ || device_ == nullptr) return;
  for (const Action& row : rows_) names_.push_back(to_string(row));
}

void Trace::start_row() {
  if (names_.empty()) return;
  cuda_module().begin_range(names_[next_].c_str());
  in_range_ = true;
}

void Trace::end_range() {
  if (!in_range_) return;
  cuda_module().end_range();
  in_range_ = false;
}

void Trace::change_rows(std::span<const Action> rows) {
  rows_ = rows;
  ring_.resize(rows.size() * static_cast<std::size_t>(kept_steps_));
  before_ = completed_;
  name_rows();
}

void Trace::begin_step() {
  next_ = 0;  // a step that failed is overwritten
  end_range();
  marks_.clear();
  begun_ = now();
  leave_out();
}

double Trace::point() {
  return device_ == nullptr ? now() : static_cast<double>(marks_.set(*device_));
}

void Trace::leave_out() {
  spent_ = spent_so_far();
  mark_ = wait_end_ = point();
}

void Trace::note_wait() { wait_end_ = point(); }

void Trace::finish_row() {
  end_range();
  const TimeSpent before = spent_;
  spent_ = spent_so_far();
  add({mark_, point(), wait_end_, spent_ - before});
}

void Trace::finish_messages(std::size_t count) {
  end_range();
  const auto batch = rows_.subspan(next_, count);
  const auto found = std::find_if(batch.begin(), batch.end(),
                                  [](const Action& row) { return is_receive(row.kind); });
  const auto timed =
      found != batch.end() ? static_cast<std::size_t>(found - batch.begin()) : count - 1;
  const double begin = mark_;
  const double finish = point();
  spent_ = spent_so_far();
  for (std::size_t i = 0; i < count; ++i) {
    const bool waits = i == timed && found != batch.end();
    add({mark_, i < timed ? begin : finish, waits ? finish : mark_});
  }
}

void Trace::keep_step() {
  const auto begin =
      ring_.begin() + static_cast<std::ptrdiff_t>(slot_of(completed_) * rows_.size());
  kept_.assign(begin, begin + std::ssize(rows_));
}

void Trace::repeat_step() {
  begun_ = now();
  ++completed_;
  std::ranges::copy(
      kept_, ring_.begin() + static_cast<std::ptrdiff_t>(slot_of(completed_) * rows_.size()));
}

void Trace::end_step(double seconds) {
  seconds_[slot_of(completed_)] = seconds;
  if (device_ == nullptr) return;
  const auto time = [this](double mark) {
    return begun_ + marks_.seconds(static_cast<std::size_t>(mark));
  };
  for (RowRecord& record :
       std::span(ring_).subspan(slot_of(completed_) * rows_.size(), rows_.size())) {
    const double start = time(record.start);
    record = {start, time(record.finish), time(record.waited) - start};
  }
}

/// `waited`: until when. Of a device it stays so until the step ends.
void Trace::add(RowRecord record) {
  const auto slot = static_cast<std::size_t>(completed_ % kept_steps_);
  mark_ = wait_end_ = record.finish;
  if (device_ == nullptr) record.waited -= record.start;
  ring_[slot * rows_.size() + next_] = record;
  if (++next_ == rows_.size()) ++completed_;
}

std::int64_t Trace::first_kept_step() const {
  return std::max(before_ + 1, completed_ - kept_steps_ + 1);
}

std::span<const RowRecord> Trace::step(std::int64_t step) const {
  assert(step >= first_kept_step() && step <= completed_);
  return std::span(ring_).subspan(slot_of(step) * rows_.size(), rows_.size());
}

double clock_offset(const TraceSource& source) {
  const auto hosts = gather_values(source.everyone, fnv1a(source.world.host()));
  const auto clocks = gather_values(source.everyone, now());
  const auto self = static_cast<std::size_t>(source.everyone.rank());
  return hosts[self] == hosts[0] ? 0 : clocks[0] - clocks[self];
}

bool sums_embedding(std::span<const Action> rows, int bucket) {
  return std::any_of(rows.begin(), rows.end(), [&](const Action& row) {
    return row.kind == ActionKind::reduce_embedding && row.bucket == bucket;
  });
}

MeasuredStep measure_last_step(const TraceSource& source) {
  const Trace& trace = source.trace;
  const double offset = clock_offset(source);
  const RankStep mine = measure_rank(trace.rows(), trace.step(trace.completed_steps()), offset);
  std::array<double, rank_step_values> values{mine.begin, mine.forward_backward_end, mine.end,
                                              mine.busy, mine.exposed};
  const auto ranks = static_cast<std::size_t>(source.everyone.size());
  std::vector<double> all(ranks * rank_step_values);
  Stream stream(DeviceKind::cpu, "trace", Stream::Mode::run_inline);
  gather_values(source.everyone, values, all, stream);
  double begin = all[0];
  double middle = all[1];
  double end = all[2];
  double worked = 0;  // or waited for gradients, all ranks
  MeasuredStep measured{.step = trace.completed_steps()};
  for (std::size_t at = 0; at < all.size(); at += rank_step_values) {
    begin = std::min(begin, all[at]);
    middle = std::max(middle, all[at + 1]);
    end = std::max(end, all[at + 2]);
    worked += all[at + 3] + all[at + 4];
    measured.exposed_seconds = std::max(measured.exposed_seconds, all[at + 4]);
  }
  measured.forward_backward_seconds = middle - begin;
  measured.optimizer_seconds = end - middle;
  const double time = (middle - begin) * static_cast<double>(ranks);
  measured.bubble_fraction = time > 0 ? std::max(0.0, 1 - worked / time) : 0;
  return measured;
}

}  // namespace trainctl
