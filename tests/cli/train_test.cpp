// Whole runs of a tiny model: what they write, that they repeat, and that the number of ranks and
// the wire do not matter.
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <regex>
#include <utility>

#include "catch.h"
#include "runs.h"

namespace {

const std::vector<std::string> with_validation = {"--set", "train.validate_every=2", "--set",
                                                  "data.validation.fraction=0.02"};

double largest_difference(const std::string& one, const std::string& other) {
  const auto a = metrics_of(one);
  const auto b = metrics_of(other);
  REQUIRE(a.size() == b.size());
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    REQUIRE(a[i].contains("val_loss") == b[i].contains("val_loss"));
    for (const char* key : {"loss", "val_loss"}) {
      if (!a[i].contains(key)) continue;
      const double loss = a[i][key];
      most = std::max(most, std::abs(b[i][key].get<double>() - loss) / loss);
    }
  }
  return most;
}

std::string bytes_of(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// The header of a safetensors file, and all its values one after the other.
std::pair<std::string, std::vector<float>> weights_of(const std::string& run) {
  const std::string bytes = bytes_of(run + "/model.safetensors");
  std::uint64_t length = 0;
  REQUIRE(bytes.size() > sizeof(length));
  std::memcpy(&length, bytes.data(), sizeof(length));
  const std::size_t start = sizeof(length) + length;
  std::vector<float> values((bytes.size() - start) / sizeof(float));
  std::memcpy(values.data(), bytes.data() + start, values.size() * sizeof(float));
  return {bytes.substr(0, start), values};
}

}  // namespace

TEST_CASE("ranks that split the model train and export the weights of one rank") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  REQUIRE(trainctl(train_words(config, dir / "alone", with_validation)).exit_code == 0);
  const auto [header, alone] = weights_of(dir / "alone");
  const std::vector<std::string> tensor{"parallel.tensor_parallel=2",
                                        "parallel.sequence_parallel=true"};
  const std::vector<std::string> pipeline{"parallel.tensor_parallel=2",
                                          "parallel.pipeline_stages=2"};
  for (const auto& layout : {tensor, pipeline}) {
    INFO(layout.back());
    std::vector<std::string> split = with_validation;
    split.insert(split.end(), {"--set", "parallel.threads_per_rank=1"});
    for (const std::string& option : layout) split.insert(split.end(), {"--set", option});
    const Outcome processes = train_over_mpi(4, train_words(config, dir / "mpi", split));
    INFO(processes.err);
    REQUIRE(processes.exit_code == 0);
    split.insert(split.end(), {"--local-ranks", "4"});
    REQUIRE(trainctl(train_words(config, dir / "threads", split)).exit_code == 0);
    CHECK(repeatable_metrics(dir / "threads") == repeatable_metrics(dir / "mpi"));
    CHECK(bytes_of(dir / "threads/model.safetensors") == bytes_of(dir / "mpi/model.safetensors"));
    CHECK(largest_difference(dir / "alone", dir / "threads") < 1e-6);
    const auto [same_header, values] = weights_of(dir / "threads");
    CHECK(same_header == header);
    REQUIRE(values.size() == alone.size());
    double most = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      most =
          std::max(most, std::abs(static_cast<double>(values[i]) - static_cast<double>(alone[i])));
    }
    CHECK(most < 2e-3);  // four steps of Adam, which turns rounding into small steps
  }
}

TEST_CASE("a run leaves its configuration, plan, metrics, log and weights") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  const std::string run = dir / "run";
  const Outcome outcome = trainctl(train_words(config, run, with_validation));
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  CHECK(outcome.out.empty());

  const auto lines = metrics_of(run);
  REQUIRE(lines.size() == 4);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    CHECK(lines[i]["step"] == i + 1);
    CHECK(lines[i]["tokens"] == (i + 1) * 8 * 16);
    for (const char* key : {"loss", "grad_norm", "lr", "tokens_per_second", "step_seconds"}) {
      CHECK(lines[i][key].is_number());
    }
    CHECK(lines[i].contains("val_loss") == (i % 2 == 1));
  }
  CHECK(lines[0]["loss"].get<double>() == Approx(std::log(256.0)).margin(0.5));
  for (const char* name : {"plan.json", "rank-0.log", "model.safetensors", "config.json"}) {
    CHECK(std::filesystem::file_size(run + "/" + name) > 0);
  }
  const Outcome again = trainctl({"validate", "--config", run + "/config.yaml"});
  INFO(again.err);
  CHECK(again.exit_code == 0);
}

