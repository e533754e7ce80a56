// Every way a configuration can be wrong: exit code 78, a message with file, line and rule, no
// hang.
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "catch.h"
#include "process.h"

namespace {

Outcome validate(const std::string& text, const std::vector<std::string>& more = {}) {
  const TempDir dir;
  std::vector<std::string> words = {"validate", "--config", dir.write("bad.yaml", text)};
  words.insert(words.end(), more.begin(), more.end());
  return trainctl(words);
}

std::string with(const std::string& from, const std::string& to) {
  std::string text = small_config();
  const std::size_t place = text.find(from);
  REQUIRE(place != std::string::npos);
  return text.replace(place, from.size(), to);
}

}  // namespace

TEST_CASE("a required key under another project's name gets one error, of the name") {
  const Outcome outcome = validate(
      "model: {family: gpt2, n_layer: 2, n_embd: 64, n_head: 4, block_size: 64, "
      "vocab_size: 256}\nlearning_rate: 1e-3\n");
  INFO(outcome.err);
  CHECK(outcome.exit_code == exits::invalid);
  CHECK(contains(outcome.err, "write model.hidden_size: 64"));
  CHECK_FALSE(contains(outcome.err, "out-of-range"));
  CHECK_FALSE(contains(outcome.err, "missing-key]: model."));
  CHECK_FALSE(contains(outcome.err, "missing-key]: lr_schedule.max_lr"));
}

TEST_CASE("a valid file gets one line on standard output") {
  const Outcome outcome = validate(small_config());
  INFO(outcome.err);
  CHECK(outcome.exit_code == 0);
  CHECK(contains(outcome.out, "bad.yaml: valid; "));
  CHECK(contains(outcome.out, "1 rank, batch of 8 sequences x 16 tokens"));
}

TEST_CASE("a file that cannot be read") {
  const TempDir dir;
  const Outcome absent = trainctl({"validate", "--config", dir / "absent.yaml"});
  CHECK(absent.exit_code == exits::missing_input);
  CHECK(contains(absent.err, "absent.yaml"));
  const Outcome folder = trainctl({"validate", "--config", dir.path().string()});
  CHECK(folder.exit_code == exits::missing_input);
  const Outcome json = trainctl({"validate", "--config", dir / "absent.yaml", "--format", "json"});
  CHECK(json.exit_code == exits::missing_input);
  const auto document = nlohmann::json::parse(json.out);
  CHECK(document["valid"] == false);
  CHECK(document["error_count"] == 1);
}

TEST_CASE("what the syntax of a file can get wrong") {
  struct Row {
    std::string name;
    std::string text;
    std::string message;
  };
  std::string deep;
  for (int level = 0; level < 20000; ++level) deep += "[";
  const std::vector<Row> rows = {
      {"empty", "", "bad.yaml"},
      {"comments only", "# nothing\n", "bad.yaml"},
      {"tab", "model:\n\tfamily: gpt2\n", "bad.yaml:2"},
      {"duplicate key", small_config() + "train: {steps: 5}\n", "bad.yaml:6"},
      {"unterminated quote", small_config() + "output: {dir: \"runs/x}\n", "bad.yaml:6"},
      {"two documents", small_config() + "---\ntrain: {steps: 5}\n", "bad.yaml:"},
      {"recursive alias", small_config() + "log: &z [*z]\n", "bad.yaml:6"},
      {"deep nesting", "model: " + deep, "bad.yaml:1"},
      {"deep nesting of maps",
       [] {
         std::string text;
         for (int level = 0; level < 20000; ++level) text += "{a: ";
         return text;
       }(),
       "bad.yaml:1"},
      {"merge key", "a: &a {b: 1}\n" + small_config() + "log:\n  <<: *a\n", "bad.yaml:"},
      {"not a map", "just some words\n", "bad.yaml:1"},
      {"binary",
       std::string("\x7f"
                   "ELF\0\x01\x02",
                   7),
       "bad.yaml"},
  };
  for (const Row& row : rows) {
    const Outcome outcome = validate(row.text);
    INFO(row.name << ": " << outcome.err.substr(0, 2000));
    CHECK(outcome.exit_code == exits::invalid);
    CHECK(contains(outcome.err, row.message));
    CHECK(outcome.out.empty());
  }
}

