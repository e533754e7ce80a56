// trainctl plan on the command line: forms, one rank, one kind of groups, files, differences.
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>

#include "catch.h"
#include "process.h"

using Json = nlohmann::json;

namespace {

std::string staged_config() {
  return small_config() + "parallel: {tensor_parallel: 2, pipeline_stages: 2, data_parallel: 2}\n";
}

}  // namespace

TEST_CASE("the world size is what the sizes multiply to") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", staged_config());
  const Outcome outcome = trainctl({"plan", "--config", config, "--format", "json"});
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  const Json json = Json::parse(outcome.out);
  CHECK(json["format_version"] == 2);
  CHECK(json["world_size"] == 8);
  CHECK(json["groups"]["pp"] == Json::parse("[[0,4],[1,5],[2,6],[3,7]]"));
  CHECK_FALSE(json.contains("rank"));
}

TEST_CASE(
    "a plan names its device first, and has one estimate of memory unless others are asked for") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  const Outcome cpu = trainctl({"plan", config, "--set", "parallel.threads_per_rank=2"});
  CHECK(cpu.out.starts_with("on the CPU, 2 threads per rank\n"));
  const Outcome cuda = trainctl({"plan", config, "--device", "cuda"});
  CHECK(cuda.out.starts_with("on CUDA devices, one for each rank\n"));
  CHECK(Json::parse(trainctl({"plan", config, "--format", "json"}).out)["device"] == "cpu");
  CHECK_FALSE(contains(cpu.out, "megatron"));
  CHECK(contains(trainctl({"plan", config, "--memory-model", "all"}).out, "  megatron-0.15 "));
  const Outcome page = trainctl({"plan", config, "--format", "html"});
  CHECK(contains(page.out, "on the CPU, "));
}

TEST_CASE("a plan that does not fit ends with 72 and says what would") {
  constexpr int does_not_fit = 72;
  const std::string config = std::string(TRAINCTL_SOURCE_DIR) + "/configs/gpt2-124m.yaml";
  const auto plan = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {"plan", config};
    words.insert(words.end(), more.begin(), more.end());
    return trainctl(words);
  };
  CHECK(plan({"--memory-limit", "5"}).exit_code == 0);
  // 4.49 GiB: norms save 0.26, activations 0.52, without more products.
  const Outcome tight = plan({"--memory-limit", "4.3"});
  INFO(tight.err);
  CHECK(tight.exit_code == does_not_fit);
  CHECK(contains(tight.err, "does not fit in 4.3 GiB"));
  const std::string mark = "it fits with ";
  const std::size_t at = tight.err.find(mark +
                                        "--set recompute.enable=true --set "
                                        "recompute.select=norms: ");
  CHECK(at != std::string::npos);
  const Outcome mended = plan({"--memory-limit", "4.3", "--set", "recompute.enable=true", "--set",
                               "recompute.select=norms"});
  CHECK(mended.exit_code == 0);
  CHECK(contains(plan({"--memory-limit", "3.8"}).err, "recompute.select=norms+activations: "));
  CHECK(contains(plan({"--memory-limit", "2.6"}).err, "recompute.select=full: "));
  const Outcome hopeless = plan({"--memory-limit", "1", "--format", "json"});
  CHECK(hopeless.exit_code == does_not_fit);
  CHECK(Json::parse(hopeless.out)["format_version"] == 2);
  CHECK(contains(hopeless.err, "no form of recomputation fits: recompute.select full needs 2.5"));
  CHECK(contains(hopeless.err, " GiB per rank, 1.5"));
}

TEST_CASE("validate names every axis") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", staged_config());
  const Outcome outcome = trainctl({"validate", "--config", config});
  INFO(outcome.err);
  CHECK(outcome.exit_code == 0);
  CHECK(contains(outcome.out, "8 ranks (tp 2 x dp 2 x pp 2)"));
  CHECK(contains(outcome.out, "on the fullest rank"));
}

