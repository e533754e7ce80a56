// trainctl verify: proves layouts equal to a single rank, over threads of this process.
#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/units.h"
#include "commands.h"
#include "device/cuda_device.h"
#include "output.h"
#include "plan/rules/resolve.h"
#include "planned.h"
#include "run/agreement.h"
#include "run/directory/signals.h"
#include "run/records/process_memory.h"
#include "verify/data.h"
#include "verify/layout_selection.h"
#include "verify/message_rounding.h"
#include "verify/verify.h"
#include "verify_output.h"

namespace trainctl {

namespace {

constexpr const char* verify_name = "trainctl verify";
constexpr const char* verify_examples =
    "  trainctl verify --config configs/gpt.yaml --world-size 4\n"
    "  trainctl verify --config configs/gpt.yaml --layouts tp2,tp2sp+pp2,tp2+pp2+dp2+gpipe\n"
    "  trainctl verify --config configs/gpt.yaml --world-size 8 --layouts all\n"
    "  trainctl verify --config configs/gpt.yaml --layouts tp2,pp2+vp2 --through-checkpoint\n";

struct VerifyCommand {
  PlanRequest request;
  std::string layouts;
  std::int64_t steps = 3;
  bool exhaustive = false;
  bool through_checkpoint = false;
  bool every_pair = false;
  std::string format = "table";

