// The report at the end of a run: measured values compared with planned ones, briefly in the log
// and in full in measured.json, and the lines that tell the result.
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
  bool at_most = false;      // whether `planned` is only a bound of the bytes
  bool fewer_calls = false;  // whether `planned` is only a bound of the calls
  bool same_bytes() const {
    return at_most ? measured.bytes <= planned.bytes : measured.bytes == planned.bytes;
  }
  bool same_calls() const {
    return fewer_calls ? measured.count <= planned.count : measured.count == planned.count;
  }
  bool same() const { return same_calls() && same_bytes(); }
};

/// `planned` is of this rank (estimate_communication). Its rows come first, then unplanned traffic.
std::vector<TrafficRow> compare_traffic(const std::vector<CollectiveUse>& planned,
                                        const Traffic& traffic);

/// One line for each row whose measured use differs from the planned one, such as "all_reduce
/// 'gradients dp': 4 calls with 1,024 bytes, planned 3 with 768"; empty if none differs.
std::string differences(const std::vector<TrafficRow>& rows);

struct EndMeasures {
  const TraceSource& source;  // trace of this session, which includes the last step
  World& world;
  const Config& config;
  const MemoryEstimate& taken;  // memory that this rank allocated: Engine::memory()
  const DeviceWorld& devices;
  std::int64_t step = 0;              // number of the last step in the run
  const ProductPeak* peak = nullptr;  // only on rank 0
  const std::optional<Rates>& given;  // rates from the configuration; measured if there are none
  double matmul_flops = 0;            // FLOP/s, measured at the start
};

/// Reports the time of the last step, the ledger of the median step, the rank whose memory departs
/// most from the plan, by category, and whether the collectives and messages of every rank in the
/// last step were the planned ones, with a warning for each that differs. At log.level debug the
/// lines also go to stderr. Writes log.trace. On rank 0 returns the text of measured.json with the
/// numbers of all ranks; empty if a measurement failed, after a warning. Collective. Throws only
/// Error{peer}.
std::string measure_end(const EndMeasures& measures);

/// On rank 0, writes measured.json, unless `measured` is empty, and report.html. A failure is only
/// a warning: a run without a report keeps its weights and its exit code. Throws Error{taken}.
void write_reports(const std::filesystem::path& directory, const std::string& measured,
                   const Fence& fence);

/// Writes report.html of the run in `directory`. Throws Error{io}, and the errors of the fence and
/// of read_run_files.
void draw_report(const std::filesystem::path& directory, const Fence& fence);

/// The result of a session, as rank 0 tells it.
struct SessionResult {
  const StepReport& last;
  std::int64_t steps = 0;  // number of steps of this session
  double seconds = 0;      // duration of these steps, with validation and checkpoints between them
  std::filesystem::path directory;
  bool reported = false;  // whether report.html was written
  bool saved = false;     // whether the weights that `generate` needs were saved
};

/// The last lines of a run: loss, time, the report, and the command that uses the result.
void tell_result(const SessionResult& result);

}  // namespace trainctl
