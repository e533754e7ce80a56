// Layouts whose messages are cast, against a single rank that rounds where they do.
#include "verify/record.h"

#include "catch.h"
#include "sample_verify.h"
#include "verify/alone.h"
#include "verify/layouts.h"

using namespace trainctl;

namespace {

/// Deep enough that, rounded elsewhere, one of the last gradients departs by more than the bound.
Options deep_llama() { return with(small_llama, Options{"model.num_layers=8"}); }

Plan plan_with(const Options& options, const std::string& layout) {
  const LayoutChoice choice = parse_layouts(layout, 0).front();
  return plan_of(with_layout(read_sample(options).config, choice), choice.ranks());
}

/// Every rank runs the plan of another layout than it is told.
Faults running(const Options& options, const std::string& layout) {
  return {.plan = [other = plan_with(options, layout)](int, Plan& plan) { plan = other; }};
}

void check_close(const Options& options, const std::string& layout, double most) {
  const LayoutVerdict verdict = compare_sample(options, layout);
  INFO(layout << ": " << told(verdict));
  CHECK(verdict.equal);
  CHECK(verdict.largest.error < most);
}

}  // namespace

TEST_CASE("messages round at the cuts between stages, to their own type") {
  const auto rounding = [](const Options& more, const std::string& layout) {
    return message_rounding(plan_with(with(small_gpt, more), layout));
  };
  const MessageRounding nothing;
  CHECK(rounding({}, "pp2") == nothing);
  CHECK(rounding({}, "pp2+send_bf16") == MessageRounding{{2}, DType::bf16});
  CHECK(rounding({}, "tp2+pp4+dp2+send_fp16") == MessageRounding{{1, 2, 3}, DType::f16});
  CHECK(rounding({"model.num_layers=5"}, "pp3+send_bf16") == MessageRounding{{2, 4}, DType::bf16});
  CHECK(rounding({"parallel.gradients_mean=false"}, "pp2+dp4+send_bf16") ==
        MessageRounding{{2}, DType::bf16, 4});
  // The layers' own type, and a wider one.
  CHECK(rounding(in_bf16, "pp2") == nothing);
  CHECK(rounding(in_bf16, "pp2+send_bf16") == nothing);
  CHECK(rounding(in_bf16, "pp2+send_fp32") == nothing);
  CHECK(rounding(in_bf16, "pp2+send_fp16") == MessageRounding{{2}, DType::f16});
}

TEST_CASE("messages that are rounded: the stages compute what a single rank does that rounds") {
  // A value may lie so close to the middle of two that the stages round it to the other one.
  for (const Options& options : {small_gpt, deep_llama()}) {
    for (const std::string layout : {"pp2", "pp4", "tp2sp+pp2+dp2+gpipe+overlapped+m4"}) {
      check_close(options, layout + "+send_bf16", 0x1p-7);
      check_close(options, layout + "+send_fp16", 0x1p-10);
    }
  }
  for (const std::string layout : {"pp2", "tp2sp+pp4"}) {
    check_close(with(small_gpt, in_bf16), layout + "+send_fp16", half_bound);
    check_close(with(small_gpt, in_bf16), layout + "+send_fp32", half_bound);
    check_close(with(small_gpt, in_fp16), layout + "+send_bf16", half_bound);
  }
}

TEST_CASE("larger gradients are rounded as they are sent") {
  const Options sums =
      with(deep_llama(), Options{"parallel.gradients_mean=false", "train.global_batch_size=12"});
  check_close(sums, "pp4+dp3+send_bf16", 0x1p-7);
  check_close(sums, "pp4+dp3+send_fp16", 0x1p-10);
}

TEST_CASE("messages that round elsewhere than the plan says are caught and named") {
  check_fault({"not rounded", deep_llama(), "pp4+send_bf16", running(deep_llama(), "pp4"),
               "gradient", "layers.6.attention.q.weight", 3});
  check_fault({"rounded", small_gpt, "pp2", running(small_gpt, "pp2+send_bf16"), "activation",
               "layers.1", 1});
}

TEST_CASE("a loss scale with which messages do not overflow") {
  const Config config =
      read_sample(with(small_gpt, Options{"precision.dynamic_loss_scale=true",
                                          "precision.initial_loss_scale=4294967296"}))
          .config;
  const Record plain = record_alone(config, 1, {});
  const Record rounded = record_alone(config, 1, {{2}, DType::f16});
  CHECK(rounded.loss_scaling.initial < plain.loss_scaling.initial);
  CHECK(rounded.steps[0].numbers.finite);
}
