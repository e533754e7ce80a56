// trainctl bench step | ops | overlap | checkpoint: where the time of a training step goes on this
// machine.
#include <iostream>

#include "bench/bench.h"
#include "commands.h"
#include "output.h"

namespace trainctl {

namespace {

constexpr const char* examples =
    "  trainctl bench step --config configs/gpt2-124m.yaml\n"
    "  trainctl bench step --config configs/gpt2-124m.yaml --set precision.compute=bf16 --pairs "
    "15\n"
    "  trainctl bench ops --config configs/gpt2-124m.yaml\n"
    "  trainctl bench overlap --config configs/gpt.yaml --set model.num_layers=8\n"
    "  trainctl bench checkpoint --config configs/gpt2-124m.yaml --directory /scratch\n";

/// Options of all benchmarks; false if only the help was requested.
bool read_request(CommandLine& line, const Arguments& arguments, BenchRequest& request) {
  std::string config;
  std::string format = "table";
  line.add_config(config, request.set_options);
  line.add_device(request.set_options);
  line.add_format(format, {"table", "json"});
  if (!line.parse(arguments, examples)) return false;
  request.config = config;
  request.json = format == "json";
  return true;
}

int run_step(const Arguments& arguments) {
  CommandLine line("Alternates training steps with a replay of their matrix products.",
                   "trainctl bench step");
  std::int64_t pairs = 7;
  BenchRequest request;
  line.add_whole_number("--pairs", pairs, "Number of steps and of replays, alternating; default 7",
                        1, 1'000'000);
  if (!read_request(line, arguments, request)) return 0;
  request.pairs = static_cast<int>(pairs);
  bench_step(request, std::cout);
  finish_output();
  return 0;
}

int run_ops(const Arguments& arguments) {
  CommandLine line("Compares each operation of the model with the limits of the machine.",
                   "trainctl bench ops");
  BenchRequest request;
  if (!read_request(line, arguments, request)) return 0;
  bench_ops(request, std::cout);
  finish_output();
  return 0;
}

int run_overlap(const Arguments& arguments) {
  CommandLine line("Measures how much communication is hidden, on an emulated wire.",
                   "trainctl bench overlap");
  std::int64_t rounds = 3;
  BenchRequest request;
  line.add_whole_number("--rounds", rounds, "Runs of each kind, alternating; default 3", 1, 1000);
  if (!read_request(line, arguments, request)) return 0;
  request.pairs = static_cast<int>(rounds);
  bench_overlap(request, std::cout);
  finish_output();
  return 0;
}

int run_checkpoints(const Arguments& arguments) {
  CommandLine line("Measures how fast checkpoints are saved and loaded.",
                   "trainctl bench checkpoint");
  std::int64_t pairs = 5;
  std::string directory = ".";
  BenchRequest request;
  CheckpointBench options;
  line.add_whole_number("--pairs", pairs, "Saves and loads of each kind, alternating; default 5", 1,
                        1000);
  line.add_text("--directory", directory, "Where to write: a directory on the disk to measure",
                "DIR");
  line.add_whole_number("--ranks", options.ranks, "Ranks that load, as threads; default 2", 2,
                        1024);
  if (!read_request(line, arguments, request)) return 0;
  request.pairs = static_cast<int>(pairs);
  options.directory = directory;
  bench_checkpoint(request, options, std::cout);
  finish_output();
  return 0;
}

}  // namespace

int run_bench(const Arguments& arguments) {
  return run_subcommand(
      "trainctl bench", arguments, examples,
      {{"step", "Compare a training step with its matrix products", run_step},
       {"ops", "Compare each operation with the limits of the machine", run_ops},
       {"overlap", "Measure hidden communication and pipeline bubbles", run_overlap},
       {"checkpoint", "Measure saving and loading of checkpoints", run_checkpoints}});
}

}  // namespace trainctl
