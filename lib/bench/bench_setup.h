// The common start of both benchmarks: a plan for one rank of this machine, and random tokens.
#pragma once

#include <vector>

#include "bench/bench.h"
#include "config/schema/config.h"
#include "data/batch.h"
#include "plan/plan.h"

namespace trainctl {

struct BenchSetup {
  Config config;
  Plan plan;
};

/// Reads the config for a world of one rank. Throws Error{config} with the rendered diagnostics.
BenchSetup read_bench_setup(const BenchRequest& request);

/// One step's micro-batches of random tokens, each with weight 1.
std::vector<Batch> random_batches(const Plan& plan);

}  // namespace trainctl