  /// A checkpoint is saved after half of the recorded steps.
  std::int64_t recorded_steps() const { return through_checkpoint ? 2 * steps : steps; }
};

/// A layout to run.
struct Candidate {
  std::string name;
  Config config;
  Plan plan;
  VerifiedLayout layout() const { return {config, plan, config.parallel.deadline_seconds}; }
};

/// What one row of the output is about: a layout, or the pair that saves and loads a checkpoint.
struct Task {
  const Candidate* saves = nullptr;
  const Candidate* runs = nullptr;
  std::string name() const {
    return saves == nullptr ? runs->name : saves->name + "->" + runs->name;
  }
};

/// Before any layout runs: a missing device is not a difference. Throws Error{unavailable}.
void require_devices(const Plan& plan) {
  if (plan.device != DeviceKind::cuda) return;
  const std::int64_t last = plan.mesh.world_size() - 1;
  const int device = cuda_device_of(last, plan.share_devices);
  require(device >= 0, ExitCode::unavailable, no_device_text(last, cuda_module().device_count()));
  cuda_multiprocessors_beside(device, plan.product_sm_margin);
}

/// Throws Error{config} where a layout that was asked for is not legal. The file's places would
/// mislead: it says other sizes.
Candidate candidate_of(const std::string& layout, const Config& config, std::int64_t ranks) {
  Diagnostics diagnostics;
  const Site site{.world_size = ranks,
                  .ranks_per_host = ranks,
                  .cores_per_host = ranks,
                  .device = device_here(config.parallel, ranks).device};
  Candidate candidate{layout, config, prepare(config, {}, site, Purpose::verify, diagnostics)};
  diagnostics.drop_if([](const Diagnostic& one) { return one.severity != Severity::error; });
  if (!diagnostics.has_errors()) {
    require_devices(candidate.plan);
    return candidate;
  }
  print_message(render_text(diagnostics, color_on_stderr()));
  throw Error(ExitCode::config, "layout " + layout + " is not legal with this configuration");
}

std::string name_of_plan(const Plan& plan) {
  const Mesh& mesh = plan.mesh;
  const std::string sizes =
      name_of(LayoutSizes{mesh.tp, mesh.pp, mesh.dp, plan.sequence_parallel, mesh.cp});
  return mesh.ep == 1 ? sizes : sizes + "+ep" + std::to_string(mesh.ep);
}

LayoutSelection select_all(const VerifyCommand& command, const Planned& planned) {
  const std::int64_t ranks = planned.site.world_size;
  if (ranks > most_layout_ranks) {
    refuse(verify_name, "--world-size " + std::to_string(ranks) + ": layouts of at most " +
                            std::to_string(most_layout_ranks) + " ranks are run");
  }
  LayoutSelection selection = select_layouts(planned.read.config, {}, ranks, command.exhaustive);
  if (!selection.layouts.empty()) return selection;
  std::string why;
  for (const auto& [code, rule] : selection.rules) why += "\n  " + code + ": " + rule;
  throw Error(ExitCode::config, "no layout of " + std::to_string(ranks) + " ranks is legal:" + why);
}

/// The layouts to run; `selection` says what `all` left out.
std::vector<Candidate> candidates_of(const VerifyCommand& command, const Planned& planned,
                                     LayoutSelection& selection) {
  const Config& config = planned.read.config;
  std::vector<Candidate> candidates;
  const auto add = [&](const LayoutChoice& choice) {
    const std::string layout = choice.name();
    const bool known = command.through_checkpoint &&
                       std::any_of(candidates.begin(), candidates.end(),
                                   [&](const Candidate& one) { return one.name == layout; });
    if (known) return;
    candidates.push_back(candidate_of(layout, with_layout(config, choice), choice.ranks()));
  };
  // Checkpoints also pass from and to the single rank.
  if (command.through_checkpoint) add(LayoutChoice{});
  if (command.layouts.empty()) {
    Config own = config;
    own.parallel.threads_per_rank = 1;
    const std::string layout = name_of_plan(planned.plan);
    candidates.push_back(candidate_of(layout, own, planned.site.world_size));
  } else if (command.layouts == "all") {
    selection = select_all(command, planned);
  } else {
    selection.layouts = parse_layouts(command.layouts, command.request.world_size);
  }
  for (const LayoutChoice& choice : selection.layouts) add(choice);
  return candidates;
}

/// With checkpoints, each layout saves for itself and for the next one, the last for the first; or
/// each for all.
std::vector<Task> tasks_of(const VerifyCommand& command, const std::vector<Candidate>& candidates) {
  std::vector<Task> tasks;
  const std::size_t count = candidates.size();
  for (std::size_t i = 0; i < count; ++i) {
    const Candidate& own = candidates[i];
    if (!command.through_checkpoint) {
      tasks.push_back({nullptr, &own});
      continue;
    }
    tasks.push_back({&own, &own});
    const std::size_t others = command.every_pair ? count - 1 : std::min<std::size_t>(count - 1, 1);
    for (std::size_t k = 1; k <= others; ++k) {
      tasks.push_back({&own, &candidates[(i + k) % count]});
    }
  }
  return tasks;
}

LayoutVerdict verdict_of(const Verification& verification, const Task& task) {
  if (task.saves == nullptr) {
    LayoutVerdict verdict = verification.compare(task.runs->layout());
    if (verdict.equal) verdict.add(verification.run_freely(task.runs->layout()));
    return verdict;
  }
  const TemporaryFolder folder = verify_folder();
  LayoutVerdict verdict = verification.compare_through_checkpoint(
      task.saves->layout(), task.runs->layout(), folder.path() / "pair");
  if (verdict.equal) {
    verdict.add(verification.go_on_freely(task.saves->layout(), task.runs->layout(),
                                          folder.path() / "day"));
  }
  return verdict;
}

/// The file with its mistakes shown, or nothing. Other layouts than the file's own need not be
/// legal there: their rules are checked one by one.
bool read_file(const VerifyCommand& command, Planned& planned) {
  if (command.layouts.empty()) {
    planned = plan_config(command.request, Purpose::verify);
  } else {
    planned.read = read_config(command.request.config, command.request.set_options);
    forgive_missing(Purpose::verify, planned.read.diagnostics);
    planned.site.world_size = command.request.world_size > 0
                                  ? command.request.world_size
                                  : world_size_of(planned.read.config.parallel);
  }
  print_message(render_text(planned.read.diagnostics, color_on_stderr()));
  return planned.ok();
}

/// Throws Error{unavailable} where this machine has too little memory for a layout.
void check_memory(const VerifyCommand& command, const std::vector<Candidate>& candidates) {
  const std::int64_t free = available_bytes();
  std::set<MessageRounding> records{{}};  // they are kept for the layouts that follow
  for (const Candidate& candidate : candidates) {
    records.insert(message_rounding(candidate.plan));
    std::int64_t needed = verification_bytes(candidate.config, candidate.plan,
                                             command.recorded_steps(), std::ssize(records));
    // What the run that was not cut has in the end.
    if (command.through_checkpoint)
      needed += verification_bytes(candidate.config, candidate.plan, 0, 0);
    if (free == 0 || needed <= free) continue;
    throw Error(ExitCode::unavailable,
                "layout " + candidate.name + " needs about " + format_bytes(needed) +
                    " of memory for all its ranks and the record of a single rank, but only " +
                    format_bytes(free) +
                    " is free; use a smaller model of the same shape, or fewer --steps");
  }
}

constexpr SignalEffect after_this_layout{
    .text = "the layout that runs ends, those after it do not run",
    .requeue_code = static_cast<int>(ExitCode::requeue),
    .interrupt_code = static_cast<int>(ExitCode::requeue)};

int verify(const VerifyCommand& command) {
  Planned planned;
  if (!read_file(command, planned)) return static_cast<int>(ExitCode::config);
  LayoutSelection selection;
  const std::vector<Candidate> candidates = candidates_of(command, planned, selection);
  const std::vector<Task> tasks = tasks_of(command, candidates);
  check_memory(command, candidates);
  catch_stop_signals(after_this_layout);
  std::size_t widest = 0;
  for (const Task& task : tasks) widest = std::max(widest, task.name().size());
  const bool json = command.format == "json";
  VerifyStatus status(!json);
  status.show("a single rank");
  const Verification verification(planned.read.config, command.recorded_steps());
  status.clear();
  VerifyOutput output({json, command.recorded_steps(), widest, command.through_checkpoint},
                      selection);
  std::size_t done = 0;
  for (; done < tasks.size() && stop_signal() == 0; ++done) {
    const Task& task = tasks[done];
    status.show(std::to_string(done + 1) + " of " + std::to_string(tasks.size()) + ": " +
                task.name());
    const LayoutVerdict verdict = verdict_of(verification, task);
    status.clear();
    output.show(task.name(), task.runs->plan.mesh.world_size(), verdict);
  }
  output.finish(static_cast<std::int64_t>(tasks.size() - done));
  if (!output.all_equal()) return static_cast<int>(ExitCode::diverged);
  return static_cast<int>(done < tasks.size() ? ExitCode::requeue : ExitCode::ok);
}

}  // namespace

int run_verify(const Arguments& arguments) {
  CommandLine line(
      "Trains a few steps in each layout, over threads, and compares loss, norm, every gradient "
      "and every parameter with a single rank. The data is generated from the seed.",
      verify_name);
  VerifyCommand command;
  add_plan_options(line, command.request);
  line.remove("--ranks-per-host");
  line.add_text("--layouts", command.layouts,
                "all, or layouts separated by commas; default: the file's own layout", "LIST|all");
  line.add_whole_number("--steps", command.steps, "Steps to compare; default: 3", 1, 1000);
  line.add_flag("--exhaustive", command.exhaustive,
                "With --layouts all: every combination of the switches, not only every pair");
  line.add_flag("--through-checkpoint", command.through_checkpoint,
                "Each layout saves a checkpoint after --steps steps; itself and the next layout "
                "load it and take as many again");
  line.add_flag("--every-pair", command.every_pair,
                "With --through-checkpoint: every layout loads the checkpoint of every other");
  line.add_format(command.format, {"table", "json"});
  if (!line.parse(arguments, verify_examples)) return 0;
  if (command.exhaustive && command.layouts != "all") {
    refuse(verify_name, "--exhaustive requires --layouts all");
  }
  if (command.every_pair && !command.through_checkpoint) {
    refuse(verify_name, "--every-pair requires --through-checkpoint");
  }
  return verify(command);
}

}  // namespace trainctl
