#include "run/run.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <optional>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/units.h"
#include "base/whole_file.h"
#include "comm/world.h"
#include "config/read/read.h"
#include "engine/engine.h"
#include "engine/trace.h"
#include "formats/print/print.h"
#include "formats/strategy/requested_files.h"
#include "run/corpus.h"
#include "run/cpu_agreement.h"
#include "run/end_report.h"
#include "run/metrics.h"
#include "run/peak_memory.h"
#include "run/prepare.h"
#include "run/progress.h"
#include "run/rates.h"
#include "run/run_dir.h"
#include "run/signals.h"
#include "weights/export.h"

namespace trainctl {

namespace {

/// What one rank knows before it talks to the others.
struct Prepared {
  ReadResult read;
  Plan plan;
  bool valid = false;
};

Prepared read_and_prepare(const TrainRequest& request, World& world) {
  Prepared prepared;
  prepared.read = read_config(request.config, request.set_options);
  const Site site{
      .world_size = world.size(),
      .ranks_per_host = world.local_size(),
      .cores_per_host = std::max(1, static_cast<int>(std::thread::hardware_concurrency())),
      .ranks_are_threads = request.local_ranks > 0};
  prepared.plan = prepare(prepared.read, site, Purpose::train);
  prepared.valid = !prepared.read.diagnostics.has_errors();
  return prepared;
}

/// Every rank reads its own file; all must come to the same plan. Returns whether the run can
/// start.
bool agree_on_plan(Prepared& prepared, Group& world, bool color) {
  const auto valid = gather_values(world, prepared.valid ? 1.0 : 0.0);
  const bool all_valid = std::all_of(valid.begin(), valid.end(), [](double v) { return v > 0; });
  const bool none_valid = std::none_of(valid.begin(), valid.end(), [](double v) { return v > 0; });
  const bool speak = none_valid || all_valid ? world.rank() == 0 : !prepared.valid;
  if (speak && !prepared.read.diagnostics.list().empty()) {
    std::cerr << render_text(prepared.read.diagnostics, color) << std::flush;
  }
  if (!all_valid) return false;
  const auto hashes = gather_values(world, prepared.plan.hash);
  for (std::size_t rank = 1; rank < hashes.size(); ++rank) {
    require(hashes[rank] == hashes[0], ExitCode::peer,
            "rank " + std::to_string(rank) + " made another plan than rank 0 (" +
                std::to_string(hashes[rank]) + " != " + std::to_string(hashes[0]) +
                "): the config files or the binaries differ between the ranks");
  }
  return true;
}

class Run {
 public:
  Run(const TrainRequest& request, Prepared& prepared, World& world, Group& everyone)
      : ranks_in_process_(std::max(1, request.local_ranks)),
        prepared_(prepared),
        config_(prepared.read.config),
        plan_(prepared.plan),
        world_(world),
        everyone_(everyone),
        directory_(config_.output.dir),
        corpus_(
            (prepare_directory(everyone), open_corpus(config_.data, plan_.model, config_.train.seed,
                                                      everyone, world.local_rank() == 0))),
        // Without a file the last step is measured all the same: that costs a clock per row.
        trace_(plan_.stage_of(world.rank()).actions,
               config_.log.trace.empty() ? 1 : config_.log.trace_steps),
        engine_({.plan = plan_,
                 .train = config_.train,
                 .optimizer = config_.optimizer,
                 .lr_schedule = config_.lr_schedule,
                 .loss_scaling = resolve_loss_scaling(config_.precision),
                 .deadline_seconds = config_.parallel.deadline_seconds,
                 .separate_documents = config_.data.reset_attention_mask,
                 .count_loss_weights = config_.data.eod_mask_loss,
                 .wants_stop = [] { return stop_signal() != 0; },
                 .trace = &trace_},
                world) {
    corpus_.rule.sequences = plan_.micro_batch_size;
    color_ = request.color && config_.log.color;
  }