TEST_CASE("one rank, by option or by the file") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", staged_config());
  const std::vector<std::string> words = {"plan", "--config", config, "--format", "json"};
  const auto with = [&words](const std::vector<std::string>& more) {
    std::vector<std::string> all = words;
    all.insert(all.end(), more.begin(), more.end());
    const Outcome outcome = trainctl(all);
    INFO(outcome.err);
    REQUIRE(outcome.exit_code == 0);
    return Json::parse(outcome.out);
  };
  CHECK(with({"--rank", "5"})["rank"]["stage"] == 1);
  CHECK(with({"--set", "parallel.global_rank=3"})["rank"]["rank"] == 3);
  CHECK(with({"--set", "parallel.global_rank=3", "--rank", "0"})["rank"]["rank"] == 0);
  const Outcome none = trainctl({"plan", "--config", config, "--rank", "8"});
  CHECK(none.exit_code == exits::usage);
  CHECK(contains(none.err, "--rank 8 does not exist: ranks are 0 to 7"));
}

TEST_CASE("one kind of groups") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", staged_config());
  CHECK(trainctl({"plan", "--config", config, "--groups", "tp"}).out == "0,1\n2,3\n4,5\n6,7\n");
  const Outcome json =
      trainctl({"plan", "--config", config, "--groups", "tp", "--rank", "5", "--format", "json"});
  CHECK(Json::parse(json.out)["groups"] == Json::parse(R"({"tp": [[4,5]]})"));
  const Outcome wrong = trainctl({"plan", "--config", config, "--groups", "ddp"});
  CHECK(wrong.exit_code == exits::usage);
  CHECK(contains(wrong.err, "no groups of kind 'ddp'"));
}

TEST_CASE("rates at given steps") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  const Outcome outcome =
      trainctl({"plan", "--config", config, "--format", "json", "--lr-at", "0,3"});
  REQUIRE(outcome.exit_code == 0);
  const Json lr = Json::parse(outcome.out)["lr"];
  REQUIRE(lr.size() == 2);
  CHECK(lr[1]["step"] == 3);
  CHECK(lr[1]["learning_rate"] == 1e-3);
}

TEST_CASE("a file instead of standard output, whole or not there") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  for (const char* format : {"table", "json", "html"}) {
    const Outcome outcome = trainctl(
        {"plan", "--config", config, "--format", format, "-o", dir / "plan.out", "--force"});
    INFO(outcome.err);
    CHECK(outcome.exit_code == 0);
    CHECK(outcome.out.empty());
    CHECK(read_file(dir / "plan.out").size() > 1000);
    const std::filesystem::directory_iterator files(dir / "");
    CHECK(std::distance(begin(files), end(files)) == 2);  // the file and the configuration
  }
  const Outcome lost =
      trainctl({"plan", "--config", config, "-o", dir / "missing" + std::string("/plan.out")});
  CHECK(lost.exit_code == 74);
  CHECK(contains(lost.err, "cannot create"));
}

TEST_CASE("what changes between two files") {
  const TempDir dir;
  const std::string one = dir.write("a.yaml", staged_config());
  const std::string two =
      dir.write("b.yaml", small_config() + "parallel: {tensor_parallel: 4, pipeline_stages: 2}\n");
  const Outcome text = trainctl({"plan", "--diff", one, two, "--world-size", "8"});
  INFO(text.err);
  CHECK(text.exit_code == 0);
  CHECK(contains(text.out, "parallel.tensor_parallel  2 -> 4\n"));
  CHECK(contains(text.out, "mesh\n"));
  const Outcome json =
      trainctl({"plan", "--diff", one, two, "--world-size", "8", "--format", "json"});
  CHECK(Json::parse(json.out)["equal"] == false);
  CHECK(trainctl({"plan", "--diff", one, one}).out == "no difference\n");
  const std::string bad = dir.write("c.yaml", small_config() + "parallel: {tensor_parallel: 3}\n");
  const Outcome refused = trainctl({"plan", "--diff", one, bad});
  CHECK(refused.exit_code == exits::invalid);
  CHECK(contains(refused.err, "c.yaml"));
  CHECK(refused.out.empty());
}

