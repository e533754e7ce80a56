// trainctl train: passes the file and the options to a run.
#include <cstdlib>

#include "base/log.h"
#include "base/text.h"
#include "comm/world.h"
#include "commands.h"
#include "output.h"
#include "run/run.h"

namespace trainctl {

namespace {

constexpr const char* train_examples =
    "  trainctl train configs/quickstart.yaml --local-ranks 2\n"
    "  trainctl train --config configs/gpt.yaml --steps 20 --output runs/short\n"
    "  trainctl train --config configs/gpt.yaml --stop-after 1000\n"
    "  trainctl train --config configs/gpt.yaml --dry-run\n"
    "  mpirun -n 8 trainctl train --config configs/gpt.yaml\n";

/// Warns if torchrun has started this process: it starts a process for each rank and sets these
/// variables. Without MPI, all processes would train the same model into one folder.
void warn_about_torchrun(std::int64_t local_ranks) {
  const char* size = std::getenv("WORLD_SIZE");
  const char* rank = std::getenv("RANK");
  if (local_ranks > 0 || launched_as().size > 1 || size == nullptr || rank == nullptr) return;
  if (std::string(size) == "1") return;
  log_warning(
      formatted("WORLD_SIZE={} and RANK={} (torchrun's) have no effect: this is a run of one rank; "
                "start ranks with 'trainctl launch -n {} -- train ...', or --local-ranks {}",
                size, rank, size, size));
}

}  // namespace

int run_train(const Arguments& arguments) {
  CommandLine line(
      "Trains a model. Under mpirun each process is one rank; otherwise there is one rank, or N "
      "with --local-ranks.",
      "trainctl train");
  std::string output;
  std::int64_t steps = 0;
  bool overwrite = false;
  TrainRequest request;
  line.add_config(request.config, request.set_options);
  line.add_device(request.set_options);
  line.add_whole_number("--steps", steps, "The same as --set train.steps=N", 1);
  line.add_text("--output", output, "The same as --set output.dir=DIR", "DIR");
  line.add_whole_number("--local-ranks", request.local_ranks,
                        "Number of ranks, as threads of this process", 1, 1024);
  line.add_text(
      "--resume", request.resume,
      "auto: from the newest checkpoint in output.dir; none: never; or a checkpoint, or a "
      "run whose newest is taken",
      "auto|none|DIR");
  line.add_whole_number("--stop-after", request.stop_after,
                        "End this session after N more steps, with a checkpoint", 1);
  line.add_flag("--overwrite", overwrite, "The same as --set output.overwrite=true");
  line.add_flag("--search-again", request.search_again, search_again_text);
  line.add_flag("--dry-run", request.dry_run,
                "Only check data, disk, memory and limits of this machine, as before a run");
  line.add_verbosity();
  if (!line.parse(arguments, train_examples)) return 0;

  line.check_ranks(request.local_ranks);
  warn_about_torchrun(request.local_ranks);
  if (line.given("--output") && output.empty()) {
    line.refuse(
        "--output is empty: a shell variable that is not set? Give a folder, or leave it out");
  }
  request.color = color_on_stderr();
  if (steps > 0) request.set_options.push_back(formatted("train.steps={}", steps));
  if (!output.empty()) request.set_options.push_back("output.dir=" + output);
  if (!line.log_level().empty()) request.set_options.push_back("log.level=" + line.log_level());
  if (overwrite) request.set_options.push_back("output.overwrite=true");
  return run_training(request);
}

}  // namespace trainctl
