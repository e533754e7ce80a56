// The report at the end of a run: measured values compared with planned ones, briefly in the log
// and in full in measured.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "comm/world.h"
#include "config/schema/config.h"
#include "engine/engine.h"
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

/// Reports the time of the last step, the ledger of the median step, the rank whose memory departs
/// most from the plan, by category, and whether the collectives and messages of every rank in the
/// last step were the planned ones, with a warning for each that differs. At log.level debug the
/// lines also go to stderr. Writes log.trace. On rank 0 returns the text of measured.json with the
/// numbers of all ranks; empty if a measurement failed, after a warning. `source`: the trace of
/// this session, which includes the last step. `peak`: only on rank 0. `matmul_flops`: FLOP/s,
/// measured at the start; the other rates are measured unless the configuration gives them.
/// Collective. Throws only Error{peer}.
std::string measure_end(const TraceSource& source, const Config& config, Engine& engine,
                        const ProductPeak* peak, double matmul_flops);

/// On rank 0, writes measured.json, unless `measured` is empty, and report.html. A failure is only
/// a warning: a run without a report keeps its weights and its exit code. Throws Error{taken}.
void write_reports(const std::filesystem::path& directory, const std::string& measured,
                   const Fence& fence);

/// Writes report.html of the run in `directory`. Throws Error{io}, and the errors of the fence and
/// of read_run_files.
void draw_report(const std::filesystem::path& directory, const Fence& fence);

}  // namespace trainctl
