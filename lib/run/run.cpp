#include "run/run.h"

#include <algorithm>
#include <exception>
#include <iostream>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/checkpoint_weights.h"
#include "checkpoint/folder.h"
#include "comm/others_wait.h"
#include "comm/rank_words.h"
#include "comm/world.h"
#include "config/read/read.h"
#include "formats/print/print.h"
#include "formats/strategy/requested_files.h"
#include "plan/rules/check.h"
#include "run/agreement.h"
#include "run/beginning.h"
#include "run/data/continuation.h"
#include "run/directory/signals.h"
#include "run/end_report.h"
#include "run/preflight/preflight.h"
#include "run/prepare.h"
#include "run/signal_effects.h"
#include "run/steps.h"
#include "run/training.h"

namespace trainctl {

namespace {

/// What one rank knows before it talks to the others.
struct Prepared {
  ReadResult read;
  DeviceChoice device;
  CudnnChoice cudnn;
  Site site;
  Plan plan;
  ChosenLayout layout;  // what auto_parallel found
  bool valid = false;
};

/// Collective: a rank may tokenise a text for it, or search for a layout, while others are done.
void prepare_for_site(const TrainRequest& request, Prepared& prepared, Group& everyone) {
  while_others_wait(everyone, request.config.c_str(), true, [&] {
    prepared.read = read_config(request.config, request.set_options);
    prepared.plan = prepare(prepared.read, prepared.site, Purpose::train,
                            {.again = request.search_again, .choice = &prepared.layout});
    prepared.valid = !prepared.read.diagnostics.has_errors();
  });
}

void tell_search(const ChosenLayout& layout) {
  if (!layout.report) return;
  const std::string from = layout.taken_from.empty() ? "" : " (from " + layout.taken_from + ")";
  log_info("auto_parallel: " + search_line(*layout.report) + from);
  for (const std::string& note : layout.report->notes) log_info("auto_parallel: " + note);
}

Prepared read_and_prepare(const TrainRequest& request, World& world, Group& everyone) {
  Prepared prepared;
  prepared.read = read_config(request.config, request.set_options);
  const ParallelConfig& parallel = prepared.read.config.parallel;
  prepared.device = agree_on_device(parallel, world, everyone);
  prepared.cudnn = agree_on_cudnn(parallel, prepared.device, world, everyone);
  prepared.site = {.world_size = world.size(),
                   .ranks_per_host = world.local_size(),
                   .cores_per_host = agree_on_cores(world, everyone),
                   .ranks_are_threads = request.local_ranks > 0,
                   .device = prepared.device.device,
                   .cudnn = prepared.cudnn.taken};
  prepare_for_site(request, prepared, everyone);
  return prepared;
}

void show(const Diagnostics& diagnostics, bool color) {
  if (diagnostics.list().empty()) return;
  std::cerr << render_text(diagnostics, color) << std::flush;
}

/// Every rank reads its own file; all must come to the same plan. Returns whether the run can
/// start; if not, the errors are shown.
bool agree_on_plan(Prepared& prepared, Group& world, bool color) {
  const auto valid = gather_values(world, prepared.valid ? 1.0 : 0.0);
  const bool all_valid = std::all_of(valid.begin(), valid.end(), [](double v) { return v > 0; });
  const bool none_valid = std::none_of(valid.begin(), valid.end(), [](double v) { return v > 0; });
  const bool speak = none_valid ? world.rank() == 0 : !prepared.valid;
  if (speak) show(prepared.read.diagnostics, color);
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

/// Of auto: where a rank's cuDNN does not take the plan's attention after all, the plan becomes one
/// with our kernels. Says what was chosen. Collective, of ranks with the same plan.
void settle_attention(const TrainRequest& request, Prepared& prepared, const World& world,
                      Group& everyone) {
  if (prepared.cudnn.why.empty()) return;
  std::string reason = prepared.cudnn.why;
  if (prepared.cudnn.taken) {
    const std::string refusal = refusal_of_cudnn(prepared.plan, world, everyone);
    const Facts facts(prepared.read.config, prepared.site);
    reason = prepared.plan.cudnn ? refusal : why_not_cudnn(facts);
    if (!refusal.empty()) {
      prepared.site.cudnn = false;
      prepare_for_site(request, prepared, everyone);
    }
  }
  if (world.rank() != 0) return;
  log_info("parallel.attention_backend auto: " +
           (prepared.plan.cudnn ? prepared.cudnn.why : "own kernels: " + reason));
}

/// What is wrong with the weights to start from is found before an earlier run's files go.
void check_start(const Prepared& prepared) {
  const auto& from = prepared.read.config.model.from;
  const std::string& output = prepared.read.config.output.dir;
  // A run that goes on does not need them.
  if (!from || !CheckpointFolder(output).complete().empty()) return;
  open_weights(*from, prepared.plan.model);
  std::error_code failure;
  require(
      !std::filesystem::equivalent(*from, output, failure), ExitCode::usage,
      "output.dir is model.from, " + *from + "; the run would replace the model it starts from");
}

/// The steps in all follow from those that are behind the run and from its present batches: the
/// plan becomes that of a run that goes on. Returns false where its configuration has errors then,
/// which rank 0 shows. Collective, of ranks with the same plan.
bool plan_the_rest(const TrainRequest& request, Prepared& prepared, Continuation& continuation,
                   Group& everyone) {
  const bool counts_data = prepared.read.given->train.epochs.has_value();
  if (counts_data) {
    find_data_place(continuation, prepared.read.config, everyone);
    continuation.progress.windows = windows_behind(continuation, prepared.read.config);
  }
  prepared.site.done = continuation.progress;
  prepare_for_site(request, prepared, everyone);
  return agree_on_plan(prepared, everyone, request.color);
}

bool is_finished(const Start& start, std::int64_t steps) {
  return start.step > steps || (start.step == steps && start.has_weights);
}

/// A signal may have ended the run after its last step, before its report.
void draw_missing_report(const Beginning& beginning) {
  try {
    if (kind_of_file(beginning.directory / "report.html") != FileKind::none) return;
    draw_report(beginning.directory, beginning.fence);
  } catch (const Error& error) {
    log_warning(std::string("not reported: ") + error.what());
  }
}

void tell_finished(const Beginning& beginning, const Config& config) {
  log_info("the run in " + beginning.directory.string() + " is finished: it has " +
           std::to_string(beginning.start.step) + " of " + std::to_string(config.train.steps) +
           " steps; a greater train.steps continues it, and output.overwrite: true (--overwrite) "
           "replaces it");
}

void tell_change(const Continuation& continuation, const Plan& plan, const World& world) {
  const std::string pace = change_of_pace(continuation.progress, plan);
  if (world.rank() == 0 && !pace.empty()) log_info(pace);
}

/// Each host's first rank looks; all learn the code of the first error. Collective.
ExitCode look_first(const TrainRequest& request, const Prepared& prepared,
                    const std::filesystem::path& directory, World& world, Group& everyone) {
  ExitCode mine = ExitCode::ok;
  while_others_wait(everyone, "data and disk", world.local_rank() == 0, [&] {
    mine = tell_findings("the run does not start", prepared.read.sources,
                         preflight({.read = prepared.read,
                                    .plan = prepared.plan,
                                    .directory = directory,
                                    .ranks_here = world.local_size(),
                                    .cores = prepared.site.cores_per_host,
                                    .ranks_in_process = std::max(1, request.local_ranks),
                                    .over_mpi = request.local_ranks == 0 && world.size() > 1,
                                    .whole_data = request.dry_run}));
  });
  for (const double code : gather_values(everyone, static_cast<double>(mine))) {
    if (code > 0) return static_cast<ExitCode>(static_cast<int>(code));
  }
  return ExitCode::ok;
}

bool is_under_mpirun() { return launched_as().launcher == "Open MPI"; }

/// Open MPI's mpirun kills the ranks so soon after SIGTERM or Ctrl-C that there may be no time to
/// save.
void explain_kill_delay() {
  if (!is_under_mpirun() || is_under_launch()) return;
  log_info(
      "mpirun kills the ranks about 1 s after Ctrl-C or SIGTERM, which may be too soon to save "
      "a checkpoint; 'trainctl launch' gives them time, and so does SIGUSR1 to mpirun");
}

int run_rank(const TrainRequest& request, World& world) {
  set_log_rank(world.rank(), world.size());
  const std::unique_ptr<Group> everyone = world.everyone("world");
  Prepared prepared = read_and_prepare(request, world, *everyone);
  if (!agree_on_plan(prepared, *everyone, request.color)) {
    return static_cast<int>(ExitCode::config);
  }
  if (!prepared.device.usable) {
    if (world.rank() == 0) log_error("parallel.device cuda: " + prepared.device.why);
    return static_cast<int>(ExitCode::unavailable);
  }
  agree_on_cpu_level(*everyone);
  settle_attention(request, prepared, world, *everyone);
  set_log_level(static_cast<LogLevel>(prepared.read.config.log.level));
  const Config& config = prepared.read.config;
  if (world.rank() == 0 && config.parallel.device == "auto") {
    log_info("parallel.device auto: " + prepared.device.why);
  }
  if (world.rank() == 0) tell_search(prepared.layout);
  check_start(prepared);
  // What is worth a warning in a new run need not be so in one that goes on.
  const auto show_warnings = [&] {
    if (world.rank() == 0) show(prepared.read.diagnostics, request.color);
  };
  if (request.dry_run) {
    show_warnings();
    const auto directory = output_directory(config.output.dir);
    const ExitCode found = look_first(request, prepared, directory, world, *everyone);
    return tell_launch(RankWord::checked, static_cast<int>(found));
  }
  const Beginning beginning = agree_on_beginning(config_as_given(prepared.read), config.train.steps,
                                                 request.resume, world, *everyone);
  if (beginning.refused != ExitCode::ok) return static_cast<int>(beginning.refused);
  std::optional<Continuation> continuation;
  bool finished = beginning.start.kind == Start::Kind::finished;
  if (beginning.start.kind == Start::Kind::resume) {
    continuation = read_continuation(beginning.start.checkpoint, *everyone);
    if (!plan_the_rest(request, prepared, *continuation, *everyone)) {
      return static_cast<int>(ExitCode::config);
    }
    finished = is_finished(beginning.start, config.train.steps);
  }
  if (finished) {
    if (world.rank() == 0) {
      tell_finished(beginning, config);
      draw_missing_report(beginning);
    }
    return tell_launch(RankWord::finished, 0, beginning.start.step);
  }
  show_warnings();
  if (continuation) tell_change(*continuation, prepared.plan, world);
  if (continuation && continuation->identities.empty()) {
    find_data_place(*continuation, config, *everyone);
  }
  if (beginning.start.kind == Start::Kind::resume) change_signal_effect(before_going_on);
  const ExitCode found = look_first(request, prepared, beginning.directory, world, *everyone);
  if (found != ExitCode::ok) return static_cast<int>(found);
  write_own_layout_files(config, prepared.plan, world.rank());
  if (world.rank() == 0) explain_kill_delay();
  Training training({.read = prepared.read,
                     .plan = prepared.plan,
                     .beginning = beginning,
                     .layout_file = prepared.layout.file,
                     .continuation = continuation ? &*continuation : nullptr,
                     .stop_after = request.stop_after,
                     .ranks_in_process = std::max(1, request.local_ranks),
                     .color = request.color && config.log.color},
                    world, *everyone);
  return training.run();
}

/// Of the ranks that fail, stderr names the first; each says in its own log why it ended.
int run_rank_of_threads(const TrainRequest& request, World& world) {
  try {
    return run_rank(request, world);
  } catch (const std::exception& failure) {
    log_to_file(LogLevel::error, failure.what());
    throw;
  }
}

/// Of rank 0, or another one, that a signal ends before it has begun to train.
void tell_end_of_run(int code) { tell_launch(RankWord::saved, code); }
void tell_end_of_rank(int code) { tell_launch(RankWord::failed, code); }

}  // namespace

int run_training(const TrainRequest& request) {
  const bool first = launched_as().rank == 0;
  catch_stop_signals(before_first_step,
                     {.speaks = first,
                      .told_by_launch = is_under_launch(),
                      .mpirun_kills = is_under_mpirun(),
                      .tell_launch = first ? tell_end_of_run : tell_end_of_rank});
  const ReadResult read = read_config(request.config, request.set_options);
  WorldOptions options{.check_collectives = false, .report_hangs = true};
  if (!read.diagnostics.has_errors()) {
    options.deadline_seconds = read.config.parallel.deadline_seconds;
    options.check_collectives = read.config.parallel.check_collectives;
  }
  int code = 0;
  const auto on_rank = [&](World& world) {
    const int mine =
        request.local_ranks > 0 ? run_rank_of_threads(request, world) : run_rank(request, world);
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
