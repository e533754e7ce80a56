// trainctl validate: checks the file and its plan as train does, and starts nothing.
#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "base/units.h"
#include "commands.h"
#include "config/explain/reference.h"
#include "formats/print/print.h"
#include "formats/print/text.h"
#include "output.h"
#include "planned.h"
#include "run/directory/run_dir.h"
#include "run/preflight/preflight.h"

namespace trainctl {

namespace {

constexpr const char* validate_examples =
    "  trainctl validate --config configs/gpt.yaml\n"
    "  trainctl validate --config configs/gpt.yaml --world-size 8\n"
    "  trainctl validate --config configs/gpt.yaml --data\n"
    "  trainctl validate --config configs/gpt.yaml --set train.steps=10 --format json\n"
    "  trainctl validate --config configs/gpt.yaml --explain model.hidden_size\n";

std::string layout_of(const Mesh& mesh) {
  std::string text = grouped_count(mesh.world_size(), "rank");
  const std::pair<const char*, std::int64_t> axes[] = {
      {"tp", mesh.tp}, {"cp", mesh.cp}, {"dp", mesh.dp}, {"pp", mesh.pp}};
  std::string factors;
  for (const auto& [name, size] : axes) {
    if (size > 1) factors += (factors.empty() ? "" : " x ") + formatted("{} {}", name, size);
  }
  if (mesh.ep > 1 || mesh.etp != mesh.tp) {
    factors +=
        formatted("{}{} x ep {} x edp {}", factors.empty() ? "experts etp " : "; experts etp ",
                  mesh.etp, mesh.ep, mesh.edp);
  }
  return factors.empty() ? text : text + " (" + factors + ")";
}

std::string summary_of(const std::string& file, const Plan& plan) {
  std::int64_t parameters = 0;
  std::int64_t fullest = 0;
  for (const StagePlan& stage : plan.stages) {
    for (const ParamSpec& row : stage.parameters) {
      parameters += row.second_home ? 0 : row.global_shape.numel();
    }
    fullest = std::max(fullest, stage.memory.device());
  }
  const std::int64_t sequences = plan.tokens_per_step() / plan.model.seq_length;
  return file + ": valid; " + format_count(static_cast<double>(parameters)) + " parameters, " +
         layout_of(plan.mesh) + ", batch of " + grouped_count(sequences, "sequence") + " x " +
         format_grouped(plan.model.seq_length) + " tokens, " + format_bytes(fullest) +
         (plan.map.stages > 1 ? " on the fullest rank\n" : " per rank\n");
}

/// Lines about the layout that auto_parallel found; empty if nothing was searched.
std::string found_lines(const ChosenArrangement& layout) {
  if (!layout.report) return "";
  std::string text = "auto_parallel: " + search_line(*layout.report) + "\n";
  for (const std::string& note : layout.report->notes) text += "auto_parallel: " + note + "\n";
  return text;
}

/// A line that names the features for which `train` may still refuse the plan.
std::string unchecked_line(const Planned& planned) {
  return "not checked: " + joined(not_prepared(planned.read.config), ", ") + "\n" +
         (planned.steps_unknown
              ? "steps unknown: train.epochs counts them in the data, which --data reads\n"
              : "");
}

/// Prints one value and its origin, even if other parts of the file are wrong.
int explain(const Planned& planned, const std::string& path) {
  const Diagnostics& diagnostics = planned.read.diagnostics;
  const auto text = explain_value(planned.read, path);
  if (!text) {
    const std::string near = nearest_path(path);
    refuse("trainctl validate", "--explain " + path + ": unknown key" +
                                    (near.empty() ? "" : "; did you mean " + near + "?"));
  }
  if (diagnostics.has_errors() && planned.read.sources.places().empty()) {
    print_message(render_text(diagnostics, color_on_stderr()));
    return static_cast<int>(ExitCode::config);
  }
  print(*text);
  if (path == "optimizer.groups" && planned.ok()) {
    print(print_optimizer_groups(planned.plan, planned.read.config.optimizer) +
          print_matrices(planned.plan));
  }
  return 0;
}

/// Makes the checks that train makes before its first step, for the ranks of one host.
int look_at_machine(const Planned& planned) {
  const Site& site = planned.site;
  const std::int64_t here =
      site.ranks_per_host > 0 ? std::min(site.ranks_per_host, site.world_size) : site.world_size;
  return static_cast<int>(tell_findings(
      "this machine cannot run it", planned.read.sources,
      preflight({.read = planned.read,
                 .plan = planned.plan,
                 .directory = output_directory(planned.read.config.output.dir),
                 .ranks_here = static_cast<int>(here),
                 .cores = site.cores_per_host,
                 .ranks_in_process = site.ranks_are_threads ? static_cast<int>(here) : 1,
                 .whole_data = true})));
}

}  // namespace

int run_validate(const Arguments& arguments) {
  CommandLine line("Checks a YAML file and its plan as train does; starts nothing.",
                   "trainctl validate");
  PlanRequest request;
  std::string format = "text";
  std::string path;
  add_plan_options(line, request);
  line.add_format(format, {"text", "json", "github"});
  line.add_text("--explain", path, "Show one value: where it came from and what its key means",
                "PATH");
  bool& data = request.reads_data;
  line.add_flag("--data", data,
                "Also check data, disk, memory and limits of this machine, as train does first");
  if (!line.parse(arguments, validate_examples)) return 0;
  if (data && format != "text") refuse("trainctl validate", "--data is for --format text");

  try {
    const Planned planned = plan_config(request, Purpose::train);
    if (line.given("--explain")) return explain(planned, path);
    const int code = static_cast<int>(planned.ok() ? ExitCode::ok : ExitCode::config);
    if (format == "json") {
      print(with_newline(render_json(planned.read.diagnostics, not_prepared(planned.read.config))));
      return code;
    }
    if (format == "github") {
      print(render_github(planned.read.diagnostics));
      return code;
    }
    print_message(render_text(planned.read.diagnostics, color_on_stderr()));
    if (!planned.ok()) return code;
    const int found = data ? look_at_machine(planned) : code;
    if (found == 0) {
      print(summary_of(request.config, planned.plan) + found_lines(planned.layout) +
            (data ? "" : unchecked_line(planned)));
    }
    return found;
  } catch (const Error& failure) {
    if (format != "json") throw;
    return print_unreadable(request.config, failure);
  }
}

}  // namespace trainctl