TEST_CASE("options that do not go together are named") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  struct Row {
    std::vector<std::string> words;
    std::string message;
  };
  const std::vector<Row> rows = {
      {{"plan"}, "--config is required"},
      {{"plan", "--diff", config}, "--diff"},
      {{"plan", "--config", config, "--diff", config, config},
       "--diff takes both files; remove --config"},
      {{"plan", "--diff", config, config, "--format", "html"}, "--format table|json, not html"},
      {{"plan", "--diff", config, config, "--groups", "tp"}, "exclude each other"},
      {{"plan", "--config", config, "--groups", "tp", "--format", "html"}, "not html"},
      {{"plan", "--config", config, "--memory-model", "mine"}, "--memory-model mine: must be own|"},
      {{"plan", "--config", config, "--lr-at", "1,x"}, "--lr-at 1,x: must be whole numbers"},
      {{"plan", "--config", config, "--lr-at", "-1"}, "--lr-at -1: must be whole numbers"},
      {{"plan", "--config", config, "--search", "--format", "github"}, "--search is alone"},
      {{"plan", "--config", config, "--world-sizes", "2,4"}, "--world-sizes belongs to --search"},
      {{"plan", "--config", config, "--search", "--world-sizes", "2,x"},
       "--world-sizes 2,x: must be whole numbers of at least 1"},
      {{"plan", "--config", config, "--search", "--world-sizes", "2", "--world-size", "2"},
       "without --world-size and --save"},
      {{"plan", "--config", config, "--search", "--world-sizes", "2,2"}, "2 is there twice"},
      {{"plan", "--config", config, "--search", "--world-sizes", "2,"}, "must be whole numbers"},
      {{"plan", "--config", config, "--search", "--world-sizes", ""}, "must be numbers of ranks"},
      {{"plan", "--config", config, "--reserve", "8"}, "--reserve belongs to --search"},
      {{"plan", "--config", config, "--top", "3"}, "--top belongs to --search"},
      {{"plan", "--config", config, "--gap", "5"}, "--gap belongs to --search"},
      {{"plan", "--config", config, "--free", "recompute"}, "--free belongs to --search"},
      {{"plan", "--config", config, "--search", "--free", "tensor_paralel"},
       "unknown key of --free 'tensor_paralel'; did you mean 'tensor_parallel'?"},
      {{"plan", "--config", config, "--search", "--fix", "recompute,"}, "unknown key of --fix ''"},
      {{"plan", "--config", config, "--search", "--fix", ""}, "unknown key of --fix ''"},
      {{"plan", "--config", config, "--search", "--fix", "recompute,recompute"},
       "--fix recompute,recompute: recompute is there twice"},
      {{"plan", "--config", config, "--search", "--free", "recompute", "--fix", "recompute.enable"},
       "--free and --fix exclude each other: both have recompute"},
      {{"plan", "--config", config, "--search", "--free", "rank_order"},
       "with --set parallel.rank_order=VALUE"},
      {{"plan", "--config", config, "--search", "--free", "expert_parallel", "--set",
        "cluster.device=cpu-avx2"},
       "--free expert_parallel: the model has no experts"},
      {{"plan", "--config", config, "--search", "--free", "scheduler", "--world-size", "2048",
        "--set", "cluster.device=cpu-avx2"},
       "--free scheduler: it is searched with at most 1024 ranks, and there are 2048"},
      {{"plan", "--config", config, "--search", "--free", "scheduler", "--world-sizes", "2,2048",
        "--set", "cluster.device=cpu-avx2"},
       "at most 1024 ranks, and there are 2048"},
      {{"plan", "--config", config, "--search", "--rank", "1"}, "--rank is for one plan"},
      {{"plan", "--config", config, "--search", "--lr-at", "5"}, "--lr-at is for one plan"},
      {{"plan", "--config", config, "--search", "--memory-model", "all"},
       "--memory-model is for one plan"},
      {{"plan", "--config", config, "--search", "--reserve", "1", "--memory-limit", "2"},
       "remove --reserve"},
      {{"plan", "--config", config, "--search", "--set", "cluster.device=cpu-avx2", "--reserve",
        "100"},
       "--reserve 100 leaves nothing of "},
      {{"plan", "--config", config, "--search", "--set", "parallel.parallel_mode=auto_parallel"},
       "add --set parallel.parallel_mode=semi_auto_parallel"},
      {{"plan", "--config", config, "--search"}, "set cluster.device"},
      {{"plan", "--config", config, "--save", "best.yaml"}, "--save belongs to --search"},
      {{"plan", "--config", config, "--format", "xml"}, "must be table|json|html|github"},
  };
  for (const Row& row : rows) {
    const Outcome outcome = trainctl(row.words);
    INFO(row.message << " | " << outcome.err);
    CHECK(outcome.exit_code == exits::usage);
    CHECK(contains(outcome.err, row.message));
    CHECK(outcome.out.empty());
  }
}