  int train() {
    engine_.initialise();
    if (first()) announce();
    const std::optional<Rates> given = given_rates(config_.cluster);
    const double flops =
        given ? given->matmul_flops : measure_products(everyone_, engine_.ops(), plan_.compute);
    std::optional<MetricsFile> metrics;
    std::optional<Progress> progress;
    if (first()) {
      metrics.emplace(directory_ / "metrics.jsonl");
    }
    if (first() && config_.log.level != LogLevelName::error) {
      progress.emplace(
          ProgressOptions{.every = config_.log.every,
                          .live = isatty(STDERR_FILENO) != 0,
                          .color = color_,
                          .flops_ceiling = flops * static_cast<double>(world_.size())});
    }
    BatchRule fed = corpus_.rule;
    fed.sequences = plan_.fed_sequences();
    BatchLoader loader(corpus_.train, fed, loader_order());
    bool stopped = false;
    for (std::int64_t step = 1; step <= config_.train.steps && !stopped; ++step) {
      StepReport report = engine_.train_step(loader.next_step());
      stopped = report.stop;
      if (validation_due(step) || (stopped && corpus_.validation)) report.val_loss = validate();
      const std::int64_t every = config_.train.check_replicas_every;
      if (every > 0 && step % every == 0) engine_.check_replicas();
      if (metrics) metrics->write(report);
      if (progress) progress->show(report, step == config_.train.steps || stopped);
    }
    const std::int64_t peak = peak_resident_bytes();
    // Together; the others need not wait for the weights.
    const bool written = tell_step(given, flops);
    if (config_.output.save_weights) save();
    if (first() && peak > 0) tell_memory(peak);
    if (stopped) return static_cast<int>(ExitCode::interrupted);
    return static_cast<int>(written ? ExitCode::ok : ExitCode::io);
  }

 private:
  bool first() const { return world_.rank() == 0; }

  void prepare_directory(Group& everyone) {
    double failed = 0;
    std::optional<Error> failure;
    if (first()) {
      try {
        prepare_run_dir(directory_, config_.output.overwrite);
        write_whole_file(directory_ / "config.yaml", dump_config(config_, &prepared_.read.sources));
        write_whole_file(
            directory_ / "plan.json",
            print_json(
                {.plan = plan_, .config = &config_, .diagnostics = &prepared_.read.diagnostics}));
      } catch (const Error& error) {
        failure = error;
      }
    }
    for (double value : gather_values(everyone, failure ? 1.0 : 0.0)) failed += value;
    if (failure) throw *failure;
    require(failed == 0, ExitCode::io, "rank 0 could not prepare the output folder");
    open_log_file(directory_, world_.rank());
  }

  BatchLoader::Order loader_order() const {
    return {.global_batch = config_.train.global_batch_size,
            .microbatches = plan_.microbatches,
            .data_parallel = plan_.full_batch ? 1 : plan_.mesh.dp,
            .data_rank = plan_.full_batch ? 0 : plan_.mesh.coordinate(world_.rank(), Axis::dp),
            .first_step = 0,
            .steps = config_.train.steps,
            .ahead = config_.data.prefetch};
  }

  bool validation_due(std::int64_t step) const {
    if (!corpus_.validation) return false;
    const std::int64_t every = config_.train.validate_every;
    return step == config_.train.steps || (every > 0 && step % every == 0);
  }

  /// Of rank 0, which reports; others may not know it.
  std::optional<double> validate() {
    return engine_.evaluate(*corpus_.validation, corpus_.rule,
                            config_.data.validation.max_sequences);
  }

  void announce() const {
    log_info(
        format_count(static_cast<double>(plan_.parameter_count())) + " parameters, " +
        std::to_string(world_.size()) + " rank(s) x " + std::to_string(plan_.threads_per_rank) +
        " thread(s), " + format_grouped(plan_.tokens_per_step()) + " tokens per step, " +
        std::string(name_of(plan_.compute)) + ", CPU level " + std::string(name_of(cpu_level())) +
        ", about " + format_bytes(plan_.most_memory().total()) + " per rank; writing to " +
        directory_.string());
  }

