// The common start of the benchmarks: a plan for one rank of this machine, and random tokens.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/json_text.h"
#include "bench/bench.h"
#include "comm/world.h"
#include "config/schema/config.h"
#include "data/batch.h"
#include "device/slab.h"
#include "engine/engine.h"
#include "engine/trace.h"
#include "plan/cost/ledger.h"
#include "plan/plan.h"

namespace trainctl {

struct BenchSetup {
  Config config;
  Plan plan;
};

/// Reads the config for one rank alone. Throws Error{config} with the rendered diagnostics.
BenchSetup read_bench_setup(const BenchRequest& request);
/// A setup for each rank of `world`, with its share of the cores of its host. Collective.
BenchSetup read_bench_setup(const BenchRequest& request, World& world);

/// Selects the device of the plan for this thread. Returns its name and number of threads or
/// multiprocessors, for the head of a table. Throws Error{unavailable} if there is no such device.
std::string open_bench_device(const Plan& plan);

/// The context in which operations run on the device of a plan, for the calling thread and its
/// number of threads. Throws as open_bench_device.
class BenchContext {
 public:
  explicit BenchContext(const Plan& plan);
  const std::string& where() const { return where_; }  // text of open_bench_device
  const OpContext& ops() const { return ops_; }
  Stream& stream() { return stream_; }

 private:
  std::string where_;
  Stream stream_;
  Slab scratch_;
  OpContext ops_;
};

/// Prints the result by calling `table`, or if JSON is requested, as `document` on one line. The
/// document also goes to the file of the request. Throws Error{io} if that cannot be written.
void tell(const BenchRequest& request, const nlohmann::ordered_json& document, std::ostream& out,
          const std::function<void()>& table);

/// An engine with initial weights on one rank. `setup`, `world` and a given trace must outlive it.
std::unique_ptr<Engine> bench_engine(const BenchSetup& setup, World& world, Trace* trace = nullptr);

/// Takes the first step of an engine, which loads kernels and, with product_algorithms: timed,
/// times its products. All engines then use these algorithms for products of these extents.
void take_first_step(Engine& engine, const BenchSetup& setup, World& world,
                     const std::vector<Batch>& batches);

/// Fills a tensor with normal random values, others for each `stream`, and waits until it is done.
void fill_normal(const OpContext& ops, const Tensor& tensor, std::uint64_t stream,
                 float deviation = 1);

/// One step's micro-batches of random tokens, each with weight 1.
std::vector<Batch> random_batches(const Plan& plan);

// A step of a configuration on the ranks of a world, compared with its prices by the section
// cluster.

struct PlannedStep {
  std::string where;            // "one rank on the CPU, 2 threads"
  double planned = 0;           // seconds
  double measured = 0;          // the median of request.pairs steps
  std::vector<Ledger> ledgers;  // planned, by stage
  MeasuredLedgers by_rank;
  double error() const { return planned / measured - 1; }
};

/// Measures steps in the configuration's own layout, or on one rank if the world has one, on random
/// tokens. Collective; all ranks get the same result. Throws Error{config} if the ranks cannot have
/// the layout, Error{usage} if section cluster has no prices.
PlannedStep measure_planned_step(World& world, const BenchRequest& request);

}  // namespace trainctl
