// The text of --explain about values, and findings as GitHub annotations.
#include "catch.h"
#include "config/explain/reference.h"
#include "config_text.h"

namespace trainctl::test {
namespace {

std::string explained(const ReadResult& result, const std::string& path) {
  return explain_value(result, path).value_or("no such path");
}

}  // namespace

TEST_CASE("a key is explained with its value, origin, rule and upstream names") {
  CHECK(explained(read(good_text), "model.hidden_size") ==
        "model.hidden_size = 64\n"
        "  from        t.yaml:1:37\n"
        "  meaning     Width of the residual stream\n"
        "  type        whole number\n"
        "  allowed     1 to 1048576\n"
        "  default     required\n"
        "  status      supported\n");
  const std::string tensor =
      explained(read(good_text + "parallel: {tensor_parallel: 2}\n"), "parallel.tensor_parallel");
  CHECK(contains(tensor, "parallel.tensor_parallel = 2\n  from        t.yaml:5:29\n"));
  CHECK(contains(tensor, "  default     1\n"));
  CHECK(contains(tensor, "MindFormers model_parallel"));
  CHECK(contains(tensor, "Megatron tensor_model_parallel_size"));
}

TEST_CASE("a value that was not given, and one that is of a list") {
  const ReadResult result = read(good_text);
  CHECK(contains(explained(result, "log.every"), "log.every = 10\n  from        default\n"));
  const std::string heads = explained(result, "model.num_query_groups");
  CHECK(contains(heads, "model.num_query_groups is not given\n"));
  CHECK(contains(heads, "  default     not given: num_attention_heads\n"));
  CHECK(contains(explained(result, "data.train"), "data.train = [{path: a.txt, weight: 1.0}]\n"));
  CHECK(contains(explained(result, "parallel.device"), "  allowed     auto, cpu, cuda\n"));
}

TEST_CASE("what a value took the place of is shown, the last first") {
  const ReadResult result = read(good_text + "log: {<<: {every: 3}, every: 4}\n", {"log.every=5"});
  CHECK(contains(explained(result, "log.every"),
                 "log.every = 5\n"
                 "  from        --set log.every=5\n"
                 "  instead of  4, t.yaml:5:30\n"
                 "  instead of  3, t.yaml:5:19\n"));
  const ReadResult preset =
      read(good_data + good_train + good_lr + "model: {preset: gpt2-124m, num_layers: 2}\n");
  CHECK(contains(explained(preset, "model.num_layers"), "  instead of  12, preset gpt2-124m\n"));
  CHECK(contains(explained(preset, "model.hidden_size"), "  from        preset gpt2-124m\n"));
}

TEST_CASE("an included value names the file that asked for it") {
  Surroundings around;
  around.load = [](const std::string&) { return Surroundings::Loaded{good_text, ""}; };
  const ReadResult result = read_config_text("include: b.yaml\n", "t.yaml", {}, around);
  CHECK(contains(explained(result, "train.steps"),
                 "  from        b.yaml:3:16, included by t.yaml:1:10\n"));
}

TEST_CASE("errors at other keys do not matter; the error of the key is shown") {
  const ReadResult result = read(good_model + "train: {steps: -1, sed: 3, seed: 7}\n");
  CHECK(result.diagnostics.has_errors());
  CHECK(contains(explained(result, "train.seed"), "train.seed = 7\n  from        t.yaml:2:34\n"));
  CHECK(contains(explained(result, "train.steps"),
                 "train.steps has no valid value\n"
                 "  error       [out-of-range] must be from 1 to 1000000000000, found -1\n"
                 "  from        t.yaml:2:16\n"));
}

TEST_CASE("a section shows all of its keys") {
  const std::string text = explained(read(good_text + "log: {every: 5}\n"), "log");
  CHECK(text ==
        "log: Messages and traces\n"
        "  level: info                 # default\n"
        "  every: 5                    # t.yaml:5:14\n"
        "  color: true                 # default\n"
        "  timer_level: 2              # default\n"
        "  barrier_with_timers: true   # default\n"
        "  trace: \"\"                   # default\n"
        "  trace_steps: 1              # default\n"
        "  max_attention_logit: false  # default\n");
  CHECK(contains(explained(read(good_text), "parallel"), "  pipeline.scheduler: 1f1b"));
}

TEST_CASE("an unknown path is answered with the nearest one") {
  CHECK_FALSE(explain_value(read(good_text), "model.hiden_size"));
  CHECK_FALSE(explain_value(read(good_text), ""));
  CHECK(nearest_path("model.hiden_size") == "model.hidden_size");
  CHECK(nearest_path("hidden_size") == "model.hidden_size");
  CHECK(nearest_path("parallel.model_parallel") == "parallel.tensor_parallel");
  CHECK(nearest_path("quite.something.else") == "");
}

TEST_CASE("findings as GitHub annotations") {
  Diagnostics diagnostics;
  diagnostics.add({Severity::error,
                   "out-of-range",
                   "train.steps",
                   "100% of a,b: too\rmuch",
                   "write 5",
                   {Place::Origin::file, "a,b:c%.yaml", 3, 9, 11}});
  diagnostics.add({Severity::warning, "no-effect", "", "nothing", "", {}});
  diagnostics.add({Severity::error,
                   "bad-word",
                   "log.level",
                   "odd",
                   "",
                   {Place::Origin::set_option, "log.level=odd", 1, 11, 14}});
  diagnostics.add(
      {Severity::error, "empty-file", "", "empty", "", {Place::Origin::file, "e.yaml", 0, 0, 0}});
  CHECK(render_github(diagnostics) ==
        "::error file=a%2Cb%3Ac%25.yaml,line=3,col=9,endColumn=11,title=out-of-range::"
        "train.steps: 100%25 of a,b: too?much%0Ahelp: write 5\n"
        "::warning title=no-effect::nothing\n"
        "::error title=bad-word::log.level: odd (--set log.level=odd)\n"
        "::error file=e.yaml,title=empty-file::empty\n");
  CHECK(render_github({}) == "");
}

}  // namespace trainctl::test
