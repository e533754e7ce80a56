// trainctl verify: proves layouts equal to a single rank, over threads of this process.
#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/units.h"
#include "commands.h"
#include "output.h"
#include "plan/rules/resolve.h"
#include "planned.h"
#include "run/directory/signals.h"
#include "run/peak_memory.h"
#include "verify/layout_selection.h"
#include "verify/message_rounding.h"
#include "verify/verify.h"
#include "verify_output.h"

namespace trainctl {

namespace {

constexpr const char* name = "trainctl verify";
constexpr const char* examples =
    "  trainctl verify --config configs/gpt.yaml --world-size 4\n"
    "  trainctl verify --config configs/gpt.yaml --layouts tp2,tp2sp+pp2,tp2+pp2+dp2+gpipe\n"
    "  trainctl verify --config configs/gpt.yaml --world-size 8 --layouts all\n";

struct VerifyCommand {
  PlanRequest request;
  std::string layouts;
  std::int64_t steps = 3;
  bool exhaustive = false;
  std::string format = "table";
};

/// A layout to run.
struct Candidate {
  std::string name;
  Config config;
  Plan plan;
};

/// Throws Error{config} where a layout that was asked for is not legal. The file's places would
/// mislead: it says other sizes.
Candidate candidate_of(const std::string& layout, const Config& config, std::int64_t ranks) {
  Diagnostics diagnostics;
  const Site site{.world_size = ranks, .ranks_per_host = ranks, .cores_per_host = ranks};
  Candidate candidate{layout, config, prepare(config, {}, site, Purpose::verify, diagnostics)};
  diagnostics.drop_if([](const Diagnostic& one) { return one.severity != Severity::error; });
  if (!diagnostics.has_errors()) return candidate;
  print_message(render_text(diagnostics, color_on_stderr()));
  throw Error(ExitCode::config, "layout " + layout + " is not legal with this configuration");
}

std::string name_of_plan(const Plan& plan) {
  return name_of(LayoutSizes{plan.mesh.tp, plan.mesh.pp, plan.mesh.dp, plan.sequence_parallel});
}

LayoutSelection select_all(const VerifyCommand& command, const Planned& planned) {
  const std::int64_t ranks = planned.site.world_size;
  if (ranks > most_layout_ranks) {
    refuse(name, "--world-size " + std::to_string(ranks) + ": layouts of at most " +
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
  if (command.layouts.empty()) {
    Config own = config;
    own.parallel.threads_per_rank = 1;
    candidates.push_back(candidate_of(name_of_plan(planned.plan), own, planned.site.world_size));
    return candidates;
  }
  if (command.layouts == "all") {
    selection = select_all(command, planned);
  } else {
    selection.layouts = parse_layouts(command.layouts, command.request.world_size);
  }
  for (const LayoutChoice& choice : selection.layouts) {
    candidates.push_back(candidate_of(choice.name(), with_layout(config, choice), choice.ranks()));
  }
  return candidates;
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
void check_memory(const std::vector<Candidate>& candidates, std::int64_t steps) {
  const std::int64_t free = available_bytes();
  std::set<MessageRounding> records{{}};  // they are kept for the layouts that follow
  for (const Candidate& candidate : candidates) {
    records.insert(message_rounding(candidate.plan));
    const std::int64_t needed =
        verification_bytes(candidate.config, candidate.plan, steps, std::ssize(records));
    if (free == 0 || needed <= free) continue;
    throw Error(ExitCode::unavailable,
                "layout " + candidate.name + " needs about " + format_bytes(needed) +
                    " of memory for all its ranks and the record of a single rank, but only " +
                    format_bytes(free) +
                    " is free; use a smaller model of the same shape, or fewer --steps");
  }
}

int verify(const VerifyCommand& command) {
  Planned planned;
  if (!read_file(command, planned)) return static_cast<int>(ExitCode::config);
  LayoutSelection selection;
  const std::vector<Candidate> candidates = candidates_of(command, planned, selection);
  check_memory(candidates, command.steps);
  catch_stop_signals();
  std::size_t widest = 0;
  for (const Candidate& candidate : candidates) widest = std::max(widest, candidate.name.size());
  const bool json = command.format == "json";
  VerifyStatus status(!json);
  status.show("a single rank");
  const Config& config = planned.read.config;
  const Verification verification(config, command.steps);
  status.clear();
  VerifyOutput output({json, command.steps, widest}, selection);
  std::size_t done = 0;
  for (; done < candidates.size() && stop_signal() == 0; ++done) {
    const Candidate& candidate = candidates[done];
    status.show(std::to_string(done + 1) + " of " + std::to_string(candidates.size()) + ": " +
                candidate.name);
    const LayoutVerdict verdict =
        verification.compare(candidate.config, candidate.plan, config.parallel.deadline_seconds);
    status.clear();
    output.show(candidate.name, candidate.plan.mesh.world_size(), verdict);
  }
  output.finish(static_cast<std::int64_t>(candidates.size() - done));
  if (!output.all_equal()) return static_cast<int>(ExitCode::diverged);
  return static_cast<int>(done < candidates.size() ? ExitCode::requeue : ExitCode::ok);
}

}  // namespace

int run_verify(const Arguments& arguments) {
  CommandLine line(
      "Trains a few steps in each layout, over threads, and compares loss, norm, every gradient "
      "and every parameter with a single rank. The data is generated from the seed.",
      name);
  VerifyCommand command;
  add_plan_options(line, command.request);
  line.remove("--ranks-per-host");
  line.add_text("--layouts", command.layouts,
                "all, or layouts separated by commas; default: the file's own layout", "LIST|all");
  line.add_whole_number("--steps", command.steps, "Steps to compare; default: 3", 1, 1000);
  line.add_flag("--exhaustive", command.exhaustive,
                "With --layouts all: every combination of the switches, not only every pair");
  line.add_format(command.format, {"table", "json"});
  if (!line.parse(arguments, examples)) return 0;
  if (command.exhaustive && command.layouts != "all") {
    refuse(name, "--exhaustive requires --layouts all");
  }
  return verify(command);
}

}  // namespace trainctl
