#include "run/end_report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <new>
#include <string>

#include "base/at.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/units.h"
#include "engine/trace.h"
#include "formats/print/text.h"
#include "ops/cpu_level.h"
#include "plan/cost/device_prices.h"
#include "plan/cost/estimate.h"
#include "run/rates.h"
#include "run/records/step_records.h"
#include "run/views/report_page.h"
#include "run/views/run_files.h"

namespace trainctl {

namespace {

TrafficRow& row_of(std::vector<TrafficRow>& rows, GroupOperation operation,
                   const std::string& group) {
  const auto same = std::find_if(rows.begin(), rows.end(), [&](const TrafficRow& row) {
    return row.operation == operation && row.group == group;
  });
  return same != rows.end() ? *same : rows.emplace_back(TrafficRow{operation, group, {}, {}});
}

}  // namespace

std::vector<TrafficRow> compare_traffic(const std::vector<CollectiveUse>& planned,
                                        const Traffic& traffic) {
  std::vector<TrafficRow> rows;
  for (const CollectiveUse& use : planned) {
    TrafficRow& row = row_of(rows, use.operation, group_name(use.purpose, use.group));
    row.planned.count += use.count;
    row.planned.bytes += use.bytes;
    row.at_most = row.at_most || use.at_most;
    row.fewer_calls = row.fewer_calls || use.fewer_calls;
  }
  for (const Traffic::Row& group : traffic.rows()) {
    for (std::size_t i = 0; i < group.uses.size(); ++i) {
      if (group.uses[i].count == 0) continue;
      row_of(rows, static_cast<GroupOperation>(i), group.group).measured = group.uses[i];
    }
  }
  return rows;
}

std::string differences(const std::vector<TrafficRow>& rows) {
  std::string text;
  for (const TrafficRow& row : rows) {
    if (row.same()) continue;
    text += std::string(name_of(row.operation)) + " '" + row.group +
            "': " + format_grouped(row.measured.count) + " calls with " +
            format_grouped(row.measured.bytes) + " bytes, planned " +
            (row.fewer_calls ? "at most " : "") + format_grouped(row.planned.count) +
            (row.at_most ? " with at most " : " with ") + format_grouped(row.planned.bytes) + "\n";
  }
  return text;
}

// The rows of a measured step as written to measured.json, for the drawing in the report.

namespace {

/// A short name of a row; its first letter is the kind, by which the report chooses the colour.
std::string name_of(const Action& row) {
  const std::string pass = std::to_string(row.microbatch) + "." + std::to_string(row.chunk);
  switch (row.kind) {
    case ActionKind::forward: return "F" + pass;
    case ActionKind::repeat: return "R" + pass;
    case ActionKind::backward_input: return "B" + pass;
    case ActionKind::backward_weight: return "W" + pass;
    case ActionKind::step: return "o";
    case ActionKind::reduce:
    case ActionKind::reduce_embedding:
    case ActionKind::wait_reduce: return "s";
    case ActionKind::gather:
    case ActionKind::wait_gather:
    case ActionKind::free: return "g";
    case ActionKind::offload:
    case ActionKind::wait_offload:
    case ActionKind::reload:
    case ActionKind::wait_reload: return "h";
    case ActionKind::send_forward:
    case ActionKind::send_backward:
    case ActionKind::receive_forward:
    case ActionKind::receive_backward:
    case ActionKind::wait_forward:
    case ActionKind::wait_backward: return "m";
    default: return "d";
  }
}

/// The rows of one rank as JSON, without rows of no length.
std::string rows_json(const TraceSource& source, std::int64_t step, double zero) {
  JsonText json;
  json.open_object(JsonText::Form::one_line);
  json.member("rank", source.everyone.rank());
  json.key("rows").open_array();
  const auto rows = source.trace.rows();
  const auto records = source.trace.step(step);
  const auto micro = [](double seconds) { return std::llround(seconds * 1e6); };
  for (std::size_t i = 0; i < rows.size();) {
    const std::string name = name_of(rows[i]);
    const double start = records[i].start;
    double finish = start;
    double waited = 0;
    for (; i < rows.size() && name_of(rows[i]) == name; ++i) {
      finish = records[i].finish;
      waited += records[i].waited;
    }
    if (micro(finish - start) == 0) continue;
    json.open_array();
    json.value(name);
    json.value(static_cast<std::int64_t>(micro(start - zero)));
    json.value(static_cast<std::int64_t>(micro(finish - start)));
    json.value(static_cast<std::int64_t>(micro(waited)));
    json.close();
  }
  json.close();
  json.close();
  return json.text();
}

/// On rank 0 the JSON of {"step", "ranks": [{"rank", "rows": [[name, start, length, waited],
/// ...]}]} in microseconds, with one rank per stage, else "". Neighbouring rows of one micro-batch
/// and kind are merged. `step` is the number in the trace, `shown` in the run. Collective.
std::string timeline_json(const TraceSource& source, std::int64_t step, std::int64_t shown) {
  const double offset = clock_offset(source);
  const double start = source.trace.step(step).front().start + offset;
  const auto starts = gather_values(source.everyone, start);
  const double zero = *std::min_element(starts.begin(), starts.end()) - offset;
  const Mesh& mesh = source.plan.mesh;
  const int rank = source.everyone.rank();
  const bool first = mesh.coordinate(rank, Axis::dp) == 0 && mesh.coordinate(rank, Axis::tp) == 0 &&
                     mesh.coordinate(rank, Axis::cp) == 0;
  const auto all =
      gather_bytes(source.everyone, first ? rows_json(source, step, zero) : std::string(), 0);
  if (rank != 0) return "";
  JsonText json;
  json.open_object();
  json.member("step", shown);
  json.key("ranks").open_array();
  for (const std::string& one : all) {
    if (!one.empty()) json.json(one);
  }
  json.close();
  json.close();
  return json.text();
}

struct EndReport {
  const Plan& plan;
  const Config& config;
  World& world;
  Group& everyone;              // all ranks of the world in order
  const MemoryEstimate& taken;  // memory that this rank allocated
  const MeasuredStep& step;
  const MeasuredLedgers& ledgers;
  const std::string& timeline;  // timeline_json
  const ProductPeak* peak;
  const Rates& rates;  // basis of `time` if `machine` is unset
  const TimeEstimate& time;
  const std::optional<Machine>& machine;  // from section cluster, if it names a device
};

struct Category {
  const char* name;
  std::int64_t MemoryEstimate::*bytes;
};
// Categories that a rank can measure. Data and runtime appear only in the peak of the process.
constexpr std::array<Category, 6> categories{{{"parameters", &MemoryEstimate::parameters},
                                              {"gradients", &MemoryEstimate::gradients},
                                              {"optimizer", &MemoryEstimate::optimizer},
                                              {"activations", &MemoryEstimate::activations},
                                              {"offloaded", &MemoryEstimate::offloaded},
                                              {"communication", &MemoryEstimate::communication}}};
/// The planned ledger of each rank.
std::vector<Ledger> planned_ledgers(const EndReport& report) {
  const Plan& plan = report.plan;
  const std::vector<Ledger> by_stage =
      report.machine
          ? estimate_ledgers(plan, device_prices(plan, price_list(plan, *report.machine)))
          : estimate_ledgers(plan, report.rates);
  std::vector<Ledger> ledgers;
  for (int rank = 0; rank < report.everyone.size(); ++rank) {
    ledgers.push_back(at(by_stage, report.plan.mesh.coordinate(rank, Axis::pp)));
  }
  return ledgers;
}

constexpr std::size_t per_rank = categories.size() + 1;  // in `all`: categories, planned traffic

std::string rank_json(const EndReport& report, const std::vector<TrafficRow>& rows) {
  constexpr auto one_line = JsonText::Form::one_line;
  const int rank = report.world.rank();
  const MemoryEstimate& planned = report.plan.stage_of(rank).memory;
  JsonText json;
  json.open_object(one_line);
  json.member("rank", rank);
  json.key("memory").open_object();
  for (const Category& category : categories) {
    json.key(category.name)
        .row("planned", planned.*category.bytes, "measured", report.taken.*category.bytes);
  }
  json.close();
  json.key("communication").open_array();
  for (const TrafficRow& row : rows) {
    json.open_object();
    json.member("operation", name_of(row.operation));
    json.member("group", row.group);
    json.key("planned").row("count", row.planned.count, "bytes", row.planned.bytes);
    json.key("measured").row("count", row.measured.count, "bytes", row.measured.bytes);
    json.close();
  }
  json.close();
  json.close();
  return json.text();
}

/// Number in the run of the step that the ledgers describe.
std::int64_t ledger_step(const EndReport& report) {
  return report.step.step - report.ledgers.behind;
}

void add_ledgers(const EndReport& report, const std::vector<Ledger>& planned, JsonText& json) {
  const MeasuredLedgers& measured = report.ledgers;
  json.key("ledger").open_object();
  json.member("step", ledger_step(report));
  json.member("of_steps", measured.of_steps);
  add_ledger("planned", mean_of(planned), json);
  add_ledger("measured", mean_of(measured.by_rank), json);
  json.key("ranks").open_array();
  for (std::size_t rank = 0; rank < planned.size(); ++rank) {
    json.open_object();
    json.member("rank", static_cast<std::int64_t>(rank));
    json.member("seconds", measured.seconds[rank]);
    add_ledger("planned", planned[rank], json);
    add_ledger("measured", measured.by_rank[rank], json);
    json.close();
  }
  json.close();
  json.close();
}

std::string document(const EndReport& report, const std::vector<Ledger>& planned,
                     const std::vector<std::string>& ranks) {
  const MeasuredStep& step = report.step;
  JsonText json;
  json.open_object();
  const auto pair = [&](const char* name, double left, double right) {
    json.key(name).row("planned", left, "measured", right);
  };
  json.member("step", step.step);
  json.member("cpu_level", name_of(cpu_level()));
  pair("forward_backward_seconds", report.time.forward_backward, step.forward_backward_seconds);
  pair("exposed_seconds", report.time.exposed, step.exposed_seconds);
  pair("optimizer_seconds", report.time.optimizer, step.optimizer_seconds);
  pair("bubble_fraction", report.plan.bubble_fraction, step.bubble_fraction);
  const Rates& rates = report.rates;
  json.key("cluster").row("matmul_flops", rates.matmul_flops, "memory_bandwidth",
                          rates.memory_bandwidth, "latency", rates.latency, "bandwidth",
                          rates.bandwidth);
  if (const auto& on = report.time.on_device) {
    json.key("prices").row("device", on->device, "software", on->software, "trust", on->trust,
                           "expected_error", on->expected_error);
  }
  json.key("mfu_peak").row("flops", report.peak->flops(), "source", report.peak->source());
  add_ledgers(report, planned, json);
  json.key("timeline").json(report.timeline);
  json.json_member("ranks", ranks);
  json.close();
  return json.take();
}

/// The rank with the largest difference in one category, as a share of all its planned bytes.
int max_different(const Plan& plan, const std::vector<double>& all) {
  int worst = 0;
  double most = -1;
  for (std::size_t at = 0; at < all.size(); at += per_rank) {
    const int rank = static_cast<int>(at / per_rank);
    const MemoryEstimate& planned = plan.stage_of(rank).memory;
    for (std::size_t i = 0; i < categories.size(); ++i) {
      const double difference =
          std::abs(all[at + i] - static_cast<double>(planned.*categories[i].bytes)) /
          static_cast<double>(std::max<std::int64_t>(1, planned.total()));
      if (difference <= most) continue;
      most = difference;
      worst = rank;
    }
  }
  return worst;
}

std::string pair_line(const std::string& name, const std::string& planned,
                      const std::string& measured) {
  return "  " + padded(name, 20) + padded_left(planned, 12) + padded_left(measured, 14);
}

using Lines = std::vector<std::string>;

void add_time(const Plan& plan, const TimeEstimate& planned, const MeasuredStep& step,
              Lines& lines) {
  const auto seconds = [&lines](const char* name, double left, double right) {
    lines.push_back(pair_line(name, format_seconds(left), format_seconds(right)));
  };
  lines.push_back(pair_line("step " + std::to_string(step.step), "planned", "measured"));
  seconds("forward, backward", planned.forward_backward, step.forward_backward_seconds);
  seconds("exposed transfers", planned.exposed, step.exposed_seconds);
  seconds("optimizer", planned.optimizer, step.optimizer_seconds);
  lines.push_back(
      pair_line("bubble", percent(plan.bubble_fraction), percent(step.bubble_fraction)));
}

void add_memory(const Plan& plan, const std::vector<double>& all, Lines& lines) {
  const int rank = max_different(plan, all);
  const MemoryEstimate& planned = plan.stage_of(rank).memory;
  lines.push_back(pair_line("rank " + std::to_string(rank), "planned", "measured"));
  for (std::size_t i = 0; i < categories.size(); ++i) {
    const double measured = all[static_cast<std::size_t>(rank) * per_rank + i];
    lines.push_back(pair_line(categories[i].name, format_bytes(planned.*categories[i].bytes),
                              format_bytes(static_cast<std::int64_t>(measured))));
  }
}

std::string traffic_line(const std::vector<TrafficRow>& rows, const std::vector<double>& all) {
  std::int64_t count = 0;
  std::int64_t bytes = 0;
  for (const TrafficRow& row : rows) {
    count += row.measured.count;
    bytes += row.measured.bytes;
  }
  std::int64_t same = 0;
  for (std::size_t at = per_rank - 1; at < all.size(); at += per_rank) same += all[at] > 0 ? 1 : 0;
  const auto ranks = static_cast<std::int64_t>(all.size() / per_rank);
  return "collectives and messages: " + format_grouped(count) + " with " + format_bytes(bytes) +
         " in the last step of rank 0; as planned on " + format_grouped(same) + " of " +
         grouped_count(ranks, "rank");
}

/// Memory takes some twenty lines: they are in the log, and on stderr only with --verbose.
void tell(const Lines& lines, LogLevel level) {
  for (const std::string& line : lines) {
    if (level == LogLevel::debug) {
      log_debug(line);
    } else {
      log_to_file(LogLevel::info, line);
    }
  }
}

std::string tell_measured(const EndReport& report) {
  const auto planned_uses =
      estimate_communication(report.plan, report.world.rank(), step_numbers(report.config));
  const auto rows = compare_traffic(planned_uses, report.world.traffic());
  const std::string differs = differences(rows);
  if (!differs.empty()) log_warning("not as planned: " + differs);
  std::array<double, per_rank> mine{};
  for (std::size_t i = 0; i < categories.size(); ++i) {
    mine[i] = static_cast<double>(report.taken.*categories[i].bytes);
  }
  mine.back() = differs.empty() ? 1 : 0;
  std::vector<double> all(per_rank * static_cast<std::size_t>(report.everyone.size()));
  Stream stream(DeviceKind::cpu, "measured", Stream::Mode::run_inline);
  gather_values(report.everyone, mine, all, stream);
  const auto ranks = gather_bytes(report.everyone, rank_json(report, rows), 0);
  if (report.world.rank() != 0) return "";
  Lines lines;
  add_time(report.plan, report.time, report.step, lines);
  const std::vector<Ledger> planned = planned_ledgers(report);
  for (const std::string& line : ledger_table(planned, report.ledgers, ledger_step(report))) {
    lines.push_back(line);
  }
  const std::string apart = differences_text(mean_of(planned), mean_of(report.ledgers.by_rank));
  // Users who ask for the prices of a device want to know whether they hold.
  if (report.machine) {
    log_info("planned on " + report.machine->device.name + ", against measured: " + apart);
  } else {
    lines.push_back("planned against measured: " + apart);
  }
  add_memory(report.plan, all, lines);
  lines.push_back(traffic_line(rows, all));
  tell(lines, report.config.log.level);
  return document(report, planned, ranks);
}

/// Runs `body`. Its failure does not fail the run: returns false after a warning.
template <class Body>
bool try_to_report(const Body& body) {
  try {
    body();
    return true;
  } catch (const Error& error) {
    const bool ends = error.code() == ExitCode::taken || error.code() == ExitCode::peer;
    if (ends) throw;
    log_warning(std::string("not reported: ") + error.what());
  } catch (const std::bad_alloc&) {
    log_warning("not reported: there is not enough memory");
  }
  return false;
}

std::string measure_step(const TraceSource& source, const Config& config, Engine& engine,
                         const ProductPeak* peak, double matmul_flops) {
  MeasuredStep step = measure_last_step(source);
  step.step = engine.train_state().step;  // the trace counts only steps of this session
  const MeasuredLedgers ledgers = measure_ledgers(source);
  const std::string timeline = timeline_json(source, ledgers.step, step.step - ledgers.behind);
  const LogConfig& log = config.log;
  if (!log.trace.empty()) {
    const bool traced = try_to_report([&] { write_trace(log.trace, source, log.trace_steps); });
    if (source.world.rank() == 0 && traced) log_info("trace: " + log.trace);
  }
  std::optional<Rates> rates = given_rates(config.cluster);
  if (!rates) rates = measure_rates(source.everyone, engine.devices(), matmul_flops);
  if (!rates) return "";
  const Plan& plan = source.plan;
  const auto machine = machine_of(config.cluster, plan.mesh.world_size());
  const TimeEstimate time =
      machine ? estimate_time(plan, *machine, config.checkpoint, config.cluster, config.train.steps)
              : estimate_time(plan, *rates);
  return tell_measured({plan, config, source.world, source.everyone, engine.memory(), step, ledgers,
                        timeline, peak, *rates, time, machine});
}

}  // namespace

std::string measure_end(const TraceSource& source, const Config& config, Engine& engine,
                        const ProductPeak* peak, double matmul_flops) {
  std::string text;
  try_to_report([&] { text = measure_step(source, config, engine, peak, matmul_flops); });
  return text;
}

void write_reports(const std::filesystem::path& directory, const std::string& measured,
                   const Fence& fence) {
  if (!measured.empty()) {
    try_to_report([&] { write_whole_file(directory / "measured.json", measured, fence); });
  }
  try_to_report([&] { draw_report(directory, fence); });
}

void draw_report(const std::filesystem::path& directory, const Fence& fence) {
  write_whole_file(directory / "report.html",
                   report_page({read_run_files(directory)}, seconds_since_1970()), fence);
}

}  // namespace trainctl
