// The table of keys that are not built or have no effect, and the findings made from it.
#include "config/support/standing.h"

#include "catch.h"
#include "config_text.h"

namespace trainctl::test {
namespace {

std::vector<std::string> findings(const std::string& text) {
  const ReadResult result = read(good_text + text);
  REQUIRE_FALSE(result.diagnostics.has_errors());
  Diagnostics diagnostics;
  check_built(result.config, result.sources, Severity::error, diagnostics);
  check_effect(result.config, result.sources, diagnostics);
  std::vector<std::string> list;
  for (const Diagnostic& diagnostic : diagnostics.list()) {
    list.push_back(std::string(diagnostic.severity == Severity::error ? "error " : "warning ") +
                   diagnostic.path + " " + diagnostic.message);
  }
  return list;
}

using List = std::vector<std::string>;

}  // namespace

TEST_CASE("the defaults ask for nothing that is not built") { CHECK(findings("") == List{}); }

TEST_CASE("a value that is not built is refused with its place") {
  const std::string line = "parallel: {pipeline: {comm_backend: ucc}}\n";
  CHECK(findings(line) ==
        List{"error parallel.pipeline.comm_backend not built yet: comm_backend: ucc"});
  const ReadResult result = read(good_text + line);
  Diagnostics diagnostics;
  check_built(result.config, result.sources, Severity::warning, diagnostics);
  REQUIRE(diagnostics.list().size() == 1);
  CHECK(diagnostics.list()[0].code == "not-built");
  CHECK(diagnostics.list()[0].severity == Severity::warning);
  CHECK(diagnostics.list()[0].help == "today: comm_backend: nccl");
  CHECK(diagnostics.list()[0].place.to_string() == "t.yaml:5:37");
}

TEST_CASE("each feature that is not built is refused once") {
  CHECK(findings("parallel: {pipeline: {comm_backend: ucc}}\n").size() == 1);
  CHECK(findings("parallel: {parallel_mode: auto_parallel}\n").empty());
  CHECK(findings("parallel: {search_mode: dynamic_programming}\n").empty());
}

TEST_CASE("schedules, chunks, recomputed layers and exchanges of experts are built") {
  for (const char* line :
       {"parallel: {virtual_pipeline_stages: 2}", "parallel: {pipeline: {scheduler: zb-h1}}",
        "parallel: {pipeline: {scheduler: zb-v}}", "parallel: {pipeline: {interleave: true}}",
        "recompute: {enable: true, layers_per_stage: [1]}",
        "recompute: {enable: true, select: norms+attention, mp_comm_recompute: false}",
        "recompute: {enable: true, slice_activation: true}",
        "moe: {num_experts: 2, group_wise_a2a: true, comp_comm_parallel: true}"}) {
    CAPTURE(line);
    CHECK(findings(std::string(line) + "\n") == List{});
  }
}

TEST_CASE("a value without effect is a warning that says why") {
  CHECK(findings("parallel: {use_te_rng_tracker: true}\n") ==
        List{"warning model.use_te_rng_tracker use_te_rng_tracker: true has no effect: random "
             "numbers depend only on global indices"});
  CHECK(findings("parallel: {use_te_rng_tracker: false}\n") == List{});
  CHECK(findings("parallel: {cross_entropy_loss_fusion: false}\n") == List{});
}

TEST_CASE("keys of a feature that is off") {
  CHECK(findings("recompute: {slice_activation: true}\n") ==
        List{"warning recompute.slice_activation slice_activation: true has no effect: "
             "recompute.enable is false"});
  CHECK(findings("recompute: {slice_activation: false}\n") == List{});
  CHECK(findings("offload: {num_layers: 3}\n").size() == 1);
  CHECK(findings("moe: {router_topk: 2}\n").size() == 1);
  CHECK(findings("parallel: {tp_comm_overlap: {ag: false}}\n").size() == 1);
  CHECK(findings("hooks: {param_sync: before_forward}\n") ==
        List{"warning hooks.param_sync param_sync: before_forward has no effect: "
             "parallel.parallel_optimizer.enable is false"});
}

TEST_CASE("what has no effect need not be built") {
  const ReadResult result = read(good_text + "parallel: {tensor_parallel: 2}\n");
  Diagnostics diagnostics;
  diagnostics.add({Severity::warning, "no-effect", "parallel.tensor_parallel", "mode", "", {}});
  check_built(result.config, result.sources, Severity::error, diagnostics);
  CHECK_FALSE(diagnostics.has_errors());
}

TEST_CASE("a warning of a rule is not repeated") {
  const ReadResult result = read(good_text + "recompute: {slice_activation: true}\n");
  for (const char* path : {"recompute", "recompute.slice_activation"}) {
    Diagnostics diagnostics;
    diagnostics.add({Severity::warning, "no-effect", path, "because", "", {}});
    check_effect(result.config, result.sources, diagnostics);
    CHECK(diagnostics.list().size() == 1);
  }
}

TEST_CASE("every kind of fused collective is carried out") {
  CHECK(findings("parallel: {parallel_optimizer: {enable: true}, comm_fusion: {\n"
                 "  allgather: {mode: auto}, reducescatter: {mode: size, config: 16}}}\n") ==
        List{});
  CHECK(status_of("parallel.comm_fusion.allgather.mode") == "supported");
  CHECK(status_of("parallel.comm_fusion.reducescatter.config") == "supported");
}

TEST_CASE("the status of a key") {
  CHECK(status_of("train.steps") == "supported");
  CHECK(status_of("parallel.context_parallel") == "supported");
  CHECK(status_of("parallel.cp_comm_type") == "supported");
  CHECK(status_of("parallel.tp_comm_overlap.ag") == "supported");
  CHECK(status_of("parallel.tp_comm_overlap.bootstrap_backend") == "no effect");
  CHECK(status_of("parallel.delay_wgrad_compute") == "supported");
  CHECK(status_of("moe.overlap_expert_parallel_comm") == "supported");
  CHECK(status_of("parallel.pipeline.scheduler") == "supported");
  CHECK(status_of("parallel.pipeline.layout") == "supported");
  CHECK(status_of("parallel.pipeline.comm_backend") == "partly built");
  CHECK(status_of("model.use_te_rng_tracker") == "no effect");
  CHECK(find_standing("parallel.pipelines") == nullptr);
}

TEST_CASE("what serves today") {
  CHECK(today("parallel.pipeline.comm_backend") == "today: comm_backend: nccl");
  CHECK(today("precision.enable_autocast").empty());
  CHECK(today("recompute.layers_per_stage").empty());
  CHECK(today("train.steps").empty());
}

TEST_CASE("every row of the table is a key or a section") {
  for (const Standing& row : standings()) {
    CAPTURE(row.path);
    const std::string text = dump_config(read(good_text).config, nullptr);
    const std::string path(row.path);
    CHECK(contains(text, path.substr(path.rfind('.') + 1) + ":"));
  }
}

}  // namespace trainctl::test
