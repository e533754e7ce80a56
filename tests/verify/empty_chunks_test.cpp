// Chunks that hold nothing, in a schedule down the stages and up: they pass on what they get, to
// another stage or to the next chunk of their own.
#include "catch.h"
#include "sample_faults.h"
#include "sample_verify.h"

using namespace trainctl;

namespace {

Options over(const Options& model, int stages, const char* layout) {
  return with(model, {"parallel.pipeline_stages=" + std::to_string(stages),
                      "parallel.virtual_pipeline_stages=2", "parallel.pipeline.scheduler=zb-v",
                      std::string("parallel.pipeline.layout=") + layout});
}

}  // namespace

TEST_CASE("chunks that hold nothing where the pipeline turns equal a single rank", "[threads]") {
  for (const char* layout : {"Ett||tt|L", "Ett|tt||L", "Ett|||ttL"}) {
    INFO(layout);
    check_equal(over(small_gpt, 2, layout), {"pp2+zb-v+m4"});
  }
  check_equal(over(small_llama, 3, "Et|||t||ttL"), {"pp3+zb-v+m4+recompute"});
  check_equal(over(small_llama, 2, "Et|||tttL"),
              {"tp2sp+pp2+zb-v+m4+deallocated", "pp2+dp2+zb-v+m2+overlapped+zero2"});
  check_equal(over(small_gpt, 2, "Et||tt|tL"), {"pp2+zb-v+m4+send_bf16"});
}

TEST_CASE("free runs over chunks that hold nothing") {
  check_free(over(small_gpt, 2, "Ett|||ttL"), {"pp2+zb-v+m4"});
  check_free(over(with(small_llama, in_bf16), 2, "Et||tt|tL"), {"pp2+dp2+zb-v+m2+zero1"});
}

TEST_CASE("a mistake where a chunk that holds nothing hands over is named") {
  // Nothing of the first chunk of the last stage gets to the next one.
  const auto lose = [](Plan& plan) {
    std::erase_if(plan.stages.back().actions, [](const Action& row) {
      return row.kind == ActionKind::forward && row.begin == row.end;
    });
  };
  check_fault({"what is passed on left out", over(small_gpt, 2, "Ett||tt|L"), "pp2+zb-v+m4",
               of_plan(lose), "activation", "layers.2"});
}
