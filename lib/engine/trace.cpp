#include "engine/trace.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cmath>

#include "base/at.h"
#include "base/error.h"
#include "base/file.h"
#include "base/integers.h"
#include "base/json_text.h"
#include "base/text.h"
#include "device/cuda_device.h"

namespace trainctl {

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Whether the wait row of a bucket waits for a tied embedding's sum.
bool sums_embedding(std::span<const Action> rows, int bucket) {
  return std::ranges::any_of(rows, [&](const Action& row) {
    return row.kind == ActionKind::reduce_embedding && row.bucket == bucket;
  });
}

/// One step of one rank, in rank 0's clock.
struct RankStep {
  double begin = 0;
  double forward_backward_end = 0;
  double end = 0;
  double busy = 0;  // seconds of work before the optimizer
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

/// Makes the names of the rows in advance, since a step allocates nothing.
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
  const auto found =
      std::ranges::find_if(batch, [](const Action& row) { return is_receive(row.kind); });
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
  const auto records = records_of(completed_);
  kept_.assign(records.begin(), records.end());
}

void Trace::repeat_step() {
  begun_ = now();
  ++completed_;
  std::ranges::copy(kept_, records_of(completed_).begin());
}

void Trace::end_step(double seconds) {
  seconds_[slot_of(completed_)] = seconds;
  if (device_ == nullptr) return;
  const auto time = [this](double mark) {
    return begun_ + marks_.seconds(static_cast<std::size_t>(mark));
  };
  for (RowRecord& record : records_of(completed_)) {
    const double start = time(record.start);
    record = {start, time(record.finish), time(record.waited) - start};
  }
}

/// `record.waited` is the time when waiting ended; for a device, end_step makes it a duration.
void Trace::add(RowRecord record) {
  mark_ = wait_end_ = record.finish;
  if (device_ == nullptr) record.waited -= record.start;
  records_of(completed_ + 1)[next_] = record;
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

MeasuredStep measure_last_step(const TraceSource& source) {
  const Trace& trace = source.trace;
  const double offset = clock_offset(source);
  const RankStep mine = measure_rank(trace.rows(), trace.step(trace.completed_steps()), offset);
  std::array<double, rank_step_values> values{mine.begin, mine.forward_backward_end, mine.end,
                                              mine.busy, mine.exposed};
  const std::vector<double> all = gather_values(source.everyone, values);
  double begin = all[0];
  double middle = all[1];
  double end = all[2];
  double worked = 0;  // work and exposed communication, all ranks
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
  const double time = (middle - begin) * source.everyone.size();
  measured.bubble_fraction = time > 0 ? std::max(0.0, 1 - worked / time) : 0;
  return measured;
}

namespace {

double& of(TimerSeconds& seconds, Timer timer) { return at(seconds, timer); }

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
    case ActionKind::wait_reload: return;  // counted only in forward_backward
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
  double end = records.front().start;  // end of the last row before the optimizer
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
  const std::vector<double> all = gather_values(everyone, sums_);
  std::vector<TimerRange> ranges;
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    if (level_of(static_cast<Timer>(i)) > level_) continue;
    TimerRange range{timer_names[i], all[i], all[i]};
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

namespace {

/// The first of the last `steps` steps of which records are kept.
std::int64_t first_of(const Trace& trace, std::int64_t steps) {
  return std::max(trace.first_kept_step(), trace.completed_steps() - steps + 1);
}

std::string_view category(ActionKind kind) {
  switch (kind) {
    case ActionKind::fetch: return "data";
    case ActionKind::forward: return "forward";
    case ActionKind::repeat: return "repeat";
    case ActionKind::backward_input: return "backward_input";
    case ActionKind::backward_weight: return "backward_weight";
    case ActionKind::send_forward:
    case ActionKind::receive_forward:
    case ActionKind::send_backward:
    case ActionKind::receive_backward:
    case ActionKind::wait_forward:
    case ActionKind::wait_backward: return "message";
    case ActionKind::offload:
    case ActionKind::wait_offload:
    case ActionKind::reload:
    case ActionKind::wait_reload: return "host copies";
    case ActionKind::step: return "optimizer";
    case ActionKind::gather:
    case ActionKind::wait_gather:
    case ActionKind::free: return "parameters";
    default: return "gradient sums";
  }
}

/// The events of one file, rank after rank.
class TraceText {
 public:
  explicit TraceText(double zero) : zero_(zero) {
    json_.open_object();
    json_.member("displayTimeUnit", "ms");
    json_.key("traceEvents").open_array();
  }

  void add_rank(const Plan& plan, int rank) {
    rank_ = rank;
    std::string name = formatted("rank {}:", rank);
    for (const Axis axis : {Axis::pp, Axis::dp, Axis::cp, Axis::tp}) {
      if (plan.mesh.size(axis) == 1) continue;
      name += formatted(" {} {}", name_of(axis), plan.mesh.coordinate(rank, axis));
    }
    if (name.back() == ':') name.pop_back();
    add_metadata("process_name", "name", name);
    add_metadata("process_sort_index", "sort_index", static_cast<std::int64_t>(rank));
    add_metadata("thread_name", "name", std::string("compute"));
  }

  void add_step(std::int64_t step, std::span<const Action> rows,
                std::span<const RowRecord> records) {
    std::vector<int> under_way;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const Action& row = rows[i];
      add_row(step, i, row, records[i]);
      if (row.kind == ActionKind::gather) add_exchange("b", "gather", step, row, records[i].start);
      if (row.kind == ActionKind::wait_gather) {
        add_exchange("e", "gather", step, row, records[i].finish);
      }
      const auto place = std::ranges::find(under_way, row.bucket);
      const bool starts =
          row.kind == ActionKind::reduce || row.kind == ActionKind::reduce_embedding;
      if (starts && place == under_way.end()) {
        add_exchange("b", "gradient sum", step, row, records[i].start);
        under_way.push_back(row.bucket);
      }
      if (row.kind == ActionKind::wait_reduce && place != under_way.end()) {
        add_exchange("e", "gradient sum", step, row, records[i].finish);
        under_way.erase(place);
      }
    }
  }

  std::string take() {
    json_.close();
    json_.close();
    return json_.take();
  }

 private:
  std::int64_t nanoseconds(double seconds) const { return std::llround((seconds - zero_) * 1e9); }

  void open(std::string_view phase, std::string_view name) {
    json_.open_object(JsonText::Form::one_line);
    json_.member("ph", phase);
    json_.member("pid", rank_);
    json_.member("tid", 0);
    json_.member("name", name);
  }

  template <class Value>
  void add_metadata(std::string_view what, std::string_view key, const Value& value) {
    open("M", what);
    json_.key("args").open_object();
    json_.member(key, value);
    json_.close();
    json_.close();
  }

  void add_row(std::int64_t step, std::size_t index, const Action& row, const RowRecord& record) {
    const std::int64_t start = nanoseconds(record.start);
    open("X", to_string(row));
    json_.member("cat", category(row.kind));
    json_.member("ts", static_cast<double>(start) / 1e3);
    json_.member("dur", static_cast<double>(nanoseconds(record.finish) - start) / 1e3);
    json_.key("args").open_object();
    json_.member("step", step);
    json_.member("row", static_cast<std::int64_t>(index));
    json_.member("waited_us", std::round(record.waited * 1e9) / 1e3);
    if (is_pass(row.kind)) {
      json_.member("products_us", std::round(record.spent.products * 1e9) / 1e3);
      json_.member("collectives_us", std::round(record.spent.collectives * 1e9) / 1e3);
    }
    json_.close();
    json_.close();
  }

  void add_exchange(std::string_view phase, std::string_view name, std::int64_t step,
                    const Action& row, double at) {
    open(phase, name);
    json_.member("cat", category(row.kind));
    json_.member("id", formatted("{}.{}.{}", rank_, step, row.bucket));
    json_.member("ts", static_cast<double>(nanoseconds(at)) / 1e3);
    json_.key("args").open_object();
    json_.member("bucket", row.bucket);
    json_.close();
    json_.close();
  }

  JsonText json_;
  double zero_;
  int rank_ = 0;
};

void finish(const Event& event, const TraceSource& source) {
  await(event, source.deadline_seconds, [] { return "the message with a step's records"; });
}

/// Sends this rank's records to rank 0, one message for each step.
void send_records(const TraceSource& source, std::int64_t steps, double offset, Stream& stream) {
  std::vector<RowRecord> records;
  const Trace& trace = source.trace;
  for (std::int64_t step = first_of(trace, steps); step <= trace.completed_steps(); ++step) {
    const auto kept = trace.step(step);
    records.assign(kept.begin(), kept.end());
    for (RowRecord& record : records) {
      record.start += offset;
      record.finish += offset;
    }
    const Tensor bytes = host_tensor(reinterpret_cast<std::uint8_t*>(records.data()),
                                     std::ssize(records) * std::int64_t{sizeof(RowRecord)});
    finish(source.everyone.send(bytes, 0, 0, stream), source);
  }
}

std::string collect_records(const TraceSource& source, std::int64_t steps, double zero,
                            Stream& stream) {
  TraceText text(zero);
  std::vector<RowRecord> records;
  const Trace& trace = source.trace;
  for (int rank = 0; rank < source.everyone.size(); ++rank) {
    const std::vector<Action>& rows = source.plan.stage_of(rank).actions;
    records.resize(rows.size());
    const Tensor bytes = host_tensor(reinterpret_cast<std::uint8_t*>(records.data()),
                                     std::ssize(records) * std::int64_t{sizeof(RowRecord)});
    text.add_rank(source.plan, rank);
    for (std::int64_t step = first_of(trace, steps); step <= trace.completed_steps(); ++step) {
      if (rank > 0) finish(source.everyone.receive(bytes, rank, 0, stream), source);
      text.add_step(step, rows, rank > 0 ? records : trace.step(step));
    }
  }
  return text.take();
}

}  // namespace

void write_trace(const std::filesystem::path& path, const TraceSource& source, std::int64_t steps) {
  const Trace& trace = source.trace;
  require(trace.completed_steps() > 0, ExitCode::internal, "no step was recorded");
  const double offset = clock_offset(source);
  const double first = trace.step(first_of(trace, steps)).front().start + offset;
  const auto starts = gather_values(source.everyone, first);
  Stream stream(DeviceKind::cpu, "trace", Stream::Mode::run_inline);
  if (source.everyone.rank() > 0) return send_records(source, steps, offset, stream);
  const double zero = *std::ranges::min_element(starts);
  const std::string text = collect_records(source, steps, zero, stream);
  if (path.has_parent_path()) {
    std::error_code failure;
    std::filesystem::create_directories(path.parent_path(), failure);
    require(!failure, ExitCode::io,
            "cannot create the folder of " + path.string() + ": " + failure.message());
  }
  write_whole_file(path, text);
}

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
      ledger.bubble += record.waited;  // waiting for a buffer that another stage has not yet read
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
      // The sum for a tied embedding waits for the other end of the pipeline.
      (sums_embedding(rows, row.bucket) ? ledger.bubble : ledger.dp) += record.waited;
      return;
    case ActionKind::step:
      ledger.bubble += spent.collectives;  // the collectives of the norm, where all ranks meet
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

/// The time at which row `row` was posted: a batch is posted as its first row begins.
double posted_at(const Plan& plan, std::span<const Action> rows, std::span<const RowRecord> records,
                 std::size_t row) {
  if (plan.messages.mode == MessageMode::batched) {
    while (row > 0 && is_message(rows[row - 1].kind)) --row;
  }
  return records[row].start;
}

/// The times at which all ranks posted their sends, gathered on every rank.
class Posts {
 public:
  /// Collective.
  Posts(const TraceSource& source, std::int64_t step, double offset) : plan_(source.plan) {
    for (const StagePlan& stage : plan_.stages) {
      const auto sends = std::ranges::count_if(stage.actions, is_send);
      max_ = std::max(max_, static_cast<std::size_t>(sends));
    }
    std::vector<double> mine;
    const auto rows = source.trace.rows();
    const auto records = source.trace.step(step);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (is_send(rows[i])) mine.push_back(posted_at(plan_, rows, records, i) + offset);
    }
    mine.resize(max_);
    if (max_ > 0) times_ = gather_values(source.everyone, mine);
  }

  /// When the message that `row` of `rank` receives was posted by its sender, in rank 0's clock.
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
    const int sender = at(plan_.mesh.group(rank, Axis::pp), from->stage);
    return times_[static_cast<std::size_t>(sender) * max_ + std::min(number, max_ - 1)];
  }