TEST_CASE("the same command twice writes the same numbers, over threads and over MPI") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  std::vector<std::string> threads = with_validation;
  threads.insert(threads.end(), {"--local-ranks", "2", "--set", "parallel.threads_per_rank=1"});
  std::vector<std::string> processes = with_validation;
  processes.insert(processes.end(), {"--set", "parallel.threads_per_rank=1"});
  REQUIRE(trainctl(train_words(config, dir / "t1", threads)).exit_code == 0);
  REQUIRE(trainctl(train_words(config, dir / "t2", threads)).exit_code == 0);
  const Outcome mpi = train_over_mpi(2, train_words(config, dir / "m", processes));
  INFO(mpi.err);
  REQUIRE(mpi.exit_code == 0);
  CHECK(metrics_of(dir / "t1").size() == 4);
  CHECK(repeatable_metrics(dir / "t1") == repeatable_metrics(dir / "t2"));
  CHECK(repeatable_metrics(dir / "t1") == repeatable_metrics(dir / "m"));
  processes.insert(processes.end(), {"--set", "parallel.check_collectives=true"});
  REQUIRE(train_over_mpi(2, train_words(config, dir / "c", processes)).exit_code == 0);
  CHECK(repeatable_metrics(dir / "t1") == repeatable_metrics(dir / "c"));
}

TEST_CASE("the number of ranks does not change the losses") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  const std::vector<std::string> longer = {"--steps", "20"};
  REQUIRE(trainctl(train_words(config, dir / "1", longer)).exit_code == 0);
  for (const char* ranks : {"2", "4", "8"}) {
    std::vector<std::string> more = longer;
    more.insert(more.end(), {"--local-ranks", ranks});
    const Outcome outcome = trainctl(train_words(config, dir / ranks, more));
    INFO(ranks << " ranks: " << outcome.err);
    REQUIRE(outcome.exit_code == 0);
    CHECK(largest_difference(dir / "1", dir / ranks) < 1e-5);
  }
  const Outcome mpi = train_over_mpi(8, train_words(config, dir / "mpi", longer));
  INFO(mpi.err);
  REQUIRE(mpi.exit_code == 0);
  CHECK(largest_difference(dir / "1", dir / "mpi") < 1e-5);
}

TEST_CASE("a run says how long its last step took and should have taken") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  const auto measured = [&](const std::string& run, const std::vector<std::string>& more) {
    const Outcome outcome = trainctl(train_words(config, dir / run, more));
    INFO(outcome.err);
    REQUIRE(outcome.exit_code == 0);
    return nlohmann::json::parse(read_file(dir / (run + "/measured.json")));
  };
  const nlohmann::json own = measured("own", {"--local-ranks", "2"});
  std::vector<std::string> given{"--local-ranks", "2"};
  CHECK_FALSE(own["cpu_level"].get<std::string>().empty());
  for (const auto& [rate, value] : own["cluster"].items()) {
    CHECK(value.get<double>() > 0);
    given.insert(given.end(), {"--set", "cluster." + rate + "=" + value.dump()});
  }
  for (const char* part : {"forward_backward_seconds", "optimizer_seconds"}) {
    CHECK(own[part]["planned"].get<double>() > 0);
    CHECK(own[part]["measured"].get<double>() > 0);
  }
  // With these rates in the config the plan has the same time, and the run holds it against that.
  const nlohmann::json again = measured("given", given);
  const auto plan = nlohmann::json::parse(read_file(dir / "given/plan.json"));
  for (const char* part : {"forward_backward_seconds", "exposed_seconds", "optimizer_seconds"}) {
    CHECK(again[part]["planned"] == own[part]["planned"]);
    CHECK(again[part]["planned"] == plan["time"][part]);
  }
}