TEST_CASE("warnings and failures are in the JSON document") {
  const TempDir dir;
  const std::string warned = dir.write("a.yaml", small_config() + "parallel: {bucket_size: 100}\n");
  const auto both = [](std::vector<std::string> words) {
    words.insert(words.end(), {"--format", "json"});
    const Outcome outcome = trainctl(words);
    CHECK(outcome.err.empty());
    return std::pair(outcome.exit_code, Json::parse(outcome.out));
  };
  const auto [valid, findings] = both({"validate", "--config", warned});
  const auto [good, plan] = both({"plan", "--config", warned});
  CHECK(valid == 0);
  CHECK(good == 0);
  CHECK(findings["format_version"] == 1);
  CHECK(plan["format_version"] == 2);
  REQUIRE(plan["diagnostics"].size() == 1);
  CHECK(plan["diagnostics"][0]["severity"] == "warning");
  CHECK(plan["diagnostics"][0]["path"] == "parallel.bucket_size");
  CHECK(findings["diagnostics"][0] == plan["diagnostics"][0]);
  const auto [changed, diff] = both({"plan", "--diff", warned, warned});
  CHECK(changed == 0);
  CHECK(diff["diagnostics"].size() == 2);

  const std::string bad = dir.write("b.yaml", small_config() + "log: {evry: 3}\n");
  const auto [refused, failure] = both({"plan", "--config", bad});
  CHECK(refused == exits::invalid);
  Json of_validate = both({"validate", "--config", bad}).second;
  of_validate.erase("not_checked");
  CHECK(failure == of_validate);
  CHECK(failure["format_version"] == 1);
  CHECK(failure["valid"] == false);
  CHECK(failure["error_count"] == 1);
  CHECK(failure["diagnostics"][0]["code"] == "unknown-key");
}

TEST_CASE("the best layout of a search is saved as a file that plans as it says") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config() + "cluster: {device: cpu-avx2}\n");
  const std::string saved = dir.write("old.yaml", "") + ".best";
  const Outcome outcome = trainctl({"plan", "--config", config, "--world-size", "2", "--search",
                                    "--format", "json", "--save", saved});
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  const Json best = Json::parse(outcome.out)["search"]["best"];
  const Json plan = Json::parse(
      trainctl({"plan", "--config", saved, "--world-size", "2", "--format", "json"}).out);
  CHECK(plan["time"]["step_seconds"] == best["seconds"]);
  CHECK(plan["mesh"]["tp"] == best["tensor_parallel"]);
  // Each key that was searched says so, with what another value would take.
  const std::string text = read_file(saved);
  INFO(text);
  const std::size_t sizes = text.find("\n  tensor_parallel: ");
  const std::string line = text.substr(sizes + 1, text.find('\n', sizes + 1) - sizes - 1);
  CHECK(contains(line, "  # searched; "));
  CHECK(contains(line, " % with "));
  CHECK(contains(text, "  # searched\n"));
  CHECK_FALSE(contains(text.substr(text.find("\n  hidden_size: ") + 1, 60), "searched"));
  CHECK(trainctl({"plan", "--config", config, "--search", "--save", saved}).exit_code ==
        exits::usage);
  const Outcome worlds =
      trainctl({"plan", "--config", config, "--search", "--world-sizes", "1,2", "--top", "0"});
  INFO(worlds.out << worlds.err);
  CHECK(worlds.exit_code == 0);
  CHECK(contains(worlds.out, "tokens/s"));
  CHECK(contains(worlds.out, "not searched: precision, parallel.expert_tensor_parallel, "));
  CHECK(std::count(worlds.out.begin(), worlds.out.end(), '\n') == 5);
  const Outcome none = trainctl(
      {"plan", "--config", config, "--search", "--world-sizes", "1,7", "--memory-limit", "0.001"});
  CHECK(none.exit_code == 72);
  CHECK(contains(none.out, "refused by memory"));
  CHECK(contains(none.out, "no layout divides"));
}
