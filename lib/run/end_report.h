// The report at the end of a run: planned next to measured values, in short on stderr and in full
// in measured.json.
#pragma once

#include <filesystem>
#include <string>

#include "comm/world.h"
#include "config/schema/config.h"
#include "engine/ledger.h"
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
void tell_measured(const EndReport& report, const std::filesystem::path& file);

}  // namespace trainctl