  void save() {
    ParamStore& store = engine_.parameters();
    // One rank that holds the whole model needs no copy of it.
    const bool sharded = plan_.mesh.tp * plan_.mesh.pp > 1;
    engine_.complete_parameters();
    const Slab whole = sharded ? engine_.gather_parameters() : Slab();
    if (!first()) return;
    const Tensor gradients = store.gradients();  // no longer needed
    export_model(
        directory_, plan_.model,
        [&](const std::string& name) {
          return sharded ? whole.at(name) : store.master(store.index_of(name));
        },
        DType::f32,
        {static_cast<std::byte*>(gradients.data), static_cast<std::size_t>(gradients.bytes())});
    log_info("weights: " + (directory_ / "model.safetensors").string());
  }

  /// Collective. False when a file could not be written, which must not cost the weights.
  bool tell_step(const std::optional<Rates>& given, double matmul_flops) {
    const TraceSource source{.trace = trace_,
                             .plan = plan_,
                             .world = world_,
                             .everyone = everyone_,
                             .deadline_seconds = config_.parallel.deadline_seconds};
    const MeasuredStep measured = measure_last_step(source);
    const MemoryEstimate taken = engine_.memory();
    const Rates rates = given ? *given : measure_rates(everyone_, matmul_flops);
    const TimeEstimate time = estimate_time(plan_, rates);
    const EndReport report{plan_, world_, everyone_, taken, measured, rates, time};
    const bool told = try_to_write([&] { tell_measured(report, directory_ / "measured.json"); });
    if (config_.log.trace.empty()) return told;
    const bool traced = try_to_write([&] { write_trace(config_.log.trace, source); });
    if (first() && traced) log_info("trace: " + config_.log.trace);
    return told && traced;
  }

  template <class Body>
  static bool try_to_write(const Body& body) {
    try {
      body();
      return true;
    } catch (const Error& error) {
      if (error.code() != ExitCode::io) throw;
      log_error(error.what());
      return false;
    }
  }

  void tell_memory(std::int64_t peak) const {
    const MemoryEstimate& memory = plan_.most_memory();
    const std::int64_t planned =
        ranks_in_process_ * (memory.total() - memory.runtime) + memory.runtime;
    log_info("memory: " + format_bytes(peak) + " at most, planned " + format_bytes(planned));
  }

  int ranks_in_process_;
  Prepared& prepared_;
  const Config& config_;
  const Plan& plan_;
  World& world_;
  Group& everyone_;
  std::filesystem::path directory_;
  Corpus corpus_;
  Trace trace_;
  Engine engine_;
  bool color_ = true;
};

int run_rank(const TrainRequest& request, World& world) {
  set_log_rank(world.rank(), world.size());
  const std::unique_ptr<Group> everyone = world.everyone("world");
  Prepared prepared = read_and_prepare(request, world);
  if (!agree_on_plan(prepared, *everyone, request.color)) return static_cast<int>(ExitCode::config);
  agree_on_cpu_level(*everyone);
  set_log_level(static_cast<LogLevel>(prepared.read.config.log.level));
  write_own_layout_files(prepared.read.config, prepared.plan, world.rank());
  return Run(request, prepared, world, *everyone).train();
}

}  // namespace

int run_training(const TrainRequest& request) {
  catch_stop_signals();
  const ReadResult read = read_config(request.config, request.set_options);
  WorldOptions options{.check_collectives = false, .report_hangs = true};
  if (!read.diagnostics.has_errors()) {
    options.deadline_seconds = read.config.parallel.deadline_seconds;
    options.check_collectives = read.config.parallel.check_collectives;
  }
  int code = 0;
  const auto on_rank = [&](World& world) {
    const int mine = run_rank(request, world);
    if (world.rank() == 0 || request.local_ranks == 0) code = mine;
  };
  if (request.local_ranks > 0) {
    run_thread_world(request.local_ranks, options, on_rank);
  } else if (launched_as().size > 1) {
    run_mpi_world(options, on_rank);
  } else {
    on_rank(*self_world());
  }
  return code;
}

}  // namespace trainctl
