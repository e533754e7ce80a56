// trainctl verify: proves layouts equal to a single rank, over threads of this process.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "commands.h"
#include "config/standing.h"
#include "engine/layout_selection.h"
#include "engine/runnable.h"
#include "engine/verify.h"
#include "formats/print_text.h"
#include "output.h"
#include "plan/resolve.h"
#include "planned.h"

namespace trainctl {

namespace {

using Json = nlohmann::ordered_json;

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

/// A layout that is to be run.
struct Candidate {
  std::string name;
  Config config;
  Plan plan;
};

std::string number(double value) { return std::isfinite(value) ? printed("%.6g", value) : "nan"; }

/// Adds what keeps a run from starting; the plan is usable if that is nothing.
Plan plan_of(const Config& config, std::int64_t ranks, const SourceMap& sources,
             Diagnostics& diagnostics) {
  Plan plan =
      make_plan(config, {.world_size = ranks, .ranks_per_host = ranks, .cores_per_host = ranks},
                sources, diagnostics);
  check_built(config, sources, Severity::error, diagnostics);
  if (!diagnostics.has_errors()) check_runnable(plan, sources, diagnostics);
  return plan;
}

/// Throws Error{config} where a layout that was asked for is not legal.
Candidate candidate_of(const std::string& layout, const Config& config, std::int64_t ranks,
                       const SourceMap& sources) {
  Diagnostics diagnostics;
  Candidate candidate{layout, config, plan_of(config, ranks, sources, diagnostics)};
  diagnostics.drop_if([](const Diagnostic& one) { return one.severity != Severity::error; });
  if (!diagnostics.has_errors()) return candidate;
  print_message(render_text(diagnostics, color_on_stderr()));
  throw Error(ExitCode::config, "layout " + layout + " is not legal with this configuration");
}

std::string name_of_plan(const Plan& plan) {
  return name_of(LayoutSizes{plan.mesh.tp, plan.mesh.pp, plan.mesh.dp, plan.sequence_parallel});
}

Json json_of(const Departure& departure) {
  const auto value = [](double number) { return std::isfinite(number) ? Json(number) : Json(); };
  return {{"step", departure.step},
          {"what", departure.what},
          {"tensor", departure.tensor},
          {"rank", departure.rank},
          {"index", departure.index},
          {"found", value(departure.found)},
          {"expected", value(departure.expected)},
          {"error", value(departure.error)},
          {"bound", departure.bound}};
}

/// Rows as they come, or one JSON document at the end.
class Output {
 public:
  Output(const VerifyCommand& command, const LayoutSelection& selection, std::size_t widest)
      : json_(command.format == "json"), steps_(command.steps), selection_(selection) {
    widths_ = {std::max<std::size_t>(widest, 6), 9, 62, 7};
    if (!json_) row({"layout", "error", "largest at", "verdict"}, "seconds");
  }

  void show(const std::string& layout, std::int64_t ranks, const LayoutVerdict& verdict) {
    (verdict.equal ? equal_ : failed_) += 1;
    if (json_) {
      add_json(layout, ranks, verdict);
      return;
    }
    row({layout, printed("%.1e", verdict.largest.error), verdict.largest.place(),
         verdict.equal ? "equal" : "DIFFERS"},
        printed("%.2f", verdict.seconds));
    if (verdict.first) {
      const Departure& first = *verdict.first;
      print("  first: " + first.place() + ", rank " + std::to_string(first.rank) + ": " +
            number(first.found) + ", a single rank has " + number(first.expected) + " (error " +
            printed("%.1e", first.error) + ", bound " + printed("%.0e", first.bound) + ")\n");
    }
    if (!verdict.failure.empty()) print("  ended early: " + verdict.failure + "\n");
  }

  int finish() {
    if (json_) {
      finish_json();
    } else {
      print("\n" + grouped_count(equal_, "layout") + " equal to a single rank over " +
            grouped_count(steps_, "step") +
            (failed_ > 0 ? ", " + std::to_string(failed_) + " not" : "") + "\n");
      for (const auto& [code, layouts] : selection_.skipped) {
        print("skipped " + std::to_string(layouts.size()) + ": " + code + ": " +
              selection_.rules.at(code) + "\n");
      }
    }
    return static_cast<int>(failed_ > 0 ? ExitCode::diverged : ExitCode::ok);
  }

 private:
  void row(const std::vector<std::string>& cells, const std::string& last) {
    std::string line;
    for (std::size_t i = 0; i < cells.size(); ++i) line += padded(cells[i], widths_[i]) + "  ";
    print(line + padded_left(last, 7) + "\n");
  }

