// trainctl plan: prints what every rank would do, from arithmetic alone.
#include "base/error.h"
#include "commands.h"
#include "output.h"
#include "planned.h"

namespace trainctl {

namespace {

constexpr const char* examples =
    "  trainctl plan --config configs/gpt2-124m.yaml --world-size 8\n"
    "  trainctl plan --config configs/llama3-8b.yaml --world-size 16384 --ranks-per-host 8\n"
    "  trainctl plan --config configs/gpt.yaml --rank 0 --format json\n";

}  // namespace

int run_plan(const Arguments& arguments) {
  CLI::App app("Shows what a run would do: layout, memory, communication and the rows of a step.",
               "trainctl plan");
  PlanRequest request;
  std::string format = "table";
  std::int64_t rank = -1;
  add_plan_options(app, request);
  add_format(app, format, {"table", "json"});
  add_whole_number(app, "--rank", rank, "Show one rank; default: all ranks folded", 0);
  if (!parse_arguments(app, arguments, examples)) return 0;

  const Planned planned = plan_config(request);
  const bool json = format == "json";
  if (!planned.ok() && json) {
    print(with_newline(render_json(planned.read.diagnostics)));
  } else {
    print_message(render_text(planned.read.diagnostics, color_on_stderr()));
  }
  if (!planned.ok()) return static_cast<int>(ExitCode::config);
  if (rank >= planned.site.world_size) {
    refuse("trainctl plan", "--rank " + std::to_string(rank) + " does not exist: ranks are 0 to " +
                                std::to_string(planned.site.world_size - 1));
  }
  print(with_newline(json ? print_json(planned.plan, rank) : print_table(planned.plan, rank)));
  return 0;
}

}  // namespace trainctl
