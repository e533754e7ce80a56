// The time of a step on one rank, planned or measured, split by use: every second is in one entry.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "plan/cost/step_time.h"
#include "plan/plan.h"

namespace trainctl {

struct Ledger {          // seconds of one rank in one step
  double products = 0;   // matrix products
  double kernels = 0;    // other operations of the passes, including attention
  double tp = 0;         // collectives inside layers
  double dp = 0;         // waiting for gradient sums
  double gather = 0;     // waiting for parameters that other ranks updated
  double host = 0;       // waiting for copies to and from the host
  double p2p = 0;        // messages between stages, after the sender has posted them
  double bubble = 0;     // waiting for work of other ranks
  double optimizer = 0;  // gradient norm and update
  double rest = 0;       // data, clearing of gradients, and time outside of rows
  double total() const;
};

struct LedgerEntry {
  std::string_view key;   // key in files
  std::string_view text;  // displayed name
  double Ledger::*seconds;
};
/// All entries, in display order.
inline constexpr std::array<LedgerEntry, 10> ledger_entries{{
    {"products", "matrix products", &Ledger::products},
    {"kernels", "other operations", &Ledger::kernels},
    {"tp", "collectives in layers", &Ledger::tp},
    {"dp", "gradient sums", &Ledger::dp},
    {"gather", "parameter gathers", &Ledger::gather},
    {"host", "copies to the host", &Ledger::host},
    {"p2p", "messages of stages", &Ledger::p2p},
    {"bubble", "bubble", &Ledger::bubble},
    {"optimizer", "optimizer", &Ledger::optimizer},
    {"rest", "the rest", &Ledger::rest},
}};

/// For each stage, the planned time of one of its ranks (step_time.h). `bubble` is the rank's idle
/// time if messages took no time; `p2p` is the idle time that messages add.
std::vector<Ledger> estimate_ledgers(const Plan& plan, const Rates& rates);
std::vector<Ledger> estimate_ledgers(const Plan& plan, const StagePricesList& prices);
/// The planned times with the prices of the device of section cluster; empty if it names no device.
std::vector<Ledger> estimate_ledgers(const Plan& plan, const ClusterConfig& cluster);

}  // namespace trainctl