TEST_CASE("what a value can get wrong") {
  struct Row {
    std::string name;
    std::string text;
    std::vector<std::string> messages;
  };
  const std::vector<Row> rows = {
      {"unknown key", with("num_layers", "num_layer"), {"bad.yaml:1:", "num_layer", "num_layers"}},
      {"unknown section",
       small_config() + "optimiser: {beta1: 0.9}\n",
       {"bad.yaml:6:1", "optimiser", "optimizer"}},
      {"number instead of a map", with("{steps: 4, global_batch_size: 8}", "4"), {"bad.yaml:4:8"}},
      {"map instead of a number", with("steps: 4", "steps: {a: 4}"), {"bad.yaml:4", "train.steps"}},
      {"word instead of a number", with("steps: 4", "steps: four"), {"bad.yaml:4:16", "four"}},
      {"fraction instead of a whole number", with("steps: 4", "steps: 4.5"), {"bad.yaml:4:16"}},
      {"negative", with("steps: 4", "steps: -4"), {"bad.yaml:4:16", "-4"}},
      {"octal look", with("steps: 4", "steps: 010"), {"bad.yaml:4:16", "010"}},
      {"missing required key", with("steps: 4, ", ""), {"train.steps"}},
      {"heads do not divide the width",
       with("num_attention_heads: 4", "num_attention_heads: 5"),
       {"bad.yaml:1:", "32", "5"}},
      {"data_parallel differs from the world size",
       small_config() + "parallel: {parallel_mode: data_parallel, data_parallel: 4}\n",
       {"bad.yaml:6:", "4", "2"}},
  };
  for (const Row& row : rows) {
    const Outcome outcome = validate(row.text, {"--world-size", "2"});
    INFO(row.name << ": " << outcome.err);
    CHECK(outcome.exit_code == exits::invalid);
    for (const std::string& message : row.messages) CHECK(contains(outcome.err, message));
    CHECK(outcome.out.empty());
  }
}

TEST_CASE("what train cannot do yet validate refuses as train does, and plan shows") {
  const TempDir dir;
  const std::string file =
      dir.write("bad.yaml",
                small_config() + "parallel: {pipeline_stages: 2, pipeline: {comm_backend: ucc}}\n");
  const std::vector<std::string> site{"--config", file, "--world-size", "2"};
  for (const std::string command : {"validate", "plan"}) {
    std::vector<std::string> words{command};
    words.insert(words.end(), site.begin(), site.end());
    const Outcome outcome = trainctl(words);
    INFO(command << " " << outcome.err);
    CHECK(outcome.exit_code == (command == "plan" ? 0 : exits::invalid));
    CHECK(contains(outcome.err, command == "plan" ? "warning[not-built]" : "error[not-built]"));
    CHECK(contains(outcome.err, "bad.yaml:6:"));
    CHECK(contains(outcome.err, "not built yet"));
    CHECK(outcome.out.empty() == (command == "validate"));
  }
  const Outcome trained =
      trainctl({"train", "--config", file, "--local-ranks", "2", "--output", dir / "run"});
  CHECK(trained.exit_code == exits::invalid);
  CHECK(contains(trained.err, "error[not-built]"));
}

TEST_CASE("a command under a launcher starts no ranks of its own, and none measures alone") {
  const TempDir dir;
  const std::string file = dir.write("a.yaml", small_config());
  const Outcome both =
      trainctl({"train", "--config", file, "--local-ranks", "2", "--output", dir / "run"},
               {"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2"});
  INFO(both.err);
  CHECK(both.exit_code == 2);
  CHECK(contains(both.err, "--local-ranks starts ranks, and Open MPI has started 2 already"));
  const Outcome bench = trainctl({"bench", "step", "--config", file},
                                 {"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2"});
  CHECK(bench.exit_code == 2);
  CHECK(contains(bench.err, "measures in one process, but 2 were started: leave out mpirun"));
}

TEST_CASE("a plan needs a model and nothing else") {
  const TempDir dir;
  const std::string model =
      "model: {family: gpt2, num_layers: 4, hidden_size: 32, num_attention_heads: 4,\n"
      "        seq_length: 16, vocab_size: 256}\n"
      "parallel: {pipeline_stages: 2, data_parallel: 2}\n";
  const std::string file = dir.write("a.yaml", model);
  const Outcome table = trainctl({"plan", "--config", file});
  INFO(table.err);
  CHECK(table.exit_code == 0);
  CHECK(table.err.empty());
  CHECK_FALSE(contains(table.out, "learning rate"));
  const Outcome json = trainctl({"plan", "--config", file, "--format", "json"});
  const auto plan = nlohmann::json::parse(json.out);
  CHECK(plan["micro_batch_size"] == 1);
  CHECK(plan["microbatches"] == 4);
  CHECK(plan["tokens_per_step"] == 8 * 16);
  CHECK(plan["steps"].is_null());
  CHECK(plan["rates"].empty());
  CHECK(trainctl({"plan", "--config", file, "--format", "html"}).exit_code == 0);
  // The rules of what is there hold.
  const std::string bad = dir.write(
      "b.yaml", model + "train: {micro_batch_num: 1}\n" + "lr_schedule: {warmup_steps: 5}\n");
  const Outcome groups = trainctl({"plan", "--config", bad});
  CHECK(groups.exit_code == exits::invalid);
  CHECK(contains(groups.err, "train.micro_batch_num"));
  CHECK_FALSE(contains(groups.err, "warmup"));
  // Rates that are asked for have to be known; a run needs everything.
  const Outcome rates = trainctl({"plan", "--config", file, "--lr-at", "3"});
  CHECK(rates.exit_code == exits::invalid);
  CHECK(contains(rates.err, "lr_schedule.max_lr"));
  CHECK(contains(rates.err, "train.steps"));
  CHECK_FALSE(contains(rates.err, "data.train"));
  const Outcome valid = trainctl({"validate", "--config", file});
  CHECK(valid.exit_code == exits::invalid);
  for (const char* path : {"data.train", "train.steps", "train.global_batch_size", "max_lr"}) {
    CHECK(contains(valid.err, path));
  }
}

