// trainctl: chooses the command, and is the only place that turns a failure into an exit code.
#include <csignal>
#include <cstdlib>
#include <exception>
#include <new>
#include <string>
#include <system_error>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/units.h"
#include "comm/rank_words.h"
#include "commands.h"
#include "ops/cpu_level.h"
#include "output.h"
#include "run/preflight/machine.h"

namespace trainctl {

namespace {

constexpr const char* program_examples =
    "  trainctl validate configs/gpt.yaml\n"
    "  trainctl plan --config configs/gpt.yaml --world-size 8\n"
    "  trainctl train --config configs/quickstart.yaml --local-ranks 2\n"
    "  mpirun -n 8 trainctl train --config configs/gpt.yaml\n"
    "  trainctl launch -n 8 -- train --config configs/gpt.yaml\n"
    "  trainctl generate --run runs/quickstart --prompt 'The license' --max-tokens 200\n";

int dispatch(Arguments arguments) {
  while (!arguments.empty() && arguments.front() == "--no-color") {
    setenv("NO_COLOR", "1", 1);
    arguments.erase(arguments.begin());
  }
  const bool asks = arguments.size() == 1 && arguments.front() == "version";
  if (asks || (!arguments.empty() && arguments.front() == "--version")) {
    print(formatted("trainctl {}\n", TRAINCTL_VERSION));
    return 0;
  }
  return run_command(arguments);
}

/// The limit of the address space that a shell has set; "" if there is none.
std::string limit_text() {
  const auto limit = address_space_limit();
  if (!limit) return "";
  return ": the address space of a process is limited to " + format_bytes(*limit) + " (ulimit -v)";
}

int report(const std::string& message, ExitCode code) {
  log_error(message);
  return static_cast<int>(code);
}

/// The exit code of the command; a failure becomes a message.
int code_of(const Arguments& arguments) {
  try {
    cpu_level();  // refuses a processor that is too old before any kernel could run on it
    return dispatch(arguments);
  } catch (const OutputClosed&) {
    return static_cast<int>(ExitCode::ok);
  } catch (const Error& failure) {
    return report(failure.what(), failure.code());
  } catch (const std::bad_alloc&) {
    return report("out of memory" + limit_text(), ExitCode::unavailable);
  } catch (const std::system_error& failure) {
    if (failure.code() != std::errc::resource_unavailable_try_again) {
      return report(formatted("internal error: {}", failure.what()), ExitCode::internal);
    }
    return report(
        "the system lets this user start no more threads; raise the limit with ulimit "
        "-u, or that of the container",
        ExitCode::unavailable);
  } catch (const std::exception& failure) {
    return report(formatted("internal error: {}", failure.what()), ExitCode::internal);
  }
}

}  // namespace

int run_command(const Arguments& arguments) {
  return run_subcommand(
      "trainctl", arguments, program_examples,
      {{"train", "Train a model from a YAML file", run_train},
       {"launch", "Start train over MPI with the right mpirun command", run_launch},
       {"validate", "Check a YAML file without starting anything", run_validate},
       {"plan", "Show what a run would do: memory, communication, steps", run_plan},
       {"verify", "Compare layouts with a single rank, number by number", run_verify},
       {"migrate", "Rewrite a YAML file with canonical keys", run_migrate},
       {"data", "Build and inspect token files", run_data},
       {"checkpoint", "List, check, compare, export and import checkpoints", run_checkpoint},
       {"generate", "Continue a text with a trained model", run_generate},
       {"evaluate", "Compute loss, perplexity and bits per byte on any data", run_evaluate},
       {"report", "Show runs as one page of curves and ledgers, or for TensorBoard", run_report},
       {"watch", "Show a run on the terminal while it trains", run_watch},
       {"bench", "Measure training steps, operations or communication", run_bench},
       {"devices", "List the CUDA devices of this machine", run_devices},
       {"completion", "Print completion of commands for bash, zsh or fish", run_completion},
       {"explain", "Explain the code of a diagnostic", run_explain},
       {"schema", "Print every key of the YAML file, for editors or for people", run_schema}});
}

}  // namespace trainctl

int main(int argc, char** argv) {
  using namespace trainctl;
  // A closed pipe then shows as a failed write, which print() reports.
  std::signal(SIGPIPE, SIG_IGN);
  // A limit on the size of files (ulimit -f) then shows as a failed write, too.
  std::signal(SIGXFSZ, SIG_IGN);
  tell_launch(RankWord::start);
  tell_sudden_end_to([](int code) { tell_launch(RankWord::failed, code); });
  const int code = code_of(Arguments(argv + 1, argv + argc));
  if (code != 0) tell_launch(RankWord::failed, code);
  return code;
}
