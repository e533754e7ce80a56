// trainctl validate: the file and the plan it leads to are checked; nothing is started.
#include "base/error.h"
#include "base/units.h"
#include "commands.h"
#include "output.h"
#include "planned.h"

namespace trainctl {

namespace {

constexpr const char* examples =
    "  trainctl validate --config configs/gpt.yaml\n"
    "  trainctl validate --config configs/gpt.yaml --world-size 8\n"
    "  trainctl validate --config configs/gpt.yaml --set train.steps=10 --format json\n";

std::string count_of(std::int64_t count, const std::string& noun) {
  return format_grouped(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string layout_of(const Mesh& mesh) {
  std::string text = count_of(mesh.world_size(), "rank");
  const std::pair<const char*, std::int64_t> axes[] = {
      {"tp", mesh.tp}, {"cp", mesh.cp}, {"dp", mesh.dp}, {"pp", mesh.pp}};
  std::string factors;
  for (const auto& [name, size] : axes) {
    if (size > 1) factors += (factors.empty() ? "" : " x ") + (name + (" " + std::to_string(size)));
  }
  return factors.empty() ? text : text + " (" + factors + ")";
}

std::string summary_of(const std::string& file, const Plan& plan) {
  std::int64_t parameters = 0;
  for (const ParamSpec& row : plan.parameters) parameters += row.global_shape.numel();
  const std::int64_t sequences = plan.tokens_per_step() / plan.model.seq_length;
  return file + ": valid; " + format_count(static_cast<double>(parameters)) + " parameters, " +
         layout_of(plan.mesh) + ", batch of " + count_of(sequences, "sequence") + " x " +
         format_grouped(plan.model.seq_length) + " tokens, " + format_bytes(plan.memory.total()) +
         " per rank\n";
}

/// A file that cannot be read is a finding like the others when JSON was asked for.
int report_unreadable(const std::string& file, const Error& failure) {
  Diagnostics diagnostics;
  diagnostics.add({.severity = Severity::error,
                   .code = "unreadable",
                   .path = "",
                   .message = failure.what(),
                   .help = "",
                   .place = {.origin = Place::Origin::file, .file = file}});
  print(with_newline(render_json(diagnostics)));
  return static_cast<int>(failure.code());
}

}  // namespace

int run_validate(const Arguments& arguments) {
  CLI::App app("Checks a YAML file and the plan it leads to; starts nothing.", "trainctl validate");
  PlanRequest request;
  std::string format = "text";
  add_plan_options(app, request);
  add_format(app, format, {"text", "json"});
  if (!parse_arguments(app, arguments, examples)) return 0;

  try {
    const Planned planned = plan_config(request);
    const int code = static_cast<int>(planned.ok() ? ExitCode::ok : ExitCode::config);
    if (format == "json") {
      print(with_newline(render_json(planned.read.diagnostics)));
      return code;
    }
    print_message(render_text(planned.read.diagnostics, color_on_stderr()));
    if (planned.ok()) print(summary_of(request.config, planned.plan));
    return code;
  } catch (const Error& failure) {
    if (format != "json") throw;
    return report_unreadable(request.config, failure);
  }
}

}  // namespace trainctl
