#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/json_text.h"
#include "base/whole_file.h"
#include "comm/await.h"
#include "engine/trace.h"

namespace trainctl {

namespace {

/// The first of the last `steps` that are kept.
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
  const double zero = *std::min_element(starts.begin(), starts.end());
  const std::string text = collect_records(source, steps, zero, stream);
  if (path.has_parent_path()) {
    std::error_code failure;
    std::filesystem::create_directories(path.parent_path(), failure);
    require(!failure, ExitCode::io,
            "cannot create the folder of " + path.string() + ": " + failure.message());
  }
  write_whole_file(path, text);
}

}  // namespace trainctl