TEST_CASE("log.trace writes one file with the last steps of all ranks, over threads and over MPI") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  const std::string file = dir / "new/trace.json";
  std::vector<std::string> more;
  for (const char* option : {"parallel.threads_per_rank=1", "log.trace_steps=2"}) {
    more.insert(more.end(), {"--set", option});
  }
  more.insert(more.end(), {"--set", "log.trace=" + file});
  const auto check = [&](const Outcome& outcome, const std::string& outcome_folder) {
    INFO(outcome.err);
    REQUIRE(outcome.exit_code == 0);
    const std::string log = read_file(outcome_folder + "/rank-0.log");
    CHECK(contains(log, "step 4                   planned      measured"));
    const auto trace = nlohmann::json::parse(read_file(file));
    int optimizers[2] = {0, 0};
    for (const nlohmann::json& event : trace["traceEvents"]) {
      if (event["name"] == "step") ++optimizers[event["pid"].get<int>()];
    }
    CHECK(optimizers[0] == 2);
    CHECK(optimizers[1] == 2);
    std::filesystem::remove_all(dir / "new");
  };
  check(train_over_mpi(2, train_words(config, dir / "mpi", more)), dir / "mpi");
  more.insert(more.end(), {"--local-ranks", "2"});
  check(trainctl(train_words(config, dir / "threads", more)), dir / "threads");
  const Outcome plain = trainctl(train_words(config, dir / "plain", {"--verbose"}));
  CHECK(contains(plain.err, "step 4                   planned      measured"));
  CHECK(!std::filesystem::exists(dir / "new"));
}

TEST_CASE("a run ends with its loss, its time, the report and what to do next") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  const std::string run = dir / "my run";
  const Outcome outcome = trainctl(
      train_words(config, run, {"--set", "data.validation.fraction=0.1", "--local-ranks", "2"}));
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  CHECK(contains(outcome.err, "2 ranks x "));
  CHECK_FALSE(contains(outcome.err, "(s)"));
  CHECK_FALSE(contains(outcome.err, "planned      measured"));
  const std::string text = outcome.err.substr(outcome.err.find("\ntrained "));
  CHECK(std::regex_match(text,
                         std::regex("\ntrained 4 steps in [0-9.]+ m?s: loss [0-9.]+, validation "
                                    "loss [0-9.]+\nreport: [^\n]+/my run/report.html\nnext: "
                                    "trainctl generate --run '[^\n]+/my run'\n")));
  const Outcome next = run_program(
      "/bin/sh", {"-c", std::string(TRAINCTL_PROGRAM) +
                            text.substr(text.find(" generate --run"),
                                        text.rfind('\n') - text.find(" generate --run")) +
                            " --prompt You --max-tokens 3"});
  INFO(next.err);
  CHECK(next.exit_code == 0);
}

TEST_CASE("a process that may use one core of several has one thread") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  const Outcome outcome = run_program("taskset", {"-c", "0", TRAINCTL_PROGRAM, "train", config,
                                                  "--dry-run", "--output", dir / "run"});
  INFO(outcome.err);
  CHECK(outcome.exit_code == 0);
  CHECK(contains(outcome.err, "threads: 1 rank x 1 thread on 1 core\n"));
}

TEST_CASE("a trace that cannot be written costs neither the weights nor the exit code") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  const std::string folder = dir / "folder";
  std::filesystem::create_directory(folder);
  const Outcome outcome =
      trainctl(train_words(config, dir / "run", {"--set", "log.trace=" + folder}));
  INFO(outcome.err);
  CHECK(outcome.exit_code == 0);
  CHECK(contains(outcome.err, "not reported: cannot write " + folder + ": Is a directory"));
  CHECK(std::filesystem::exists(dir / "run/model.safetensors"));
}

TEST_CASE("launch starts a run over MPI") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  std::vector<std::string> words = {"launch", "-n", "2", "--"};
  for (const std::string& word : train_words(config, dir / "run")) words.push_back(word);
  const Outcome outcome = trainctl(words);
  INFO(outcome.err);
  CHECK(outcome.exit_code == 0);
  CHECK(metrics_of(dir / "run").size() == 4);
}

TEST_CASE("generate continues a prompt, the same for the same seed") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  REQUIRE(trainctl(train_words(config, dir / "run")).exit_code == 0);
  const auto generate = [&](const char* seed) {
    return trainctl({"generate", "--run", dir / "run", "--prompt", "The license", "--max-tokens",
                     "40", "--seed", seed});
  };
  const Outcome one = generate("1");
  INFO(one.err);
  CHECK(one.exit_code == 0);
  CHECK(one.out.starts_with("The license"));
  CHECK(one.out.size() > 40);
  CHECK(one.out == generate("1").out);
  CHECK(one.out != generate("2").out);
  const Outcome absent =
      trainctl({"generate", "--run", dir / "none", "--prompt", "x", "--max-tokens", "4"});
  CHECK(absent.exit_code == 66);
  CHECK(contains(absent.err, "none"));
}