 private:
  static bool is_send(const Action& row) { return is_message(row.kind) && !is_receive(row.kind); }
  const Plan& plan_;
  std::size_t max_ = 0;  // most sends of any rank
  std::vector<double> times_;
};

/// The time at which the last message awaited by row `row` was posted; the first receive of a batch
/// waits for all its messages.
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

/// The kept step of median time; the faster of the two middle steps if their number is even.
std::int64_t median_step(const Trace& trace) {
  std::vector<std::pair<double, std::int64_t>> steps;
  std::int64_t step = trace.first_kept_step();
  if (step == 1 && trace.completed_steps() > 1) ++step;  // the first step touches all memory first
  for (; step <= trace.completed_steps(); ++step) {
    steps.emplace_back(trace.seconds_of(step), step);
  }
  std::ranges::sort(steps);
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
    if (i > 0) ledger.bubble += records[i].start - records[i - 1].finish;  // a barrier
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
  std::vector<double> values = values_of(mine);
  const std::vector<double> all = gather_values(source.everyone, values);
  measured.by_rank.resize(measured.seconds.size());
  std::size_t next = 0;
  for (Ledger& ledger : measured.by_rank) {
    for (const LedgerEntry& entry : ledger_entries) ledger.*entry.seconds = all[next++];
  }
  return measured;
}

}  // namespace trainctl
