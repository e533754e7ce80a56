// The tools of the built program on the emulated device: that they run and say what they should.
// The figures of the benchmarks mean nothing there.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "../cli/process.h"
#include "catch.h"
#include "emulated.h"

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
  const auto kernels = [&](const std::string& device, const std::string& type) {
    const Outcome outcome =
        bench({"ops", "--config", config, "--format", "json", "--set", "parallel.device=" + device,
               "--set", "precision.compute=" + type});
    INFO(outcome.err);
    REQUIRE(outcome.exit_code == 0);
    std::set<std::string> found;
    for (const auto& row : nlohmann::json::parse(outcome.out)) {
      found.insert(row["kernel"]);
      CHECK(row["seconds"].get<double>() > 0);
      CHECK(row["ceiling_fraction"].get<double>() > 0);
    }
    return found;
  };
  const std::set<std::string> all = kernels("cpu", "fp32");
  CHECK(all.size() > 30);
  CHECK(kernels("cuda", "fp32") == all);
  CHECK(kernels("cuda", "bf16") == all);
  const Outcome table = bench({"ops", "--config", config});
  CHECK(contains(table.out, "on CUDA on the host, 4 multiprocessors: copies "));
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
  // Of steps that are graphs the host goes through the rows three times: twice as they are, and to
  // capture them.
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

/// Runs the script and returns its report.
Outcome gpu_check(const std::string& only, std::vector<std::string> environment) {
  const TempDir dir;
  const auto build = std::filesystem::path(TRAINCTL_PROGRAM).parent_path().parent_path();
  environment.push_back("TRAINCTL_BUILD=" + build.string());
  environment.emplace_back("TRAINCTL_GPU_CHECK_SMALL=1");
  Outcome outcome = run_program(
      "bash",
      {TRAINCTL_SOURCE_DIR "/scripts/gpu_check.sh", "--output", dir / "report", "--only", only},
      environment);
  outcome.out = read_file(dir / "report");
  return outcome;
}

}  // namespace

TEST_CASE("gpu_check runs its sections, and skips with a reason what cannot run") {
  const Outcome whole = gpu_check("test cuda_device|1 rank, fp32|losses|bench step|memcheck",
                                  {emulated, "CUDA_ON_HOST_DEVICES=2"});
  INFO(whole.out << whole.err);
  CHECK(whole.exit_code == 0);
  for (const char* name : {"test cuda_device", "verify, 1 rank, fp32", "losses of graphs",
                           "losses of graphs, several ranks", "bench step"}) {
    CHECK(contains(whole.out, "== " + std::string(name) + ": passed, "));
  }
  CHECK(contains(whole.out, "losses of 6 steps are the same"));
  CHECK(contains(whole.out, "5 passed, 0 failed, 1 skipped, "));
  const Outcome one = gpu_check("comm", {emulated, "CUDA_ON_HOST_DEVICES=1"});
  CHECK(one.exit_code == 0);
  CHECK(contains(one.out, "== bench comm: SKIPPED: needs 2 devices, 1 here"));
  const Outcome none = gpu_check(".", {"TRAINCTL_CUDA_MODULE=/nowhere.so"});
  CHECK(none.exit_code == 0);
  CHECK(contains(none.out, "/nowhere.so does not exist"));
  CHECK(contains(none.out, "== bench ops: SKIPPED: no device"));
  CHECK(contains(none.out, ": 0 passed, 0 failed, "));
}

TEST_CASE("gpu_check tells what failed") {
  const Outcome outcome = gpu_check("train", {emulated, "CUDA_ON_HOST_MEMORY=1048576"});
  INFO(outcome.out);
  CHECK(outcome.exit_code == 1);
  CHECK(contains(outcome.out, "== train, 20 steps: FAILED: exit code 69"));
  CHECK(contains(outcome.out, ": 0 passed, 1 failed, 0 skipped"));
}