TEST_CASE("training and generating with a tokenizer of Hugging Face") {
  const TempDir dir;
  const std::string folder = TRAINCTL_SOURCE_DIR "/tests/reference/tokenizers/llama3";
  const std::string prefix = dir / "text";
  const std::string text =
      dir.write("a.txt", std::string(2000, 'x') + " The lazy dog can't jump.\n");
  REQUIRE(trainctl(
              {"data", "build", "--input", text, "--output", prefix, "--tokenizer", "hf:" + folder})
              .exit_code == 0);
  const Outcome shown = trainctl({"data", "inspect", prefix, "--tokenizer", "hf:" + folder});
  CHECK(contains(shown.out, "\"<|begin_of_text|>xxxx"));

  std::string config = small_config();
  config.replace(config.find("byte"), 4, "hf:" + folder);
  config.replace(config.find("vocab_size: 256"), 15, "vocab_size: 525");
  REQUIRE(trainctl(train_words(dir.write("a.yaml", config), dir / "run")).exit_code == 0);
  const Outcome written = trainctl(
      {"generate", "--run", dir / "run", "--prompt", "Füße 👍🏽", "--max-tokens", "60"});
  INFO(written.err);
  CHECK(written.exit_code == 0);
  CHECK(written.out.starts_with("Füße 👍🏽"));
  CHECK(written.out.size() > 40);
  const std::string valid = nlohmann::json(written.out).dump();  // throws where it is not UTF-8
  CHECK(valid.size() >= written.out.size());
}

TEST_CASE("generate writes the same text in the layout of the run, over threads and over MPI") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  const std::vector<std::string> split{"--local-ranks", "4",
                                       "--set",         "parallel.tensor_parallel=2",
                                       "--set",         "parallel.pipeline_stages=2",
                                       "--set",         "parallel.sequence_parallel=true"};
  REQUIRE(trainctl(train_words(config, dir / "run", split)).exit_code == 0);
  const std::vector<std::string> words{"generate",     "--run", dir / "run", "--prompt", "The",
                                       "--max-tokens", "20",    "--seed",    "3"};
  std::vector<std::string> threads = words;
  threads.insert(threads.end(), {"--local-ranks", "4"});
  const Outcome alone = trainctl(words);
  const Outcome four = trainctl(threads);
  const Outcome processes = train_over_mpi(4, words);
  INFO(four.err << processes.err);
  CHECK(alone.out.starts_with("The"));
  CHECK(alone.out.size() > 20);
  CHECK(four.out == alone.out);
  CHECK(processes.out == alone.out);
  threads.back() = "3";
  const Outcome three = trainctl(threads);
  CHECK(three.exit_code == 78);
  CHECK(contains(three.err, "has no layout for 3 ranks"));
}

TEST_CASE("generate writes the same text where the run split operators by tokens") {
  const TempDir dir;
  const std::string config = dir.write(
      "a.yaml", small_config() +
                    "parallel:\n  parallel_mode: semi_auto_parallel\n  tensor_parallel: 2\n"
                    "  threads_per_rank: 1\n"
                    "  operator_splits: {attention: tokens, feed_forward: tokens, embedding: "
                    "tokens, head: tokens}\n");
  REQUIRE(trainctl(train_words(config, dir / "run", {"--local-ranks", "2"})).exit_code == 0);
  std::vector<std::string> words{"generate",     "--run", dir / "run", "--prompt", "The",
                                 "--max-tokens", "20",    "--seed",    "3"};
  const Outcome alone = trainctl(words);
  words.insert(words.end(), {"--local-ranks", "2"});
  const Outcome two = trainctl(words);
  INFO(two.err);
  CHECK(alone.out.size() > 20);
  CHECK(two.out == alone.out);
}

TEST_CASE("bench comm measures over threads and over MPI") {
  const std::vector<std::string> sizes{"--max-bytes", "4096", "--format", "json"};
  std::vector<std::string> threads{"bench", "comm", "--local-ranks", "2"};
  threads.insert(threads.end(), sizes.begin(), sizes.end());
  std::vector<std::string> processes = mpirun_words(2);
  for (const char* word : {"bench", "comm"}) processes.emplace_back(word);
  processes.insert(processes.end(), sizes.begin(), sizes.end());
  const std::vector<Outcome> outcomes{trainctl(threads), run_program("mpirun", processes)};
  const std::string wires[] = {"threads", "MPI"};
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    INFO(outcomes[i].err);
    REQUIRE(outcomes[i].exit_code == 0);
    const auto found = nlohmann::json::parse(outcomes[i].out);
    CHECK(found["wire"] == wires[i]);
    CHECK(found["ranks"] == 2);
    CHECK(found["operations"].size() == 1 + 6 * 2);
  }
  const Outcome alone = trainctl({"bench", "comm"});
  CHECK(alone.exit_code == 2);
  CHECK(contains(alone.err, "needs at least 2 ranks: --local-ranks 2, or mpirun -n 2"));
  const Outcome none =
      trainctl({"bench", "comm", "--local-ranks", "2", "--min-bytes", "8", "--max-bytes", "4"});
  CHECK(none.exit_code == 2);
  CHECK(contains(none.err, "--min-bytes 8 is greater than --max-bytes 4"));
}

