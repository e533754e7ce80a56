// The report at the end of a run: planned next to measured values, in short in the log and in full
// in measured.json; the result.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "comm/world.h"
#include "config/schema/config.h"
#include "engine/ledger.h"
#include "engine/report.h"
#include "plan/cost/step_time.h"
#include "plan/plan.h"
#include "run/records/product_peak.h"

namespace trainctl {

struct EndReport {
  const Plan& plan;
  const Config& config;
  World& world;
  Group& everyone;              // all ranks of the world in order
  const MemoryEstimate& taken;  // by this rank: Engine::memory()
  const MeasuredStep& step;
  const MeasuredLedgers& ledgers;
  const std::string& timeline;  // timeline_json
  const ProductPeak* peak;      // on rank 0
  const Rates& rates;           // what `time` was estimated from
  const TimeEstimate& time;
};

/// The last step's time; the ledger of the median step; the rank whose memory departs most from the
/// plan, by category; whether every rank's collectives and messages in the last step were the
/// planned ones, with a warning for each that was not. Rank 0 writes all ranks' numbers to `file`.
/// Collective. Throws Error{io} on rank 0.
/// The short form is for stderr too where log.level is debug.
void tell_measured(const EndReport& report, const std::filesystem::path& file);

/// What a session of rank 0 came to.
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
