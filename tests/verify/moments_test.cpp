// Moments of AdamW in bf16, rounded at random: the same in every layout, and after a checkpoint.
#include "catch.h"
#include "sample_verify.h"

using namespace trainctl;

TEST_CASE("layouts with moments in bf16 equal a single rank") {
  const Options both{"optimizer.exp_avg_dtype=bf16", "optimizer.exp_avg_sq_dtype=bf16"};
  const Options second{"optimizer.type=adamw", "optimizer.exp_avg_sq_dtype=bf16"};
  for (const Options& options : {with(small_gpt, both), with(small_llama, second)}) {
    const std::vector<std::string> layouts{"dp2",       "tp2sp+pp2+dp2",      "cp2+tp2",
                                           "dp4+zero1", "dp2+zero1+megatron", "dp2+tp2+zero3",
                                           "dp2+zero2", "pp2+zb-v+m4+offload"};
    check_equal(options, layouts);
    check_free(options, layouts);
  }
  const Options experts{"moe.num_experts=4", "model.add_bias_linear=false"};
  check_equal(with(with(small_gpt, both), experts), {"dp2+ep2", "tp2sp+dp2+wep2", "tp2+dp2+ep2"});
}