TEST_CASE("bench runs on a small model") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  const Outcome step = trainctl({"bench", "step", "--config", config, "--pairs", "2"});
  INFO(step.err);
  CHECK(step.exit_code == 0);
  CHECK(contains(step.out, "tokens/s"));
  CHECK(contains(step.err, "pair 2/2: step "));
  const Outcome against = trainctl({"bench", "step", "--config", config, "--pairs", "1", "--format",
                                    "json", "--against", "recompute.enable=true"});
  INFO(against.err);
  CHECK(against.exit_code == 0);
  const auto both = nlohmann::json::parse(against.out);
  CHECK(both["step_over_config_all"].size() == 1);
  CHECK(both["changed"]["activation_bytes"] < both["config"]["activation_bytes"]);
  const Outcome bad = trainctl({"bench", "step", "--config", config, "--against",
                                "recompute={enable: true, select: fully}"});
  CHECK(bad.exit_code == 78);
  CHECK(contains(bad.err, "fully"));
  const Outcome ops = trainctl({"bench", "ops", "--config", config, "--format", "json"});
  INFO(ops.err);
  CHECK(ops.exit_code == 0);
  CHECK(contains(ops.err, "round 7/7 ..."));
  for (const auto& row : nlohmann::json::parse(ops.out)) CHECK(row["seconds"].get<double>() > 0);
}

TEST_CASE("fused gathers and reduce-scatters of the parallel optimizer") {
  const TempDir dir;
  const std::string config =
      dir.write("a.yaml", small_config() +
                              "parallel:\n  parallel_mode: hybrid_parallel\n"
                              "  parallel_optimizer: {enable: true, threshold: 0}\n"
                              "  threads_per_rank: 1\n");
  const std::vector<std::string> two{"--local-ranks", "2"};
  const std::vector<std::string> fused{
      "--local-ranks", "2", "--set",
      "parallel.comm_fusion={allgather: {mode: size, config: 1}, reducescatter: {mode: auto}}"};
  const Outcome plain = trainctl(train_words(config, dir / "plain", two));
  INFO(plain.err);
  REQUIRE(plain.exit_code == 0);
  const Outcome outcome = trainctl(train_words(config, dir / "fused", fused));
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  CHECK_FALSE(contains(outcome.err, "warning"));
  CHECK(repeatable_metrics(dir / "fused") == repeatable_metrics(dir / "plain"));
  CHECK(bytes_of(dir / "fused/model.safetensors") == bytes_of(dir / "plain/model.safetensors"));
  const auto calls = [](const std::string& file) {
    const nlohmann::json plan = nlohmann::json::parse(bytes_of(file));
    std::int64_t count = 0;
    for (const auto& row : plan["communication"]) {
      if (row["purpose"] != "scalars") count += row["count"].get<std::int64_t>();
    }
    return count;
  };
  CHECK(calls(dir / "fused/plan.json") < calls(dir / "plain/plan.json"));
}

TEST_CASE("log.level error leaves nothing but errors on stderr") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  const Outcome usual = trainctl(train_words(config, dir / "usual"));
  CHECK(contains(usual.err, "parameters, "));
  CHECK(contains(usual.err, "step 1/"));
  const Outcome quiet = trainctl(train_words(config, dir / "quiet", {"--set", "log.level=error"}));
  CHECK(quiet.exit_code == 0);
  CHECK(quiet.err.empty());
  CHECK(metrics_of(dir / "quiet").size() == metrics_of(dir / "usual").size());
  const Outcome failed = trainctl(train_words(
      config, dir / "failed", {"--set", "log.level=error", "--set", "lr_schedule.max_lr=1e30"}));
  CHECK(failed.exit_code == 71);
  CHECK(contains(failed.err, "error: "));
  CHECK_FALSE(contains(failed.err, "step 1/"));
}
