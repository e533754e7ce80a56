// The optimizer's values in bf16 (moments of AdamW and matrices, rounded at random, and sums of
// gradients) are equal in every layout, and after a checkpoint.
#include "catch.h"
#include "sample_verify.h"

using namespace trainctl;

namespace {

const std::vector<std::string> layouts{"dp2",       "tp2sp+pp2+dp2",      "cp2+tp2",
                                       "dp4+zero1", "dp2+zero1+megatron", "dp2+tp2+zero3",
                                       "dp2+zero2", "pp2+zb-v+m4+offload"};
const Options experts{"moe.num_experts=4", "model.add_bias_linear=false"};
const std::vector<std::string> expert_layouts{"dp2+ep2", "tp2sp+dp2+wep2", "tp2+dp2+ep2"};

}  // namespace

TEST_CASE("layouts with moments in bf16 equal a single rank") {
  const Options both{"optimizer.exp_avg_dtype=bf16", "optimizer.exp_avg_sq_dtype=bf16"};
  const Options second{"optimizer.type=adamw", "optimizer.exp_avg_sq_dtype=bf16"};
  check_equal(with(small_gpt, both), layouts);
  check_free(with(small_gpt, both), layouts);
  check_equal(with(small_llama, second), layouts);
  check_equal(with(with(small_gpt, both), experts), expert_layouts);
}

TEST_CASE("layouts with matrices in bf16 equal a single rank") {
  const Options narrow{"precision.compute=bf16", "optimizer.main_params_dtype=bf16"};
  const Options all{"precision.compute=bf16",
                    "optimizer.main_params_dtype=bf16",
                    "optimizer.type=adamw",
                    "optimizer.exp_avg_dtype=bf16",
                    "optimizer.exp_avg_sq_dtype=bf16",
                    "optimizer.main_grads_dtype=bf16"};
  check_equal(with(small_gpt, narrow), layouts);
  check_free(with(small_gpt, narrow), layouts);
  check_equal(with(small_llama, all), layouts);
  const Options clipped{"optimizer.qk_clip_threshold=0.01"};
  check_equal(with(with(small_gpt, narrow), with(experts, clipped)), expert_layouts);
}

TEST_CASE("layouts with groups of several optimizers equal a single rank") {
  const Options groups{"optimizer.qk_clip_threshold=0.01",  // layer 1 stays as it is
                       "optimizer.groups=[{match: \"layers.1.*\", lr_mult: 0}, "
                       "{match: [\"*norm*\", \"*.bias\"], type: sgd, lr_mult: 0.5, wd_mult: 1}, "
                       "{match: \"embedding.*\", type: lion, lr_mult: 0.1, wd_mult: 0.5}]"};
  check_equal(with(small_gpt, groups), layouts);
  check_free(with(small_gpt, groups), layouts);
}

TEST_CASE("layouts with sums of gradients in bf16 equal a single rank") {
  const Options narrow{"optimizer.main_grads_dtype=bf16"};
  const Options plain{"optimizer.main_grads_dtype=bf16", "optimizer.type=sgd",
                      "parallel.gradient_fp32_sync=false", "parallel.gradients_mean=false"};
  check_equal(with(small_gpt, narrow), layouts);
  check_equal(with(small_llama, plain), layouts);
  check_free(with(small_llama, plain), layouts);
  check_equal(with(with(small_gpt, narrow), experts), expert_layouts);
  // The single rank's gradients are fp32: that tokens are routed as its own follows from the
  // layout.
  check_free(with(with(small_gpt, narrow), experts), {"dp2+zero2", "dp2+ep2", "dp2+ep2+zero3"});
}
