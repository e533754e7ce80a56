// The ledger of a step: every second of it is in one entry, planned and measured.
#include "engine/trace.h"

#include <cmath>
#include <memory>
#include <mutex>
#include <numeric>

#include "catch.h"
#include "sample_run.h"

using namespace trainctl;

namespace {

struct LedgerRun {
  MeasuredLedgers measured;
  std::vector<Ledger> own;  // by rank, of the same step
  std::vector<Ledger> planned;
  TimeEstimate time;
};

LedgerRun ledger_run(const std::vector<std::string>& options, int ranks) {
  LedgerRun run;
  run.own.resize(static_cast<std::size_t>(ranks));
  std::vector<std::unique_ptr<Trace>> traces(static_cast<std::size_t>(ranks));
  const auto make_trace = [&](const World& world, const Plan& plan) {
    auto& trace = traces[static_cast<std::size_t>(world.rank())];
    trace = std::make_unique<Trace>(plan.stage_of(world.rank()).actions, 3);
    return trace.get();
  };
  const auto after = [&](World& world, const Plan& plan) {
    std::vector<int> all(static_cast<std::size_t>(world.size()));
    std::iota(all.begin(), all.end(), 0);
    const auto everyone = world.group("all", all);
    const auto rank = static_cast<std::size_t>(world.rank());
    const TraceSource source{
        .trace = *traces[rank], .plan = plan, .world = world, .everyone = *everyone};
    const MeasuredLedgers measured = measure_ledgers(source);
    run.own[rank] = own_ledger(*traces[rank], measured.step);
    if (rank > 0) return;
    const Rates rates{
        .matmul_flops = 1e9, .memory_bandwidth = 1e9, .latency = 1e-5, .bandwidth = 1e8};
    run.planned = estimate_ledgers(plan, rates);
    run.time = estimate_time(plan, rates);
    run.measured = measured;
  };
  train_sample({.set_options = options,
                .ranks = ranks,
                .steps = 5,
                .world = {},
                .make_trace = make_trace,
                .after_training = after});
  return run;
}

const std::vector<std::string> stages{"parallel.pipeline_stages=2", "train.micro_batch_size=1"};
const std::vector<std::string> tensor{"parallel.tensor_parallel=2"};
const std::vector<std::string> sharded{
    "parallel.parallel_optimizer.enable=true", "parallel.parallel_optimizer.threshold=0",
    "parallel.parallel_optimizer.gradient_accumulation_shard=false"};

}  // namespace

TEST_CASE("the entries of a measured ledger add up to the step on every rank", "[threads]") {
  for (const auto& options : {std::vector<std::string>{}, stages, tensor, sharded}) {
    const LedgerRun run = ledger_run(options, 2);
    CHECK(run.measured.of_steps == 3);
    CHECK(run.measured.step >= 3);
    CHECK(run.measured.step + run.measured.behind == 5);
    for (std::size_t rank = 0; rank < 2; ++rank) {
      const Ledger& ledger = run.measured.by_rank[rank];
      INFO("rank " << rank);
      CHECK(ledger.total() == Approx(run.measured.seconds[rank]).epsilon(0.02));
      for (const LedgerEntry& entry : ledger_entries) {
        INFO(entry.key);
        CHECK(ledger.*entry.seconds > -1e-6);
      }
      CHECK(ledger.products > 0);
      CHECK(ledger.kernels > 0);
      CHECK(ledger.optimizer > 0);
      CHECK((ledger.tp > 0) == (options == tensor));
      CHECK((ledger.p2p > 0) == (options == stages));
      CHECK((ledger.gather > 0) == (options == sharded));
      if (options == std::vector<std::string>{} || options == sharded) CHECK(ledger.dp > 0);
    }
  }
}

TEST_CASE("a wait is for a message only after its sender posted it", "[threads]") {
  const LedgerRun run = ledger_run(stages, 2);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const Ledger& own = run.own[rank];
    const Ledger& ledger = run.measured.by_rank[rank];
    CHECK(ledger.p2p + ledger.bubble == Approx(own.p2p + own.bubble));
    CHECK(ledger.p2p >= own.p2p);
    CHECK(ledger.bubble > 0);
    CHECK(ledger.products == Approx(own.products));
  }
}

TEST_CASE("a planned ledger adds up to the planned step", "[threads]") {
  for (const auto& options : {std::vector<std::string>{}, stages, tensor, sharded}) {
    const LedgerRun run = ledger_run(options, 2);
    REQUIRE(run.planned.size() == (options == stages ? 2 : 1));
    for (const Ledger& ledger : run.planned) {
      CHECK(ledger.total() - ledger.optimizer == Approx(run.time.forward_backward));
      CHECK(ledger.optimizer <= run.time.optimizer);
      CHECK(ledger.products > 0);
      CHECK((ledger.tp > 0) == (options == tensor));
      CHECK((ledger.p2p > 0) == (options == stages));
      CHECK(ledger.bubble >= 0);
      CHECK(ledger.rest == 0);
    }
  }
}
