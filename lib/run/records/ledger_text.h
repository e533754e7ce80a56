// The ledgers and timers of the ranks as text: tables on stderr and members of measured.json.
#pragma once

#include <string>
#include <vector>

#include "engine/ledger.h"
#include "engine/timers.h"
#include "formats/json_text.h"

namespace trainctl {

/// One object with a member for each entry.
void add_ledger(const char* key, const Ledger& ledger, JsonText& json);

/// The mean of some ledgers, of which there is at least one.
Ledger mean_of(const std::vector<Ledger>& ledgers);

/// Lines for people: planned and measured seconds as means over the ranks, and the least and the
/// most that a rank measured. `planned` has one ledger per rank. `step`: as the run
/// counts.
std::vector<std::string> ledger_table(const std::vector<Ledger>& planned,
                                      const MeasuredLedgers& measured, std::int64_t step);

/// Lines for people: of each timer the least and the most that a rank spent in it, as a mean over
/// the steps from number `first` to `last`.
std::vector<std::string> timer_lines(const std::vector<TimerRange>& timers, std::int64_t first,
                                     std::int64_t last);

}  // namespace trainctl
