#include "engine/trace.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <chrono>
#include <cmath>

#include "base/error.h"
#include "base/hash.h"
#include "base/whole_file.h"
#include "comm/await.h"
#include "formats/json_text.h"

namespace trainctl {

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// What to add to this rank's clock to get rank 0's. Ranks of one host share a clock; the others'
/// are compared as all leave a collective.
double clock_offset(const TraceSource& source) {
  const auto hosts = gather_values(source.everyone, fnv1a(source.world.host()));
  const auto clocks = gather_values(source.everyone, now());
  const auto self = static_cast<std::size_t>(source.everyone.rank());
  return hosts[self] == hosts[0] ? 0 : clocks[0] - clocks[self];
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

bool sums_embedding(std::span<const Action> rows, int bucket) {
  return std::any_of(rows.begin(), rows.end(), [&](const Action& row) {
    return row.kind == ActionKind::reduce_embedding && row.bucket == bucket;
  });
}

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
    const bool exposed =
        rows[i].kind == ActionKind::wait_gather || (sum && !sums_embedding(rows, rows[i].bucket));
    if (exposed) step.exposed += records[i].waited;
  }
  return step;
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
    std::string name = "rank " + std::to_string(rank) + ":";
    for (const Axis axis : {Axis::pp, Axis::dp, Axis::cp, Axis::tp}) {
      if (plan.mesh.size(axis) == 1) continue;
      name +=
          " " + std::string(name_of(axis)) + " " + std::to_string(plan.mesh.coordinate(rank, axis));
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
      const auto place = std::find(under_way.begin(), under_way.end(), row.bucket);
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
    json_.close();
    json_.close();
  }

  void add_exchange(std::string_view phase, std::string_view name, std::int64_t step,
                    const Action& row, double at) {
    open(phase, name);
    json_.member("cat", category(row.kind));
    json_.member("id", std::to_string(rank_) + "." + std::to_string(step) + "." +
                           std::to_string(row.bucket));
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

/// To rank 0, one message for each step.
void send_records(const TraceSource& source, double offset, Stream& stream) {
  std::vector<RowRecord> records;
  const Trace& trace = source.trace;
  for (std::int64_t step = trace.first_kept_step(); step <= trace.completed_steps(); ++step) {
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

std::string collect_records(const TraceSource& source, double zero, Stream& stream) {
  TraceText text(zero);
  std::vector<RowRecord> records;
  const Trace& trace = source.trace;
  for (int rank = 0; rank < source.everyone.size(); ++rank) {
    const std::vector<Action>& rows = source.plan.stage_of(rank).actions;
    records.resize(rows.size());
    const Tensor bytes = host_tensor(reinterpret_cast<std::uint8_t*>(records.data()),
                                     std::ssize(records) * std::int64_t{sizeof(RowRecord)});
    text.add_rank(source.plan, rank);
    for (std::int64_t step = trace.first_kept_step(); step <= trace.completed_steps(); ++step) {
      if (rank > 0) finish(source.everyone.receive(bytes, rank, 0, stream), source);
      text.add_step(step, rows, rank > 0 ? records : trace.step(step));
    }
  }
  return text.take();
}

}  // namespace

Trace::Trace(std::span<const Action> rows, std::int64_t steps)
    : rows_(rows), kept_steps_(steps), ring_(rows.size() * static_cast<std::size_t>(steps)) {}

void Trace::begin_step() {
  next_ = 0;  // a step that failed is overwritten
  waited_ = 0;
  mark_ = now();
}

void Trace::note_wait() { waited_ = now() - mark_; }

void Trace::finish_row() {
  add(now(), waited_);
  waited_ = 0;
}

void Trace::finish_messages(std::size_t count) {
  const auto batch = rows_.subspan(next_, count);
  const auto found = std::find_if(batch.begin(), batch.end(),
                                  [](const Action& row) { return is_receive(row.kind); });
  const auto timed =
      found != batch.end() ? static_cast<std::size_t>(found - batch.begin()) : count - 1;
  const double finish = now();
  const double waited = found != batch.end() ? finish - mark_ : 0;
  for (std::size_t i = 0; i < count; ++i) {
    add(i < timed ? mark_ : finish, i == timed ? waited : 0);
  }
}

void Trace::add(double finish, double waited) {
  const auto slot = static_cast<std::size_t>(completed_ % kept_steps_);
  ring_[slot * rows_.size() + next_] = {mark_, finish, waited};
  mark_ = finish;
  if (++next_ == rows_.size()) ++completed_;
}

std::int64_t Trace::first_kept_step() const {
  return std::max<std::int64_t>(1, completed_ - kept_steps_ + 1);
}

std::span<const RowRecord> Trace::step(std::int64_t step) const {
  assert(step >= first_kept_step() && step <= completed_);
  const auto slot = static_cast<std::size_t>((step - 1) % kept_steps_);
  return std::span(ring_).subspan(slot * rows_.size(), rows_.size());
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

void write_trace(const std::filesystem::path& path, const TraceSource& source) {
  const Trace& trace = source.trace;
  require(trace.completed_steps() > 0, ExitCode::internal, "no step was recorded");
  const double offset = clock_offset(source);
  const double first = trace.step(trace.first_kept_step()).front().start + offset;
  const auto starts = gather_values(source.everyone, first);
  Stream stream(DeviceKind::cpu, "trace", Stream::Mode::run_inline);
  if (source.everyone.rank() > 0) return send_records(source, offset, stream);
  const double zero = *std::min_element(starts.begin(), starts.end());
  const std::string text = collect_records(source, zero, stream);
  if (path.has_parent_path()) {
    std::error_code failure;
    std::filesystem::create_directories(path.parent_path(), failure);
    require(!failure, ExitCode::io,
            "cannot create the folder of " + path.string() + ": " + failure.message());
  }
  write_whole_file(path, text);
}

}  // namespace trainctl
