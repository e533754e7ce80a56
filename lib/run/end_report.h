// The report at the end of a run: measured against planned values, in short in the log and in full
// in measured.json; the result.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "comm/nccl/device_world.h"
#include "comm/world.h"
#include "config/schema/config.h"
#include "engine/report.h"
#include "engine/trace.h"
#include "plan/cost/step_time.h"
#include "plan/plan.h"
#include "run/records/step_records.h"

namespace trainctl {

/// All calls of one operation through the groups of one name, on one rank in one step.
struct TrafficRow {
  GroupOperation operation = GroupOperation::all_reduce;
  std::string group;  // group_name of plan/tables/mesh.h
  Traffic::Use planned;
  Traffic::Use measured;
  bool at_most = false;      // CollectiveUse::at_most
  bool fewer_calls = false;  // CollectiveUse::fewer_calls
  bool same_bytes() const {
    return at_most ? measured.bytes <= planned.bytes : measured.bytes == planned.bytes;
  }
  bool same_calls() const {
    return fewer_calls ? measured.count <= planned.count : measured.count == planned.count;
  }
  bool same() const { return same_calls() && same_bytes(); }
};

/// `planned`: of this rank (estimate_communication). Rows in its order, then those that it lacks.
std::vector<TrafficRow> compare_traffic(const std::vector<CollectiveUse>& planned,
                                        const Traffic& traffic);

/// "all_reduce 'gradients dp': 4 calls with 1,024 bytes, planned 3 with 768", one line for each row
/// that differs; empty if all are equal.
std::string differences(const std::vector<TrafficRow>& rows);

struct EndMeasures {
  const TraceSource& source;  // of the last step
  World& world;
  const Config& config;
  const MemoryEstimate& taken;  // by this rank: Engine::memory()
  const DeviceWorld& devices;
  std::int64_t step = 0;              // of the run
  const ProductPeak* peak = nullptr;  // on rank 0
  const std::optional<Rates>& given;  // by the configuration; else they are measured
  double matmul_flops = 0;            // measured at the start
};

/// The last step's time; the ledger of the median step; the rank whose memory departs most from the
/// plan, by category; whether every rank's collectives and messages in the last step were the
/// planned ones, with a warning for each that was not. The lines are for stderr too where log.level
/// is debug. Writes log.trace. Returns measured.json on
/// rank 0, with all ranks' numbers; empty where something is lacking, which a warning says.
/// Collective. Throws Error{peer} alone.
std::string measure_end(const EndMeasures& measures);

/// On rank 0, writes measured.json, unless it is empty, and report.html. A failure is only a
/// warning: a run without its report keeps its weights and its exit code. Throws Error{taken}.
void write_reports(const std::filesystem::path& directory, const std::string& measured,
                   const Fence& fence);

/// Draws the run in `directory` as report.html. Throws Error{io}, what the fence throws, and what
/// read_run_files throws.
void draw_report(const std::filesystem::path& directory, const Fence& fence);

/// The result of a session, on rank 0.
struct SessionResult {
  const StepReport& last;
  std::int64_t steps = 0;  // of this session
  double seconds = 0;      // that they took, with validation and checkpoints between them
  std::filesystem::path directory;
  bool reported = false;  // report.html is there
  bool saved = false;     // and what generate needs
};

/// The last lines of a run: loss, time, the report, and the command that uses the result.
void tell_result(const SessionResult& result);

}  // namespace trainctl