TEST_CASE("validate says what it did not look at") {
  CHECK(contains(validate(small_config()).out, "not checked: data, disk, memory\n"));
  const Outcome json = validate(small_config(), {"--format", "json"});
  CHECK(nlohmann::json::parse(json.out)["not_checked"] ==
        nlohmann::json::parse(R"(["data", "disk", "memory"])"));
}

TEST_CASE("all mistakes are reported at once") {
  const Outcome outcome = validate(with("steps: 4", "steps: four") +
                                   "log: {evry: 3}\noutput: {dir: runs/a, colour: 1}\n");
  CHECK(outcome.exit_code == exits::invalid);
  for (const char* word : {"four", "evry", "colour"}) CHECK(contains(outcome.err, word));
}

TEST_CASE("--set goes through the same checks and is named as the place") {
  const Outcome outcome = validate(small_config(), {"--set", "train.steps=four"});
  CHECK(outcome.exit_code == exits::invalid);
  CHECK(contains(outcome.err, "--set train.steps=four"));
  const Outcome unknown = validate(small_config(), {"--set", "train.stepz=4"});
  CHECK(unknown.exit_code == exits::invalid);
  CHECK(contains(unknown.err, "steps"));
  CHECK(validate(small_config(), {"--set", "train.steps"}).exit_code == exits::invalid);
}

TEST_CASE("JSON documents parse, valid or not") {
  const Outcome good = validate(small_config(), {"--format", "json"});
  CHECK(good.exit_code == 0);
  const auto valid = nlohmann::json::parse(good.out);
  CHECK(valid["valid"] == true);
  CHECK(valid["error_count"] == 0);

  const Outcome bad = validate(with("steps: 4", "steps: \"fo\\\"ur\""), {"--format", "json"});
  CHECK(bad.exit_code == exits::invalid);
  const auto document = nlohmann::json::parse(bad.out);
  CHECK(document["valid"] == false);
  REQUIRE(document["diagnostics"].size() >= 1);
  CHECK(document["diagnostics"][0]["severity"] == "error");
}

TEST_CASE("plan prints a table or JSON, refuses what validate refuses, and knows the ranks") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  const Outcome table = trainctl({"plan", "--config", config, "--world-size", "2"});
  INFO(table.err);
  CHECK(table.exit_code == 0);
  CHECK(contains(table.out, "parameters"));

  const Outcome json = trainctl(
      {"plan", "--config", config, "--world-size", "2", "--rank", "1", "--format", "json"});
  CHECK(json.exit_code == 0);
  CHECK(nlohmann::json::parse(json.out)["format_version"] == 2);

  const Outcome no_rank =
      trainctl({"plan", "--config", config, "--world-size", "2", "--rank", "2"});
  CHECK(no_rank.exit_code == 2);
  CHECK(contains(no_rank.err, "--rank 2"));

  const std::string bad = dir.write("b.yaml", with("steps: 4", "steps: four"));
  const Outcome refused = trainctl({"plan", "--config", bad});
  CHECK(refused.exit_code == exits::invalid);
  CHECK(contains(refused.err, "b.yaml:4:16"));
  CHECK(refused.out.empty());
  const Outcome refused_json = trainctl({"plan", "--config", bad, "--format", "json"});
  CHECK(refused_json.exit_code == exits::invalid);
  CHECK(nlohmann::json::parse(refused_json.out)["valid"] == false);
}

TEST_CASE("a plan for many ranks") {
  const TempDir dir;
  const std::string config =
      dir.write("a.yaml", with("global_batch_size: 8", "global_batch_size: 16384"));
  const Outcome outcome = trainctl({"plan", "--config", config, "--world-size", "16384"});
  INFO(outcome.err);
  CHECK(outcome.exit_code == 0);
  CHECK(contains(outcome.out, "16384"));
}

