// The executor's records of the rows that ran, and the trace file made of them.
#include "engine/trace.h"

#include <unistd.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.h"
#include "catch.h"
#include "sample_run.h"

using namespace trainctl;

namespace {

namespace fs = std::filesystem;

class TraceFolder {
 public:
  ~TraceFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  fs::path file() const { return path_ / "deep" / "trace.json"; }

 private:
  fs::path path_ = fs::temp_directory_path() / ("trainctl-trace-" + std::to_string(::getpid()));
};

struct TracedRun {
  Plan plan;
  nlohmann::json file;
  MeasuredStep measured;
  std::vector<std::unique_ptr<Trace>> traces;  // by rank; their rows are gone
};

struct TracedInput {
  std::vector<std::string> set_options;
  int ranks = 1;
  int steps = 3;
  std::int64_t kept_steps = 1;
};

TracedRun traced_run(const TracedInput& input) {
  const TraceFolder folder;
  TracedRun run;
  run.traces.resize(static_cast<std::size_t>(input.ranks));
  const auto make_trace = [&](const World& world, const Plan& plan) {
    auto& trace = run.traces[static_cast<std::size_t>(world.rank())];
    if (world.rank() == 0) run.plan = plan;
    trace = std::make_unique<Trace>(plan.stage_of(world.rank()).actions, input.kept_steps);
    return trace.get();
  };
  const auto after = [&](World& world, const Plan& plan) {
    std::vector<int> ranks(static_cast<std::size_t>(world.size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    const auto everyone = world.group("all", ranks);
    const TraceSource source{.trace = *run.traces[static_cast<std::size_t>(world.rank())],
                             .plan = plan,
                             .world = world,
                             .everyone = *everyone,
                             .deadline_seconds = 30};
    const MeasuredStep measured = measure_last_step(source);
    write_trace(folder.file(), source, input.kept_steps);
    if (world.rank() > 0) return;
    run.measured = measured;
    std::ifstream stream(folder.file());
    run.file = nlohmann::json::parse(stream);
  };
  train_sample({.set_options = input.set_options,
                .ranks = input.ranks,
                .steps = input.steps,
                .world = {},
                .make_trace = make_trace,
                .after_training = after});
  return run;
}

/// The rows of one rank and step, in the order of the file.
std::vector<nlohmann::json> slices_of(const nlohmann::json& file, int rank, int step) {
  std::vector<nlohmann::json> found;
  for (const nlohmann::json& event : file["traceEvents"]) {
    if (event["ph"] == "X" && event["pid"] == rank && event["args"]["step"] == step) {
      found.push_back(event);
    }
  }
  return found;
}

int count_phase(const nlohmann::json& file, const std::string& phase) {
  int count = 0;
  for (const nlohmann::json& event : file["traceEvents"]) count += event["ph"] == phase ? 1 : 0;
  return count;
}

int count_rows(const Plan& plan, int rank, ActionKind kind) {
  int count = 0;
  for (const Action& row : plan.stage_of(rank).actions) count += row.kind == kind ? 1 : 0;
  return count;
}

void check_slices(const std::vector<nlohmann::json>& slices, const std::vector<Action>& rows) {
  REQUIRE(slices.size() == rows.size());
  double end = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double start = slices[i]["ts"];
    const double duration = slices[i]["dur"];
    const double waited = slices[i]["args"]["waited_us"];
    CHECK(slices[i]["name"] == to_string(rows[i]));
    CHECK(slices[i]["args"]["row"] == i);
    CHECK(start >= end - 1e-3);  // a nanosecond
    CHECK(duration >= 0);
    CHECK(waited <= duration + 2e-3);
    end = start + duration;
  }
}

const std::vector<std::string> over_two_stages{"parallel.pipeline_stages=2",
                                               "train.micro_batch_size=1"};

}  // namespace

TEST_CASE("each planned row of each rank is in the trace once, in order, without overlap",
          "[threads]") {
  const std::string scheduler = GENERATE("1f1b", "gpipe");
  std::vector<std::string> options = over_two_stages;
  options.push_back("parallel.pipeline.scheduler=" + scheduler);
  const TracedRun run = traced_run({.set_options = options, .ranks = 4});
  CHECK(count_phase(run.file, "M") == 3 * 4);
  std::size_t slices = 0;
  for (int rank = 0; rank < 4; ++rank) {
    INFO(scheduler << ", rank " << rank);
    const auto& rows = run.plan.stage_of(rank).actions;
    check_slices(slices_of(run.file, rank, 3), rows);
    slices += rows.size();
  }
  CHECK(static_cast<std::size_t>(count_phase(run.file, "X")) == slices);
}

TEST_CASE("a message takes its time at the receive of its batch") {
  const TracedRun run = traced_run({.set_options = over_two_stages, .ranks = 2});
  for (int rank = 0; rank < 2; ++rank) {
    const auto& rows = run.plan.stage_of(rank).actions;
    const auto records = run.traces[static_cast<std::size_t>(rank)]->step(3);
    int sends = 0;
    double received = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const double seconds = records[i].finish - records[i].start;
      const bool sends_now =
          rows[i].kind == ActionKind::send_forward || rows[i].kind == ActionKind::send_backward;
      const bool receives = rows[i].kind == ActionKind::receive_forward ||
                            rows[i].kind == ActionKind::receive_backward;
      if (sends_now) CHECK(records[i].waited == 0);
      if (receives) CHECK(records[i].waited == seconds);
      sends += sends_now ? 1 : 0;
      received += receives ? seconds : 0;
    }
    CHECK(sends > 0);
    CHECK(received > 0);
  }
}

