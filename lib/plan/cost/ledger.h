// The time of a step on one rank by its uses, planned or measured: every second is in one entry.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "plan/cost/step_time.h"
#include "plan/plan.h"

namespace trainctl {

struct Ledger {          // seconds of one rank in one step
  double products = 0;   // matrix products
  double kernels = 0;    // all other operations of the passes, attention among them
  double tp = 0;         // collectives inside layers
  double dp = 0;         // waiting for gradient sums
  double gather = 0;     // waiting for parameters that other ranks updated
  double host = 0;       // waiting for copies to and from the host
  double p2p = 0;        // messages between stages, from when the sender has posted them
  double bubble = 0;     // waiting for other ranks to come that far
  double optimizer = 0;  // norm and update
  double rest = 0;       // data, clearing of gradients, and what no row does
  double total() const;
};

struct LedgerEntry {
  std::string_view key;   // in files
  std::string_view text;  // for people
  double Ledger::*seconds;
};
/// All entries, in the order in which they are shown.
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

/// For each stage, what a rank of it is planned to spend (step_time.h). bubble: the idle time of
/// the same rows if messages took no time; p2p: what they add to it.
std::vector<Ledger> estimate_ledgers(const Plan& plan, const Rates& rates);
std::vector<Ledger> estimate_ledgers(const Plan& plan, const StagePricesList& prices);
/// By the prices of the device of section cluster; empty where it names none.
std::vector<Ledger> estimate_ledgers(const Plan& plan, const ClusterConfig& cluster);

}  // namespace trainctl
