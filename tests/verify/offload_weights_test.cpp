// Layers whose weights are on the host, against a single rank.
#include "catch.h"
#include "sample_verify.h"
#include "thorough.h"

using namespace trainctl;

TEST_CASE("stages with and without weights on the host evaluate the same batches", "[threads]") {
  const LayoutVerdict found = run_sample_freely(with(small_gpt, in_bf16), "pp4+dp2+m4+offloadw");
  INFO(found.failure);
  CHECK(found.equal);
}

TEST_CASE("layouts with weights on the host equal a single rank") {
  for (const Options& model : {small_gpt, small_llama}) {
    const std::vector<std::string> layouts{"dp1+offloadw",
                                           "dp2+m4+offloadw2+each_sum",
                                           "pp2+m4+offloadw",
                                           "pp2+vp2+m4+offloadw2+overlapped",
                                           "tp2sp+pp2+zb-h1+m4+offloadw2",
                                           "pp2+zb-v+m4+recompute+offloadw",
                                           "cp2+offloadw2+p2p",
                                           "tp2sp+tpoverlap+offloadw"};
    for (const Options& type : {in_bf16, in_fp16}) {
      if (!thorough() && (model == small_gpt) != (type == in_bf16)) continue;
      check_equal(with(model, type), layouts);
      check_free(with(model, type), layouts);
    }
  }
}