  void add_json(const std::string& layout, std::int64_t ranks, const LayoutVerdict& verdict) {
    Json row = {{"layout", layout},
                {"ranks", ranks},
                {"equal", verdict.equal},
                {"seconds", verdict.seconds},
                {"largest", json_of(verdict.largest)}};
    if (verdict.first) row["first"] = json_of(*verdict.first);
    if (!verdict.failure.empty()) row["failure"] = verdict.failure;
    rows_.push_back(row);
  }

  void finish_json() {
    Json skipped = Json::array();
    for (const auto& [code, layouts] : selection_.skipped) {
      skipped.push_back(
          {{"code", code}, {"message", selection_.rules.at(code)}, {"layouts", layouts}});
    }
    const Json document = {{"format_version", 1},
                           {"steps", steps_},
                           {"equal", failed_ == 0},
                           {"layouts", rows_},
                           {"skipped", skipped}};
    print(with_newline(document.dump(2)));
  }

  bool json_;
  std::int64_t steps_;
  const LayoutSelection& selection_;
  std::vector<std::size_t> widths_;
  std::int64_t equal_ = 0;
  std::int64_t failed_ = 0;
  Json rows_ = Json::array();
};

/// The layouts to run; `selection` says what `all` left out.
std::vector<Candidate> candidates_of(const VerifyCommand& command, const Planned& planned,
                                     LayoutSelection& selection) {
  const Config& config = planned.read.config;
  const SourceMap& sources = planned.read.sources;
  std::vector<Candidate> candidates;
  if (command.layouts.empty()) {
    Config own = config;
    own.parallel.threads_per_rank = 1;
    candidates.push_back(
        candidate_of(name_of_plan(planned.plan), own, planned.site.world_size, sources));
    return candidates;
  }
  if (command.layouts == "all") {
    selection = select_layouts(config, sources, planned.site.world_size, command.exhaustive);
  } else {
    selection.layouts = parse_layouts(command.layouts, command.request.world_size);
  }
  for (const LayoutChoice& choice : selection.layouts) {
    candidates.push_back(
        candidate_of(choice.name(), with_layout(config, choice), choice.ranks(), sources));
  }
  return candidates;
}

/// The file with its mistakes shown, or nothing. Other layouts than the file's own need not be
/// legal there: their rules are checked one by one.
bool read_file(const VerifyCommand& command, Planned& planned) {
  if (command.layouts.empty()) {
    planned = plan_config(command.request);
  } else {
    planned.read = read_config(command.request.config, command.request.set_options);
    planned.site.world_size = command.request.world_size > 0
                                  ? command.request.world_size
                                  : world_size_of(planned.read.config.parallel);
  }
  print_message(render_text(planned.read.diagnostics, color_on_stderr()));
  return planned.ok();
}

int verify(const VerifyCommand& command) {
  Planned planned;
  if (!read_file(command, planned)) return static_cast<int>(ExitCode::config);
  LayoutSelection selection;
  const std::vector<Candidate> candidates = candidates_of(command, planned, selection);
  std::size_t widest = 0;
  for (const Candidate& candidate : candidates) widest = std::max(widest, candidate.name.size());
  const Config& config = planned.read.config;
  const Verification verification(config, command.steps);
  Output output(command, selection, widest);
  for (const Candidate& candidate : candidates) {
    output.show(
        candidate.name, candidate.plan.mesh.world_size(),
        verification.compare(candidate.config, candidate.plan, config.parallel.deadline_seconds));
  }
  return output.finish();
}

}  // namespace

int run_verify(const Arguments& arguments) {
  CLI::App app(
      "Trains a few steps in each layout, over threads, and compares loss, norm, every gradient "
      "and every parameter with a single rank. Data is made up from the seed.",
      name);
  VerifyCommand command;
  add_plan_options(app, command.request);
  app.remove_option(app.get_option("--ranks-per-host"));
  app.add_option("--layouts", command.layouts,
                 "all, or layouts with commas between; default: that of the file")
      ->type_name("LIST|all");
  add_whole_number(app, "--steps", command.steps, "Steps to compare; default: 3", 1, 1000);
  app.add_flag("--exhaustive", command.exhaustive,
               "With --layouts all: every combination of the switches, not only every pair");
  add_format(app, command.format, {"table", "json"});
  if (!parse_arguments(app, arguments, examples)) return 0;
  if (command.exhaustive && command.layouts != "all") {
    refuse(name, "--exhaustive has a meaning with --layouts all only");
  }
  return verify(command);
}

}  // namespace trainctl
