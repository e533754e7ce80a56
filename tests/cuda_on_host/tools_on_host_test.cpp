// The tools of the built program on the emulated device: that they run and say what they should.
// The figures of the benchmarks mean nothing there.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "../cli/process.h"
#include "catch.h"
#include "emulated.h"
#include "thorough.h"

namespace {

const std::string small = R"(
model:
  {family: llama, num_layers: 1, hidden_size: 16, ffn_hidden_size: 32, num_attention_heads: 4,
   num_query_groups: 2, seq_length: 16, vocab_size: 31, make_vocab_size_divisible_by: 16}
data: {train: none}
train: {steps: 100, global_batch_size: 2}
lr_schedule: {max_lr: 1.0e-2}
parallel: {device: cuda}
)";

Outcome bench(const std::vector<std::string>& words) {
  std::vector<std::string> all{"bench"};
  all.insert(all.end(), words.begin(), words.end());
  return trainctl(all, {emulated});
}

}  // namespace

TEST_CASE("bench ops times every kernel of the table on a device") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small);
  std::set<std::string> rates;  // products in forms that no run computes in
  const auto kernels = [&](const std::string& device, const std::string& type) {
    rates.clear();
    const Outcome outcome =
        bench({"ops", "--config", config, "--format", "json", "--set", "parallel.device=" + device,
               "--set", "precision.compute=" + type});
    INFO(outcome.err);
    REQUIRE(outcome.exit_code == 0);
    std::set<std::string> found;
    for (const auto& row : nlohmann::json::parse(outcome.out)) {
      found.insert(row["kernel"]);
      const std::string name = row["op"];
      if (contains(name, "fp8") || contains(name, "tf32")) rates.insert(name);
      CHECK(row["seconds"].get<double>() > 0);
      CHECK(row["ceiling_fraction"].get<double>() > 0);
    }
    return found;
  };
  const std::set<std::string> all = kernels("cpu", "fp32");
  CHECK(all.size() > 30);
  CHECK(rates.empty());
  CHECK(kernels("cuda", "fp32") == all);
  CHECK(kernels("cuda", "bf16") == all);
  CHECK(rates.size() == 3 * 7);
  CHECK(rates.contains("matmul fp8 128 x 128 mlp.up weight gradient"));
  CHECK(rates.contains("matmul tf32 mlp.up forward"));
  const Outcome table = bench({"ops", "--config", config});
  CHECK(contains(table.out, "on CUDA on the host, 4 multiprocessors: copies "));
}

TEST_CASE("bench step times each operation of a step on a device") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small);
  const Outcome outcome = bench(
      {"step", "--config", config, "--by-op", "--pairs", "1", "--json", dir / "figures.json"});
  INFO(outcome.out << outcome.err);
  REQUIRE(outcome.exit_code == 0);
  CHECK(contains(outcome.out, "on CUDA on the host, 4 multiprocessors"));
  CHECK(contains(outcome.out, "between them"));
  const auto found = nlohmann::json::parse(read_file(dir / "figures.json"));
  std::int64_t operations = 0;
  std::int64_t memsets = 0;
  std::set<std::string> names;
  for (const auto& row : found["rows"]) {
    names.insert(row["op"]);
    CHECK(row["calls"] > 0);
    CHECK(row["bytes"] > 0);
    CHECK(row["limit_seconds"] > 0);
    if (row["kind"] == "kernel") operations += row["calls"].get<std::int64_t>();
    if (row["kind"] == "memset") memsets += row["calls"].get<std::int64_t>();
  }
  CHECK(found["operations"] == operations);
  CHECK(found["memsets"] == memsets);
  CHECK(memsets > 0);
  for (const char* name : {"matmul", "rmsnorm_backward", "attention_forward", "adamw", "copy"}) {
    INFO(name);
    CHECK(names.contains(name));
  }
  CHECK(bench({"step", "--config", config, "--by-op", "--against", "train.seed=2"}).exit_code ==
        exits::usage);
}

TEST_CASE("bench step compares a step with its products on a device") {
  const TempDir dir;
  const Outcome outcome =
      bench({"step", "--config", dir.write("a.yaml", small), "--pairs", "2", "--format", "json"});
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  const auto found = nlohmann::json::parse(outcome.out);
  CHECK(found["tokens_per_second"].get<double>() > 0);
  CHECK(found["step_over_products"].get<double>() > 1);
  CHECK(found["device"] == "CUDA on the host, 4 multiprocessors");
}

TEST_CASE("bench comm measures NCCL between devices, and needs one for each rank") {
  const Outcome outcome = bench({"comm", "--local-ranks", "3", "--device", "cuda", "--max-bytes",
                                 "4096", "--iterations", "2", "--format", "json"});
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  const auto found = nlohmann::json::parse(outcome.out);
  CHECK(found["ranks"] == 3);
  CHECK(found["wire"] == "NCCL on CUDA on the host");
  CHECK(found["operations"].size() == 1 + 6 * 2);
  for (const auto& row : found["operations"]) CHECK(row["wrong"] == 0);
  const Outcome many = bench({"comm", "--local-ranks", "5", "--device", "cuda"});
  CHECK(many.exit_code == 69);
  CHECK(contains(many.err, "has no device of its own: 4 CUDA device(s) are visible"));
}