TEST_CASE("every gradient sum has a start and an end") {
  const TracedRun run = traced_run({.set_options = {}, .ranks = 2, .kept_steps = 2});
  const int buckets = count_rows(run.plan, 0, ActionKind::reduce);
  CHECK(buckets > 1);
  CHECK(count_phase(run.file, "b") == 2 * 2 * buckets);
  CHECK(count_phase(run.file, "e") == 2 * 2 * buckets);
}

TEST_CASE("only the last steps are kept") {
  const TracedRun run = traced_run({.set_options = {}, .ranks = 1, .steps = 5, .kept_steps = 2});
  const auto& rows = run.plan.stage_of(0).actions;
  CHECK(slices_of(run.file, 0, 3).empty());
  check_slices(slices_of(run.file, 0, 4), rows);
  check_slices(slices_of(run.file, 0, 5), rows);
  const TracedRun shorter =
      traced_run({.set_options = {}, .ranks = 1, .steps = 2, .kept_steps = 4});
  CHECK(shorter.traces[0]->first_kept_step() == 1);
  CHECK(count_phase(shorter.file, "X") == static_cast<int>(2 * rows.size()));
}

TEST_CASE("the last step is measured over all ranks") {
  const TracedRun run = traced_run({.set_options = over_two_stages, .ranks = 2});
  CHECK(run.measured.step == 3);
  CHECK(run.measured.forward_backward_seconds > 0);
  CHECK(run.measured.optimizer_seconds > 0);
  CHECK(run.measured.exposed_seconds >= 0);
  CHECK(run.measured.bubble_fraction > 0);
  CHECK(run.measured.bubble_fraction < 1);
}

TEST_CASE("a trace that no engine was given stays empty") {
  Trace unused({}, 1);
  train_sample({.set_options = {}, .ranks = 1, .steps = 2, .world = {}});
  CHECK(unused.completed_steps() == 0);
}

TEST_CASE("a step that failed is not kept") {
  const std::vector<Action> rows(3);
  Trace trace(rows, 2);
  trace.begin_step();
  trace.finish_row();
  trace.begin_step();
  for (int row = 0; row < 3; ++row) trace.finish_row();
  CHECK(trace.completed_steps() == 1);
  CHECK(trace.step(1).size() == 3);
}

TEST_CASE("a trace that cannot be written is an error with its path") {
  const std::vector<Action> rows(1);
  Trace trace(rows, 1);
  trace.begin_step();
  trace.finish_row();
  const auto world = self_world();
  const int self = 0;
  const auto everyone = world->group("all", {&self, 1});
  Plan plan;
  plan.stages.resize(1);
  plan.stages[0].actions = rows;
  const TraceSource source{
      .trace = trace, .plan = plan, .world = *world, .everyone = *everyone, .deadline_seconds = 5};
  for (const char* path : {"/dev/null/below/trace.json", "/proc/trace.json"}) {
    try {
      write_trace(path, source, 1);
      FAIL("it was written");
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::io);
      CHECK_THAT(error.what(), Catch::Contains("/dev/null/below") || Catch::Contains("/proc/"));
    }
  }
}
