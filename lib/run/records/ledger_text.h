// The ledgers of the ranks as text: a table on stderr and members of measured.json.
#pragma once

#include <string>
#include <vector>

#include "engine/ledger.h"
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

/// "step 1.00 s, planned 0.90 s (-10 %); products +0.08 s, bubble +0.02 s": the three kinds that
/// differ most, measured less planned, and only what is at least a hundredth of the step.
std::string differences_text(const Ledger& planned, const Ledger& measured);

}  // namespace trainctl
