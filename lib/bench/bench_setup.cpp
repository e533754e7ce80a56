#include "bench/bench_setup.h"

#include <algorithm>
#include <fstream>
#include <ostream>
#include <utility>

#include "base/error.h"
#include "base/json_text.h"
#include "base/parallel_for.h"
#include "base/philox.h"
#include "base/text.h"
#include "base/units.h"
#include "bench/figures.h"
#include "config/read/read.h"
#include "device/cuda_device.h"
#include "ops/cuda_libraries.h"
#include "ops/elementwise.h"
#include "ops/kernels.h"
#include "plan/cost/step_time.h"
#include "plan/rules/resolve.h"
#include "run/agreement.h"
#include "run/preflight/machine.h"
#include "run/prepare.h"
#include "run/products/timed_products.h"
#include "run/records/step_records.h"
#include "run/search/layout_choice.h"

namespace trainctl {

namespace {

ReadResult read_for_bench(const BenchRequest& request) {
  ReadResult read = read_config(request.config, request.set_options);
  read.config.train.rampup_batch_size.reset();  // the full batch is timed
  return read;
}

BenchSetup setup_of(ReadResult read, const Site& site, const ArrangementRequest& layout = {}) {
  BenchSetup setup;
  setup.plan = prepare(read, site, Purpose::bench, layout);
  require(!read.diagnostics.has_errors(), ExitCode::config, render_text(read.diagnostics, false));
  setup.config = read.config;
  return setup;
}

/// The setup of ranks that plan together: rank 0 searches a layout if the file asks for that.
BenchSetup setup_of_all(const BenchRequest& request, const ReadResult& read, const Site& site,
                        Group& everyone) {
  const bool searches = read.config.parallel.parallel_mode == ParallelMode::auto_parallel;
  BenchSetup setup;
  ChosenArrangement chosen;
  ArrangementRequest layout{.choice = &chosen};
  prepare_with_one_answer(everyone, request.config.c_str(), searches, layout,
                          [&] { setup = setup_of(read, site, layout); });
  return setup;
}

/// Facts that these ranks find out about their machines, and whether each has its device.
struct WorldSite {
  DeviceChoice device;
  Site site;
};
WorldSite site_of(const ParallelConfig& asked, const World& world, Group& everyone) {
  const DeviceChoice device = agree_on_device(asked, world, everyone);
  const bool cudnn = agree_on_cudnn(asked, device, world, everyone).taken;
  return {.device = device,
          .site = {.world_size = world.size(),
                   .ranks_per_host = world.local_size(),
                   .cores_per_host = agree_on_cores(world, everyone),
                   .ranks_are_threads = world.in_one_process(),
                   .device = device.device,
                   .cudnn = cudnn}};
}

/// Reads the config for all ranks of `world`, with the cores, device and attention on which a run
/// of these ranks agrees (run/agreement.h). Collective. Throws as read_bench_setup, on all ranks
/// alike, and Error{unavailable} where a rank lacks the device that the config asks for.
BenchSetup read_world_setup(const BenchRequest& request, World& world) {
  ReadResult read = read_for_bench(request);
  const std::unique_ptr<Group> everyone = world.everyone("machines of the step");
  auto [device, site] = site_of(read.config.parallel, world, *everyone);
  BenchSetup setup = setup_of_all(request, read, site, *everyone);
  require(device.usable, ExitCode::unavailable, "parallel.device cuda: " + device.why);
  if (refusal_of_cudnn(setup.plan, world, *everyone).empty()) return setup;
  site.cudnn = false;
  return setup_of_all(request, read, site, *everyone);
}

}  // namespace

BenchSetup read_bench_setup(const BenchRequest& request) {
  ReadResult read = read_for_bench(request);
  read.config.parallel = for_one_rank(read.config.parallel);
  const DeviceKind device = device_here(read.config.parallel, 1).device;
  const bool cudnn = cudnn_here(read.config.parallel.attention_backend, device).taken;
  return setup_of(std::move(read), {.world_size = 1,
                                    .ranks_per_host = 1,
                                    .cores_per_host = usable_cores(),
                                    .device = device,
                                    .cudnn = cudnn});
}

BenchSetup read_bench_setup(const BenchRequest& request, World& world) {
  if (world.size() == 1) return read_bench_setup(request);
  ReadResult read = read_for_bench(request);
  const std::unique_ptr<Group> everyone = world.everyone("machines of the benchmark");
  Site site = site_of(read.config.parallel, world, *everyone).site;
  read.config.parallel = for_one_rank(read.config.parallel);
  site.world_size = site.ranks_per_host = 1;
  site.cores_per_host = std::max<std::int64_t>(1, site.cores_per_host / world.local_size());
  return setup_of(std::move(read), site);
}

std::string open_bench_device(const Plan& plan) {
  if (plan.device == DeviceKind::cpu) {
    return formatted("the CPU, {} threads", plan.threads_per_rank);
  }
  cuda_select_device(0);
  if (plan.cudnn) {
    cuda_attention().prepare(*plan.cudnn, attention_part(*plan.cudnn), plan.compute);
  }
  const CudaDeviceProperties device = cuda_module().properties(0);
  return formatted("{}, {} multiprocessors", device.name, device.multiprocessors);
}

BenchContext::BenchContext(const Plan& plan)
    : where_(open_bench_device(plan)),
      stream_(plan.device, "compute", Stream::Mode::run_inline),
      scratch_(plan.device, {{"scratch", {plan.scratch_bytes()}, DType::u8}}) {
  set_thread_count(plan.threads_per_rank);
  const Tensor scratch = scratch_.at("scratch");
  ops_ = {.kernels = &kernels_for(plan.device),
          .stream = &stream_,
          .scratch = static_cast<std::byte*>(scratch.data),
          .scratch_bytes = scratch.bytes()};
}

void tell(const BenchRequest& request, const nlohmann::ordered_json& document, std::ostream& out,
          const std::function<void()>& table) {
  const std::string text = json_text(document, JsonText::Style::compact) + "\n";
  if (!request.json_file.empty()) {
    std::ofstream file(request.json_file);
    file << text;
    file.close();
    require(file.good(), ExitCode::io, "cannot write " + request.json_file);
  }
  if (request.json) {
    out << text;
  } else {
    table();
  }
}

std::unique_ptr<Engine> bench_engine(const BenchSetup& setup, World& world, Trace* trace) {
  auto engine = std::make_unique<Engine>(
      EngineInput{.plan = setup.plan,
                  .train = setup.config.train,
                  .optimizer = setup.config.optimizer,
                  .lr_schedule = setup.config.lr_schedule,
                  .loss_scaling = resolve_loss_scaling(setup.config),
                  .trace = trace,
                  .max_attention_logit = setup.config.log.max_attention_logit},
      world);
  engine->initialise();
  return engine;
}

void take_first_step(Engine& engine, const BenchSetup& setup, World& world,
                     const std::vector<Batch>& batches) {
  const std::unique_ptr<Group> everyone = world.everyone("products");
  TimedProducts products(setup.config, setup.plan, world, *everyone);
  products.note();
  engine.train_step(batches);
  products.time(engine.ops(), {}, {});
}

void fill_normal(const OpContext& ops, const Tensor& tensor, std::uint64_t stream,
                 float deviation) {
  const Tensor flat = tensor.view({tensor.numel()});
  Slab wide;
  if (tensor.dtype != DType::f32) {
    wide = Slab(tensor.device, {{"wide", {tensor.numel()}, DType::f32}});
  }
  const Tensor drawn = tensor.dtype == DType::f32 ? flat : wide.at("wide");
  normal_fill(ops, {.x = drawn, .seed = 1, .stream = stream, .deviation = deviation});
  if (tensor.dtype != DType::f32) cast(ops, {.x = drawn, .y = flat});
  ops.stream->synchronize();
}

std::vector<Batch> random_batches(const Plan& plan) {
  const Philox random(1, 2);
  const std::int64_t tokens = plan.micro_batch_size * plan.model.seq_length;
  std::vector<Batch> batches(static_cast<std::size_t>(plan.microbatches));
  std::uint64_t drawn = 0;
  const auto token = [&] {
    return static_cast<std::int32_t>(random.bits(drawn++) %
                                     static_cast<std::uint64_t>(plan.model.vocab));
  };
  std::int64_t next = 0;
  for (Batch& batch : batches) {
    for (std::int64_t i = 0; i < tokens; ++i) {
      batch.tokens.push_back(token());
      batch.labels.push_back(token());
      batch.loss_weight.push_back(1.0F);
      batch.position.push_back(static_cast<std::int32_t>(i % plan.model.seq_length));
      batch.document.push_back(0);
      batch.global_token.push_back(next++);
    }
    batch.weight_sum = static_cast<double>(tokens);
    batch.length = plan.model.seq_length;
    batch.real.assign(static_cast<std::size_t>(plan.micro_batch_size), batch.length);
  }
  return batches;
}

namespace {

std::vector<Ledger> ledgers_of(const BenchSetup& setup) {
  const Plan& plan = setup.plan;
  if (setup.config.cluster.device) return estimate_ledgers(plan, setup.config.cluster);
  const auto rates = given_rates(setup.config.cluster);
  require(rates.has_value() && plan.time.has_value(), ExitCode::usage,
          "--measure compares the prices of section cluster, which the file does not have: set "
          "cluster.device, or all four rates");
  return estimate_ledgers(plan, *rates);
}

}  // namespace

PlannedStep measure_planned_step(World& world, const BenchRequest& request) {
  const BenchSetup setup =
      world.size() == 1 ? read_bench_setup(request) : read_world_setup(request, world);
  const Plan& plan = setup.plan;
  PlannedStep found;
  found.ledgers = ledgers_of(setup);
  found.planned = plan.time->step();
  found.where = world.size() == 1
                    ? "one rank on " + open_bench_device(plan)
                    : formatted("{} ranks of {} threads", world.size(), plan.threads_per_rank);
  const std::unique_ptr<Group> everyone = world.everyone("measured");
  Trace trace(plan.stage_of(world.rank()).actions, request.pairs);
  const std::unique_ptr<Engine> engine = bench_engine(setup, world, &trace);
  const std::vector<Batch> batches = random_batches(plan);
  take_first_step(*engine, setup, world, batches);
  std::vector<double> seconds;
  for (int step = 0; step < request.pairs; ++step) {
    gather_values(*everyone, 0.0);
    seconds.push_back(engine->train_step(batches).step_seconds);
  }
  found.by_rank = measure_ledgers({trace, plan, world, *everyone});
  found.measured = gather_values(*everyone, median(seconds)).front();
  return found;
}

void measure_plan(const BenchRequest& request, int ranks, std::ostream& out) {
  const auto on_rank = [&](World& world) {
    const PlannedStep step = measure_planned_step(world, request);
    if (world.rank() > 0) return;
    const MeasuredLedgers& measured = step.by_rank;
    out << step.where << ", the median of " << measured.of_steps << " steps\n";
    for (const std::string& line : ledger_table(step.ledgers, measured, measured.step)) {
      out << line << '\n';
    }
    out << "planned against measured: "
        << differences_text(mean_of(step.ledgers), mean_of(measured.by_rank)) << '\n'
        << "the step: planned " << format_seconds(step.planned) << ", measured "
        << format_seconds(step.measured) << ": " << printed("%+.1f", 100 * step.error()) << " %\n";
  };
  if (ranks > 1) {
    run_thread_world(ranks, {}, on_rank);
  } else {
    on_rank(*self_world());
  }
}

}  // namespace trainctl