TEST_CASE("messages carry no colour codes without a terminal") {
  const Outcome outcome = validate(with("steps: 4", "steps: four"));
  CHECK_FALSE(contains(outcome.err, "\x1b["));
}

TEST_CASE("one suggestion keeps all rules about sizes together") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  const std::map<std::string, std::string> sections = {
      {"tensor_parallel", "parallel."},  {"pipeline_stages", "parallel."},
      {"context_parallel", "parallel."}, {"data_parallel", "parallel."},
      {"micro_batch_size", "train."},    {"global_batch_size", "train."},
      {"micro_batch_num", "train."}};
  const std::vector<std::vector<std::string>> broken = {
      {"--world-size", "8", "--set", "parallel.tensor_parallel=3"},
      {"--world-size", "8", "--set", "parallel.tensor_parallel=8"},
      {"--world-size", "6", "--set", "parallel.pipeline_stages=4"},
      {"--world-size", "12", "--set", "parallel.tensor_parallel=5", "--set",
       "parallel.pipeline_stages=5"},
      {"--world-size", "4", "--set", "train.micro_batch_size=3"},
      {"--world-size", "4", "--set", "train.micro_batch_size=3", "--set",
       "train.micro_batch_num=3"},
      {"--world-size", "64"},
  };
  for (const auto& words : broken) {
    std::vector<std::string> line = {"validate", config};
    line.insert(line.end(), words.begin(), words.end());
    const Outcome outcome = trainctl(line);
    INFO(outcome.err);
    REQUIRE(outcome.exit_code == 78);
    const std::string mark = "all rules hold with ";
    const std::size_t at = outcome.err.find(mark);
    REQUIRE(at != std::string::npos);
    std::string hint = outcome.err.substr(at + mark.size());
    hint = hint.substr(0, hint.find_first_of(";\n"));
    const std::size_t other = hint.find(", or with ");
    if (words[1] == "64") CHECK(contains(hint, ", or with tensor_parallel: 4, pipeline_stages: 2"));
    std::istringstream parts(hint.substr(0, other));
    for (std::string key, value; parts >> key >> value;) {
      key.pop_back();
      if (value.back() == ',') value.pop_back();
      line.push_back("--set");
      line.push_back(sections.at(key) + key + "=" + value);
    }
    const Outcome again = trainctl(line);
    INFO(again.err);
    CHECK(again.exit_code == 0);
  }
}

TEST_CASE("a pipe that nobody writes to is not waited for") {
  const TempDir dir;
  const std::string pipe = dir / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const std::string model = dir / "model";
  std::filesystem::create_directory(model);
  REQUIRE(::mkfifo((model + "/config.json").c_str(), 0600) == 0);
  const std::string with_include = dir.write("i.yaml", "include: pipe\n" + small_config());
  const std::vector<std::vector<std::string>> commands = {
      {"validate", pipe},
      {"validate", with_include},
      {"generate", "--from", model, "--prompt", "a"},
      {"generate", "--from", model, "--prompt-file", pipe},
      {"data", "build", "--input", pipe, "--output", dir / "tokens"}};
  std::vector<std::unique_ptr<Process>> processes;  // together: each waits for some seconds
  for (const auto& words : commands) {
    processes.push_back(std::make_unique<Process>(TRAINCTL_PROGRAM, words));
  }
  for (std::size_t i = 0; i < commands.size(); ++i) {
    const Outcome outcome = processes[i]->wait();
    CAPTURE(commands[i]);
    INFO(outcome.err);
    CHECK(outcome.exit_code != 0);
    CHECK(outcome.exit_code != 70);
    CHECK(contains(outcome.err, "it is a pipe or a device, and nothing came from it"));
  }
  const Outcome written =
      run_program("/bin/bash", {"-c", std::string(TRAINCTL_PROGRAM) + " validate <(cat " +
                                          dir.write("a.yaml", small_config()) + ")"});
  INFO(written.err);
  CHECK(written.exit_code == 0);
}

TEST_CASE("names do not reach a terminal or the log of a build as commands") {
  const Outcome outcome = trainctl({"validate", "no\n::error::faked.yaml"});
  CHECK(outcome.exit_code == exits::missing_input);
  CHECK_FALSE(contains(outcome.err, "\n::error"));
  const Outcome turned = trainctl({"validate", "a\u202eb\x1b[2J.yaml"});
  CHECK_FALSE(contains(turned.err, "\x1b"));
  CHECK_FALSE(contains(turned.err, "\u202e"));
}