TEST_CASE("devices are listed, or why there is none") {
  const auto devices = trainctl({"devices", "--format", "json"}, {emulated});
  const auto found = nlohmann::json::parse(devices.out);
  REQUIRE(found.size() == 4);
  CHECK(found[3]["number"] == 3);
  CHECK(found[3]["capability"] == "9.0");
  CHECK(found[3]["memory_bytes"] == std::int64_t{8} << 30);
  CHECK(contains(trainctl({"devices"}, {emulated, "CUDA_ON_HOST_DEVICES=1"}).out,
                 "0  CUDA on the host, compute capability 9.0, 4 multiprocessors, 8.00 GiB\n"));
  CHECK(!contains(devices.err, "CUDA_DEVICE_MAX_CONNECTIONS"));
  CHECK(contains(trainctl({"devices"}, {emulated, "CUDA_DEVICE_MAX_CONNECTIONS=1"}).err,
                 "warning: CUDA_DEVICE_MAX_CONNECTIONS is 1, not 32: streams that share a queue"));
  const Outcome none = trainctl({"devices"}, {"TRAINCTL_CUDA_MODULE=/nowhere.so"});
  CHECK(none.exit_code == 69);
  CHECK(contains(none.err, "/nowhere.so does not exist"));
}

TEST_CASE("a profiler is told the rows of a step where log.trace is given") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small);
  const std::string text = dir.write("text.txt", std::string(2000, 'a') + "to be or not to be");
  const auto lines_of = [&](const std::string& trace, const std::string& graphs = "false") {
    const Outcome run = trainctl({"train",     "--config",
                                  config,      "--output",
                                  dir / "run", "--overwrite",
                                  "--steps",   graphs == "true" ? "5" : "2",
                                  "--set",     "data.train=" + text,
                                  "--set",     "data.tokenizer=byte",
                                  "--set",     "model.vocab_size=256",
                                  "--set",     "lr_schedule.warmup_steps=0",
                                  "--set",     "log.trace=" + trace,
                                  "--set",     "log.trace_steps=2",
                                  "--set",     "parallel.cuda_graphs=" + graphs,
                                  "--set",     "cluster.matmul_flops=1e12",
                                  "--set",     "cluster.memory_bandwidth=1e12",
                                  "--set",     "cluster.bandwidth=1e11",
                                  "--set",     "cluster.latency=1e-5"},
                                 {emulated, "NVTX_INJECTION64_PATH=" TRAINCTL_NVTX_PROFILER,
                                  "NVTX_LINES=" + (dir / "lines")});
    INFO(run.err);
    CHECK(run.exit_code == 0);
    return std::filesystem::exists(dir / "lines") ? read_file(dir / "lines") : "";
  };
  const std::string quiet = lines_of("\"\"");
  CHECK(quiet.empty());
  std::string lines = lines_of(dir / "trace.json");
  INFO(lines);
  const auto count = [&](const std::string& line) {
    std::size_t found = 0;
    for (auto at = lines.find(line); at != std::string::npos; at = lines.find(line, at + 1)) {
      ++found;
    }
    return found;
  };
  CHECK(count("+step\n") == 2);
  CHECK(count("+F0.0[0,3)\n") == 2);
  CHECK(count("+B0.0[") >= 2);
  // Each range ends before the next begins.
  CHECK(count("+") == count("-\n"));
  CHECK(count("\n+") == count("-\n+"));
  // When steps are graphs, the host goes through the rows three times: twice to run them, and once
  // to capture them.
  lines = lines_of(dir / "trace.json", "true");
  CHECK(count("+step\n") == 3);
  const auto events = nlohmann::json::parse(read_file(dir / "trace.json"))["traceEvents"];
  const auto steps = std::count_if(events.begin(), events.end(), [](const nlohmann::json& event) {
    return event.value("name", "") == "step";
  });
  CHECK(steps == 2);
}

TEST_CASE("plan tells what a device holds, and whether it fits") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small);
  const auto plan = [&](const char* size) {
    return trainctl({"plan", "--config", config, "--world-size", "2", "--set",
                     std::string("cluster.device_memory=") + size});
  };
  const Outcome fits = plan("80");
  INFO(fits.out);
  CHECK(fits.exit_code == 0);
  CHECK(contains(fits.out, "library"));
  CHECK(contains(fits.out, "communicators"));
  CHECK(contains(fits.out, "on the device 1."));
  CHECK(contains(fits.out, "fits in 80 GiB, "));
  CHECK(contains(fits.out, "(cluster.device_memory)"));
  const Outcome large = plan("1");
  CHECK(large.exit_code == 0);
  CHECK(contains(large.out, "does not fit in 1 GiB"));
  CHECK(contains(large.err, "warning[device-memory]: cluster.device_memory: the fullest rank"));
}

