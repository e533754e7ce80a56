#include "engine/ledger.h"

#include <algorithm>
#include <cassert>

#include "base/at.h"

namespace trainctl {

namespace {

void add_row(std::span<const Action> rows, const Action& row, const RowRecord& record,
             Ledger& ledger) {
  const double work = record.finish - record.start - record.waited;
  const TimeSpent& spent = record.spent;
  switch (row.kind) {
    case ActionKind::forward:
    case ActionKind::repeat:
    case ActionKind::backward_input:
    case ActionKind::backward_weight:
      ledger.products += spent.products;
      ledger.tp += spent.collectives;
      ledger.kernels += work - spent.products - spent.collectives;
      ledger.bubble += record.waited;  // for a buffer that another stage has not yet read
      return;
    case ActionKind::gather:
    case ActionKind::wait_gather:
    case ActionKind::free: ledger.gather += work + record.waited; return;
    case ActionKind::reduce: ledger.dp += work; return;
    case ActionKind::offload:
    case ActionKind::wait_offload:
    case ActionKind::reload:
    case ActionKind::wait_reload: ledger.host += work + record.waited; return;
    case ActionKind::wait_reduce:
      ledger.dp += work;
      // That of a tied embedding waits for the other end of the pipeline.
      (sums_embedding(rows, row.bucket) ? ledger.bubble : ledger.dp) += record.waited;
      return;
    case ActionKind::step:
      ledger.bubble += spent.collectives;  // the norm, for which all ranks meet
      ledger.optimizer += work - spent.collectives;
      return;
    case ActionKind::reduce_embedding:
    case ActionKind::send_forward:
    case ActionKind::send_backward:
    case ActionKind::receive_forward:
    case ActionKind::receive_backward:
    case ActionKind::wait_forward:
    case ActionKind::wait_backward:
      ledger.p2p += work;
      ledger.bubble += record.waited;
      return;
    default: ledger.rest += work + record.waited;
  }
}

/// When a message was posted: its batch is posted as its first row begins.
double posted_at(const Plan& plan, std::span<const Action> rows, std::span<const RowRecord> records,
                 std::size_t row) {
  if (plan.messages.mode == MessageMode::batched) {
    while (row > 0 && is_message(rows[row - 1].kind)) --row;
  }
  return records[row].start;
}

/// What the ranks tell each other about their messages: when each send row was posted.
class Posts {
 public:
  /// Collective.
  Posts(const TraceSource& source, std::int64_t step, double offset) : plan_(source.plan) {
    for (const StagePlan& stage : plan_.stages) {
      const auto sends = std::count_if(stage.actions.begin(), stage.actions.end(), is_send);
      most_ = std::max(most_, static_cast<std::size_t>(sends));
    }
    std::vector<double> mine;
    const auto rows = source.trace.rows();
    const auto records = source.trace.step(step);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (is_send(rows[i])) mine.push_back(posted_at(plan_, rows, records, i) + offset);
    }
    mine.resize(most_);
    times_.resize(most_ * static_cast<std::size_t>(source.everyone.size()));
    Stream stream(DeviceKind::cpu, "ledger", Stream::Mode::run_inline);
    if (most_ > 0) gather_values(source.everyone, mine, times_, stream);
  }

  /// When the sender of what `row` receives posted it, in rank 0's clock.
  double of(int rank, const Action& row) const {
    const bool forward =
        row.kind == ActionKind::receive_forward || row.kind == ActionKind::wait_forward;
    const ChunkPlaces places = plan_.map.places();
    const int stage = static_cast<int>(plan_.mesh.coordinate(rank, Axis::pp));
    const auto from = forward ? places.before(stage, row.chunk) : places.after(stage, row.chunk);
    assert(from);
    const ActionKind kind = forward ? ActionKind::send_forward : ActionKind::send_backward;
    std::size_t number = 0;
    for (const Action& other : at(plan_.stages, from->stage).actions) {
      if (!is_send(other)) continue;
      const bool same =
          other.kind == kind && other.chunk == from->chunk && other.microbatch == row.microbatch;
      if (same) break;
      ++number;
    }
    const int sender = plan_.mesh.group(rank, Axis::pp)[static_cast<std::size_t>(from->stage)];
    return times_[static_cast<std::size_t>(sender) * most_ + std::min(number, most_ - 1)];
  }

