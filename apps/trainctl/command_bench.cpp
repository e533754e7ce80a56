// trainctl bench step | ops | experts | comm | overlap | device | checkpoint: how the time of a
// training step is spent on this machine.
#include <algorithm>
#include <iostream>

#include "base/text.h"
#include "bench/bench.h"
#include "comm/world.h"
#include "commands.h"
#include "output.h"

namespace trainctl {

namespace {

constexpr const char* bench_examples =
    "  trainctl bench step --config configs/gpt2-124m.yaml\n"
    "  trainctl bench step --config configs/gpt2-124m.yaml --set precision.compute=bf16 --pairs "
    "15\n"
    "  trainctl bench step --config configs/gpt2-124m.yaml --against recompute.enable=true\n"
    "  trainctl bench step --config configs/gpt2-124m.yaml --by-op\n"
    "  trainctl bench ops --config configs/gpt2-124m.yaml\n"
    "  trainctl bench ops --config configs/gpt2-124m.yaml --set parallel.device=cuda\n"
    "  trainctl bench experts --config configs/tiny-experts.yaml\n"
    "  trainctl bench comm --local-ranks 2 --device cuda\n"
    "  mpirun -n 4 trainctl bench comm --max-bytes 1048576\n"
    "  trainctl bench overlap --config configs/gpt.yaml --set model.num_layers=8\n"
    "  trainctl bench device --config configs/gpt2-124m.yaml --save own.yaml\n"
    "  trainctl bench checkpoint --config configs/gpt2-124m.yaml --directory /scratch\n";

constexpr std::int64_t max_bytes = std::int64_t{1} << 36;

/// Adds the options of all benchmarks and parses; false if only the help was requested.
bool read_request(CommandLine& line, const Arguments& arguments, BenchRequest& request) {
  std::string format = "table";
  line.add_config(request.config, request.set_options);
  line.add_device(request.set_options);
  line.add_format(format, {"table", "json"});
  if (!line.parse(arguments, bench_examples)) return false;
  request.json = format == "json";
  return true;
}

/// As read_request for a benchmark of one process: more of them would disturb each other.
bool read_alone(CommandLine& line, const Arguments& arguments, BenchRequest& request) {
  if (!read_request(line, arguments, request)) return false;
  const int size = launched_as().size;
  if (size > 1) {
    line.refuse(formatted("measures in one process, but {} were started: leave out mpirun", size));
  }
  return true;
}

int run_step(const Arguments& arguments) {
  CommandLine line("Alternates training steps with a replay of their matrix products.",
                   "trainctl bench step");
  BenchRequest request;
  line.add_text("--json", request.json_file, "Also write the figures to this file, as JSON",
                "FILE");
  line.add_whole_number("--pairs", request.pairs,
                        "Number of steps and of replays, alternating; default 7", 1, 1'000'000);
  std::vector<std::string> changes;
  line.add_changes("--against", changes,
                   "Alternate with steps in which this value is replaced, instead; repeatable");
  bool by_op = false;
  line.add_flag("--by-op", by_op, "Time each operation of the step while it runs, instead");
  if (!read_alone(line, arguments, request)) return 0;
  if (by_op && !changes.empty()) line.refuse("--by-op and --against exclude each other");
  if (!request.json_file.empty() && !changes.empty()) line.refuse("--json is not for --against");
  if (by_op) {
    bench_by_op(request, std::cout);
  } else if (changes.empty()) {
    bench_step(request, std::cout);
  } else {
    bench_against(request, changes, std::cout);
  }
  return 0;
}

int run_ops(const Arguments& arguments) {
  CommandLine line("Compares each operation of the model with the limits of the machine.",
                   "trainctl bench ops");
  BenchRequest request;
  line.add_text("--json", request.json_file, "Also write the figures to this file, as JSON",
                "FILE");
  line.add_text("--only", request.only, "Only cases whose names match this regular expression",
                "PATTERN");
  if (!read_alone(line, arguments, request)) return 0;
  bench_ops(request, std::cout);
  return 0;
}

int run_experts(const Arguments& arguments) {
  CommandLine line("Compares a layer of experts with the matrix products of a plain MLP.",
                   "trainctl bench experts");
  BenchRequest request;
  line.add_whole_number("--pairs", request.pairs, "Number of turns; default 7", 1, 1'000'000);
  if (!read_alone(line, arguments, request)) return 0;
  bench_experts(request, std::cout);
  return 0;
}

int run_comm(const Arguments& arguments) {
  CommandLine line(
      "Measures every collective and messages between ranks over sizes. Under mpirun each process "
      "is one rank; otherwise --local-ranks is the number of threads.",
      "trainctl bench comm");
  CommBench options;
  std::string device = "cpu";
  std::string format = "table";
  line.add_whole_number("--local-ranks", options.local_ranks,
                        "Number of ranks, as threads of this process", 2, 1024);
  line.add_choice("--device", device, "Where the tensors are; cuda: over NCCL, a device each",
                  {"cpu", "cuda"});
  line.add_whole_number("--min-bytes", options.min_bytes, "The smallest size; default 1024", 4,
                        max_bytes);
  line.add_whole_number("--max-bytes", options.max_bytes, "The largest size; default 67108864", 4,
                        max_bytes);
  line.add_whole_number("--factor", options.factor, "From one size to the next; default 4", 2,
                        max_bytes);
  line.add_whole_number("--iterations", options.iterations, "Calls of a measurement; default 20", 1,
                        1'000'000);
  line.add_number("--deadline", options.deadline_seconds,
                  "Seconds after which a missing rank ends it; default 60", 1);
  line.add_flag("--share-devices", options.share_devices,
                "Processes that mpirun starts may share CUDA devices, over NCCL; slow");
  line.add_format(format, {"table", "json"});
  if (!line.parse(arguments, bench_examples)) return 0;
  if (options.share_devices && (device != "cuda" || options.local_ranks > 0)) {
    line.refuse("--share-devices is for --device cuda and ranks that mpirun starts");
  }
  const LaunchedAs launched = launched_as();
  if (options.local_ranks == 0 && launched.size < 2) {
    line.refuse("needs at least 2 ranks: --local-ranks 2, or mpirun -n 2");
  }
  if (options.min_bytes > options.max_bytes) {
    line.refuse(formatted("--min-bytes {} is greater than --max-bytes {}", options.min_bytes,
                          options.max_bytes));
  }
  line.check_ranks(options.local_ranks);
  options.device = device == "cuda" ? DeviceKind::cuda : DeviceKind::cpu;
  options.json = format == "json";
  bench_comm(options, std::cout);
  return 0;
}

int run_overlap(const Arguments& arguments) {
  CommandLine line("Measures how much communication is hidden, on an emulated wire.",
                   "trainctl bench overlap");
  BenchRequest request;
  request.pairs = 3;
  std::string part = "all";
  line.add_whole_number("--rounds", request.pairs, "Runs of each kind, alternating; default 3", 1,
                        1000);
  line.add_choice("--part", part, "Only this; gradients include bubbles; default all",
                  {"all", "gradients", "layers", "keys", "experts", "passes"});
  if (!read_request(line, arguments, request)) return 0;
  bench_overlap(request, part, std::cout);
  return 0;
}

int run_device(const Arguments& arguments) {
  CommandLine line(
      "Measures this machine's device and writes a file for cluster.device, so that plans rest on "
      "this machine; then a step of the configuration, compared with its plan. Under mpirun also "
      "the links inside a host and between hosts.",
      "trainctl bench device");
  BenchRequest request;
  DeviceBench options;
  line.add_text("--save", options.file, "The file to write", "FILE");
  line.require("--save", true);
  line.add_text(
      "--like", options.like,
      "A device of `trainctl devices --known`, for what is not measured; default: h100-sxm "
      "or cpu-avx2",
      "NAME");
  line.add_number("--seconds", options.seconds, "About how long it takes; default 60", 5);
  line.add_whole_number("--local-ranks", options.local_ranks,
                        "Also measure collectives between this number of ranks, as threads, and "
                        "what they take from products",
                        2, 1024);
  if (!read_request(line, arguments, request)) return 0;
  refuse_existing("trainctl bench device", options.file);
  options.command = "trainctl bench device " + shell_line(arguments);
  bench_device(request, options, std::cout);
  return 0;
}

int run_checkpoints(const Arguments& arguments) {
  CommandLine line("Measures how fast checkpoints are saved and loaded.",
                   "trainctl bench checkpoint");
  std::string directory = ".";
  BenchRequest request;
  request.pairs = 5;
  std::int64_t ranks = 2;
  line.add_whole_number("--pairs", request.pairs,
                        "Saves and loads of each kind, alternating; default 5", 1, 1000);
  line.add_text("--directory", directory, "Where to write: a directory on the disk to measure",
                "DIR");
  line.add_whole_number("--ranks", ranks, "Ranks that load, as threads; default 2", 2, 1024);
  if (!read_alone(line, arguments, request)) return 0;
  bench_checkpoint(request, directory, ranks, std::cout);
  return 0;
}

}  // namespace

int run_bench(const Arguments& arguments) {
  const int code = run_subcommand(
      "trainctl bench", arguments, bench_examples,
      {{"step", "Compare a training step with its matrix products", run_step},
       {"ops", "Compare each operation with the limits of the machine", run_ops},
       {"experts", "Compare a layer of experts with a plain MLP", run_experts},
       {"comm", "Measure collectives and messages between ranks", run_comm},
       {"overlap", "Measure hidden communication and pipeline bubbles", run_overlap},
       {"device", "Measure this machine's device for plans", run_device},
       {"checkpoint", "Measure saving and loading of checkpoints", run_checkpoints}});
  finish_output();
  return code;
}

}  // namespace trainctl