namespace {

/// Runs the script, in the folder of a test, and returns its report.
Outcome gpu_check(const TempDir& dir, const std::string& only, std::vector<std::string> environment,
                  const std::string& profile = "all") {
  const auto build = std::filesystem::path(TRAINCTL_PROGRAM).parent_path().parent_path();
  environment.push_back("TRAINCTL_BUILD=" + build.string());
  environment.emplace_back("TRAINCTL_GPU_CHECK_SMALL=1");
  Outcome outcome = run_program(
      "bash",
      {TRAINCTL_SOURCE_DIR "/scripts/gpu_check.sh", "--profile", profile, "--seconds", "1800",
       "--output", dir / "report", "--json", dir / "figures.json", "--only", only},
      environment);
  outcome.out = read_file(dir / "report");
  return outcome;
}

Outcome gpu_check(const std::string& only, const std::vector<std::string>& environment) {
  const TempDir dir;
  return gpu_check(dir, only, environment);
}

/// As the driver's program, as far as the script asks it: a line for each device, or samples.
void write_driver_program(const TempDir& dir) {
  const std::string file = dir.write("nvidia-smi", R"(#!/bin/sh
case "$*" in
  *-l*) while :; do echo "1830, 412.5, 1024"; sleep 0.2; done ;;
  *) echo "index, name"; echo "0, CUDA on the host" ;;
esac
)");
  std::filesystem::permissions(file, std::filesystem::perms::owner_all);
}

}  // namespace

TEST_CASE("gpu_check runs its sections, and skips with a reason what cannot run") {
  const Outcome whole = gpu_check("test cuda_device|1 rank, fp32|losses of graphs|memcheck",
                                  {emulated, "CUDA_ON_HOST_DEVICES=2"});
  INFO(whole.out << whole.err);
  CHECK(whole.exit_code == 0);
  for (const char* name : {"test cuda_device", "verify, 1 rank, fp32", "losses of graphs",
                           "losses of graphs, several ranks"}) {
    CHECK(contains(whole.out, "== " + std::string(name) + ": passed, "));
  }
  CHECK(contains(whole.out, "losses of 6 steps are the same"));
  CHECK(contains(whole.out, "4 passed, 0 failed, 1 skipped, "));
  const Outcome one = gpu_check("bench comm", {emulated, "CUDA_ON_HOST_DEVICES=1"});
  CHECK(one.exit_code == 0);
  CHECK(contains(one.out, "== bench comm: SKIPPED: needs 2 devices, 1 here"));
  const Outcome none = gpu_check(".", {"TRAINCTL_CUDA_MODULE=/nowhere.so"});
  CHECK(none.exit_code == 0);
  CHECK(contains(none.out, "/nowhere.so does not exist"));
  CHECK(contains(none.out, "== step, Qwen 7B, 4 x 1,024: SKIPPED: no device"));
  CHECK(contains(none.out, ": 0 passed, 0 failed, "));
}

TEST_CASE("gpu_check tells what failed") {
  const Outcome outcome = gpu_check("train", {emulated, "CUDA_ON_HOST_MEMORY=1048576"});
  INFO(outcome.out);
  CHECK(outcome.exit_code == 1);
  CHECK(contains(outcome.out, "== train, 20 steps: FAILED: exit code 69"));
  CHECK(contains(outcome.out, ": 0 passed, 1 failed, 0 skipped"));
}

TEST_CASE("gpu_check keeps figures, and compares them with those that are known") {
  const TempDir dir;
  write_driver_program(dir);
  const Outcome speed = gpu_check(dir, "step, 124M, 4|nvidia",
                                  {emulated, "CUDA_ON_HOST_DEVICES=1",
                                   "PATH=" + dir.path().string() + ":" + std::getenv("PATH")},
                                  "speed");
  INFO(speed.out << speed.err);
  CHECK(speed.exit_code == 0);
  CHECK(contains(speed.out, "SM clock 1830 to 1830 MHz, at most 412 W, 1024 MiB"));
  CHECK(contains(speed.out, "figures of CUDA on the host: before, now, ratio"));
  const auto figures = nlohmann::json::parse(read_file(dir / "figures.json"));
  const auto& mine = figures["CUDA on the host"];
  CHECK(mine["124M x 4, tokens/s"] > 0);
  CHECK(mine["124M x 4, step / products"] > 0);
  // Figures of the repository are in the form that the script reads.
  const std::string known = read_file(TRAINCTL_SOURCE_DIR "/docs/gpu-figures.json");
  CHECK(nlohmann::json::parse(known)["NVIDIA H100 80GB HBM3"]["124M x 4, tokens/s"] == 344000);
  CHECK(contains(known, "    \"124M x 4, tokens/s\": 344000,\n"));
}

TEST_CASE("both profiles run to their end") {
  if (!thorough()) return;
  for (const std::string profile : {"check", "speed"}) {
    const TempDir dir;
    const Outcome whole = gpu_check(
        dir, ".",
        {emulated, "TRAINCTL_CUDNN_LIBRARY=" TRAINCTL_EMULATED_CUDA, "CUDA_ON_HOST_DEVICES=1"},
        profile);
    INFO(whole.out << whole.err);
    CHECK(whole.exit_code == 0);
    CHECK(contains(whole.out, " 0 failed, "));
    CHECK(!contains(whole.out, "no time left"));
  }
}