 private:
  static bool is_send(const Action& row) { return is_message(row.kind) && !is_receive(row.kind); }
  const Plan& plan_;
  std::size_t most_ = 0;  // sends of a rank
  std::vector<double> times_;
};

/// When the last message was posted that the wait of row `row` was for: a batch has its time at its
/// first receive.
double last_post(const TraceSource& source, const Posts& posts, std::size_t row) {
  const auto rows = source.trace.rows();
  const int rank = source.everyone.rank();
  double last = posts.of(rank, rows[row]);
  if (source.plan.messages.mode != MessageMode::batched) return last;
  for (++row; row < rows.size() && is_message(rows[row].kind); ++row) {
    if (is_receive(rows[row].kind)) last = std::max(last, posts.of(rank, rows[row]));
  }
  return last;
}

/// Moves the waiting for messages that were under way from `bubble` to `p2p`.
void split_waits(const TraceSource& source, std::int64_t step, double offset, Ledger& ledger) {
  const Posts posts(source, step, offset);
  const auto rows = source.trace.rows();
  const auto records = source.trace.step(step);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const bool waits = is_receive(rows[i].kind) || is_message_wait(rows[i].kind);
    if (!waits || records[i].waited <= 0) continue;
    const double finish = records[i].finish + offset;
    const double moved = std::clamp(finish - last_post(source, posts, i), 0.0, records[i].waited);
    ledger.p2p += moved;
    ledger.bubble -= moved;
  }
}

/// The kept step of median time; of an even number the faster one in the middle.
std::int64_t median_step(const Trace& trace) {
  std::vector<std::pair<double, std::int64_t>> steps;
  std::int64_t step = trace.first_kept_step();
  if (step == 1 && trace.completed_steps() > 1) ++step;  // it touches all memory first
  for (; step <= trace.completed_steps(); ++step) {
    steps.emplace_back(trace.seconds_of(step), step);
  }
  std::sort(steps.begin(), steps.end());
  return steps[(steps.size() - 1) / 2].second;
}

std::vector<double> values_of(const Ledger& ledger) {
  std::vector<double> values;
  for (const LedgerEntry& entry : ledger_entries) values.push_back(ledger.*entry.seconds);
  return values;
}

}  // namespace

Ledger own_ledger(const Trace& trace, std::int64_t step) {
  Ledger ledger;
  const auto rows = trace.rows();
  const auto records = trace.step(step);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    add_row(rows, rows[i], records[i], ledger);
    if (i > 0) ledger.bubble += records[i].start - records[i - 1].finish;  // all ranks met
  }
  ledger.rest += trace.seconds_of(step) - (records.back().finish - records.front().start);
  return ledger;
}

MeasuredLedgers measure_ledgers(const TraceSource& source) {
  const Trace& trace = source.trace;
  assert(trace.completed_steps() > 0);
  MeasuredLedgers measured;
  measured.of_steps = trace.completed_steps() - trace.first_kept_step() + 1;
  const double chosen = static_cast<double>(median_step(trace));
  measured.step = static_cast<std::int64_t>(gather_values(source.everyone, chosen).front());
  measured.behind = trace.completed_steps() - measured.step;
  Ledger mine = own_ledger(trace, measured.step);
  const double offset = clock_offset(source);
  split_waits(source, measured.step, offset, mine);
  measured.seconds = gather_values(source.everyone, trace.seconds_of(measured.step));
  std::vector<double> all(ledger_entries.size() * measured.seconds.size());
  Stream stream(DeviceKind::cpu, "ledger", Stream::Mode::run_inline);
  std::vector<double> values = values_of(mine);
  gather_values(source.everyone, values, all, stream);
  measured.by_rank.resize(measured.seconds.size());
  std::size_t next = 0;
  for (Ledger& ledger : measured.by_rank) {
    for (const LedgerEntry& entry : ledger_entries) ledger.*entry.seconds = all[next++];
  }
  return measured;
}

}  // namespace trainctl
