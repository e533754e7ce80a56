// Values that verify computes for itself, against known values and the plan's own functions; and
// verify finds an engine that does not do what its file says.
#include <cmath>
#include <vector>

#include "catch.h"
#include "plan/rules/learning_rate.h"
#include "sample_faults.h"
#include "sample_verify.h"
#include "verify/alone.h"
#include "verify/alone_check.h"
#include "verify/data.h"
#include "verify/findings.h"
#include "verify/layouts.h"
#include "verify/own/router.h"
#include "verify/own/step_numbers.h"
#include "verify/own/update.h"

using namespace trainctl;

namespace {

/// A layout whose ranks run with what `change` makes of the file.
LayoutVerdict compare_changed(const std::function<void(Config&)>& change) {
  return compare_sample(small_gpt, "dp2+zero1",
                        {.config = [change](int, Config& config) { change(config); }});
}

/// A layout that runs as the single rank, but whose file says what `change` makes of it.
LayoutVerdict compare_with_file(const std::function<void(Config&)>& change,
                                const Options& options = small_gpt) {
  const LayoutChoice choice = parse_layouts("dp2+zero1", 0).front();
  const Config right = with_layout(read_sample(options).config, choice);
  Config file = right;
  change(file);
  const Verification verification(read_sample(options).config, 2);
  return verification.compare({file, plan_of(file, choice.ranks()), 20},
                              {.config = [&](int, Config& config) { config = right; }});
}

void check_named(const LayoutVerdict& verdict, const std::string& what, const std::string& tensor) {
  INFO(told(verdict));
  REQUIRE(verdict.first);
  CHECK(verdict.first->what == what);
  CHECK(verdict.first->tensor.find(tensor) != std::string::npos);
}

const Options with_experts{"model.family=llama",      "model.num_layers=2",
                           "moe.num_experts=4",       "moe.router_topk=2",
                           "moe.aux_loss_factor=0.1", "moe.z_loss_factor=0.01"};

Options joined(Options options, const Options& more) {
  options.insert(options.end(), more.begin(), more.end());
  return options;
}

}  // namespace

TEST_CASE("the schedules of a step's numbers are those of the plan") {
  LrScheduleConfig schedule;
  schedule.max_lr = 3e-3;
  schedule.min_lr = 1e-4;
  schedule.init_lr = 1e-5;
  schedule.warmup_steps = 7;
  schedule.wsd_decay_steps = 20;
  for (const LrStyle style : {LrStyle::constant, LrStyle::linear, LrStyle::cosine,
                              LrStyle::inverse_square_root, LrStyle::wsd}) {
    schedule.style = style;
    for (const DecayStyle last : {DecayStyle("linear"), DecayStyle("cosine"),
                                  DecayStyle("exponential"), DecayStyle("minus_sqrt")}) {
      schedule.wsd_decay_style = last;
      for (std::int64_t update = 0; update <= 110; ++update) {
        CHECK(own::learning_rate(schedule, 100, update) ==
              Approx(learning_rate(schedule, 100, update)).epsilon(1e-12));
      }
    }
  }
  OptimizerConfig optimizer;
  optimizer.start_weight_decay = 0.01;
  optimizer.end_weight_decay = 0.2;
  for (const WeightDecayStyle style :
       {WeightDecayStyle("constant"), WeightDecayStyle("linear"), WeightDecayStyle("cosine")}) {
    optimizer.weight_decay_incr_style = style;
    for (std::int64_t update = 0; update <= 60; ++update) {
      CHECK(own::weight_decay(optimizer, 50, update) ==
            Approx(weight_decay(optimizer, 50, update)).epsilon(1e-12));
    }
  }
  CHECK(own::bias_correction(0.9, 1) == Approx(0.19));
  CHECK(own::decays("layers.0.attention.q.weight"));
  CHECK_FALSE(own::decays("layers.0.attention.q_norm.weight"));
  CHECK_FALSE(own::decays("layers.0.mlp.up.bias"));
}

TEST_CASE("the loss scale falls, waits and grows as it should") {
  Config config;
  config.precision.dynamic_loss_scale = true;
  config.precision.min_loss_scale = 4;
  config.precision.loss_scale_window = 2;
  own::Counters now = own::first_counters(config, 16);
  const auto step = [&](bool finite) { return now = own::after_step(config, now, finite); };
  CHECK(step(false).loss_scale == 16);  // the first infinity is let pass
  CHECK(step(false).loss_scale == 8);
  CHECK(step(false).loss_scale == 4);
  CHECK(step(false).loss_scale == 4);
  CHECK(step(true).good_steps == 1);
  CHECK(step(true).loss_scale == 8);
  CHECK(now.hysteresis == 2);
  CHECK(now.updates == 2);
  CHECK(own::clip_coefficient(2, 0.5, 8) == Approx(0.25 / 8).epsilon(1e-6));
}

TEST_CASE("a loss scale that is not the file's is named before what it changes") {
  const Mesh mesh;
  Findings findings(mesh, 0);
  findings.compare({.phase = Phase::gradient, .step = 4, .bound = fp32_bound}, 2, 1, "late");
  StepState state;
  state.loss_scale = 1;
  compare_counters(findings, Phase::scalar, {state, 4}, {.loss_scale = 2});
  REQUIRE(findings.first());
  CHECK(findings.first()->place() == "scalar loss scale, step 4");
  CHECK(findings.first()->found == 1);
  CHECK(findings.first()->expected == 2);
}

TEST_CASE("a score is compared with the largest of its layer") {
  const Mesh mesh;
  const std::vector<float> expected{8, 1e-4F, -4, 1e-4F};  // two layers of two heads
  const auto first = [&](const std::vector<float>& found) {
    Findings findings(mesh, 0);
    compare_scores(findings, 1, half_bound, found, expected, 2);
    return findings.first() ? findings.first()->place() : "none";
  };
  // A difference of 0.1 is a little of 8, and more than the bound of 4.
  CHECK(first({8, 0.1F, -4, 0}) == "none");
  CHECK(first({8, 0, -4, 0.1F}) == "scalar largest attention score 3, step 1");
  CHECK(first({8, 0.2F, -4, 0}) == "scalar largest attention score 1, step 1");
  CHECK(first({8, std::nanf(""), -4, 0}) == "scalar largest attention score 1, step 1");
}

TEST_CASE("a day shortens the schedules to which the file gives an end, and only those") {
  Config config = read_sample(small_gpt).config;
  config.lr_schedule.style = LrStyle::cosine;
  config.optimizer.weight_decay_incr_style = "linear";
  const Day day{7, 3};
  config.lr_schedule.decay_steps.reset();
  config.optimizer.weight_decay_incr_steps.reset();
  const Config open = config_of_day(config, day);
  CHECK(open.train.steps == 7);
  CHECK_FALSE(open.lr_schedule.decay_steps);
  CHECK_FALSE(open.optimizer.weight_decay_incr_steps);
  config.lr_schedule.decay_steps = 100;
  config.optimizer.weight_decay_incr_steps = 4;
  const Config ended = config_of_day(config, day);
  CHECK(ended.lr_schedule.decay_steps == 5);
  CHECK(ended.optimizer.weight_decay_incr_steps == 4);
}

TEST_CASE("a day that resumes keeps the pace of its schedules") {
  const Config config = config_of_day(read_sample(small_gpt).config, {7, 3});
  Progress done{.steps = 3, .samples = 36, .updates = 3, .planned_steps = 7};
  done.planned = RunLength{.tokens = {}, .epochs = {}, .pace = {.end = 14}};
  CHECK(plan_of_day(config, plan_of(config, 1), done).length.pace.end == 14);
}

TEST_CASE("a comparison begins with a loss scale for all its steps and layouts") {
  const auto recorded = [](Options more) {
    more.insert(more.begin(), "precision.compute=fp16");
    return record_alone(read_sample(with(small_gpt, more)).config, 3, {});
  };
  const auto scale = [](const Record& record) { return record.loss_scaling.initial; };
  const Record plain = recorded({});
  // Room for five growths, and for gradients that are summed in fp16.
  CHECK(scale(recorded({"precision.loss_scale_window=1"})) == scale(plain) / 4);
  const Record sums = recorded({"parallel.gradient_fp32_sync=false"});
  for (const RecordedStep& step : sums.steps) CHECK(16 * step.largest_gradient <= 65504);
  CHECK(16 * plain.steps.front().largest_gradient > 65504);
  const Record skips = recorded({"precision.loss_scale_backoff=0.0009765625"});
  CHECK_FALSE(skips.steps[0].numbers.finite);
  CHECK_FALSE(skips.steps[1].numbers.finite);
  CHECK(skips.steps[2].numbers.finite);
}

TEST_CASE("an update in double has known values") {
  OptimizerConfig optimizer;
  optimizer.clip_grad_norm = 0;
  const own::StepNumbers numbers{.learning_rate = 0.1,
                                 .weight_decay = 0.5,
                                 .bias_correction1 = 0.1,
                                 .bias_correction2 = 0.001};
  const auto updated = [&](const own::Element& before, double gradient, double decay,
                           double rate = 1) {
    return own::Update(optimizer, numbers).of(before, gradient, {optimizer.type, rate, decay});
  };
  const own::Element first = updated({2, 0, 0}, 3, 1);
  CHECK(first.value == Approx(2 - 0.1 * (1 + 0.5 * 2)).epsilon(1e-4));
  CHECK(first.first == Approx(0.3));
  CHECK(first.second == Approx(0.009).epsilon(1e-4));
  optimizer.type = OptimizerType::sgd;
  CHECK(updated({2, 1, 0}, 3, 0).value == Approx(2 - 0.1 * 3.9));
  optimizer.weight_decay_form = "coupled";
  CHECK(updated({2, 1, 0}, 3, 1).first == Approx(4.9));
  optimizer.type = OptimizerType::lion;
  optimizer.beta2 = 0.99;
  const own::Element lion = updated({2, 1, 0}, -8, 1);
  CHECK(lion.value == Approx(2 - 0.1 * (1 + 0.5 * 2)));  // the sign of 0.9 - 0.1 * 8
  CHECK(lion.first == Approx(0.99 - 0.08));
  CHECK(lion.loose == 0);
  // 0.9 - 0.1 * 9 is what the betas' rounding to fp32 leaves of nothing: either sign is right.
  CHECK(updated({2, 1, 0}, -9, 0).loose == Approx(0.2));
  CHECK(updated({2, 0, 0}, 0, 1).value == Approx(2 - 0.1));
  optimizer.type = OptimizerType::sgd;
  optimizer.weight_decay_form = "decoupled";
  CHECK(updated({2, 1, 0}, 3, 3, 0.25).value == Approx(2 - 0.025 * (3.9 + 1.5 * 2)));
}

TEST_CASE("the first entry of groups decides over a parameter, by arithmetic of its own") {
  OptimizerConfig optimizer;
  optimizer.groups = {{.match = {"head.*", "*.q.weigh?"}, .lr_mult = 0.5},
                      {.match = {"*norm*"}, .type = OptimizerType::sgd, .wd_mult = 2},
                      {.match = {"*"}, .wd_mult = 1}};
  const auto is = [&](const char* name, OptimizerType type, double rate, double decay) {
    CAPTURE(name);
    const own::Choice choice = own::choice_of(name, optimizer);
    CHECK(choice.type == type);
    CHECK(choice.rate == rate);
    CHECK(choice.decay == decay);
  };
  is("head.weight", OptimizerType::adamw, 0.5, 1);
  is("layers.3.attention.q.weight", OptimizerType::adamw, 0.5, 1);
  is("layers.3.norm1.bias", OptimizerType::sgd, 1, 2);
  is("layers.3.mlp.up.bias", OptimizerType::adamw, 1, 1);
  is("layers.3.moe.expert_bias", OptimizerType::adamw, 1, 0);
  optimizer.groups = {};
  is("layers.3.mlp.up.bias", OptimizerType::adamw, 1, 0);
}

TEST_CASE("a router's choices and losses have known values") {
  MoeConfig moe;
  moe.num_experts = 2;
  moe.aux_loss_factor = 1;
  moe.capacity_factor = 0.5;
  const std::vector<float> logits{0, 1, 0, 1, 0, 1, 1, 0};
  const std::vector<char> real{1, 1, 1, 1};
  const own::Router router(moe, 4, 4, 4);
  const own::RouterInput input{.logits = logits, .bias = {}, .real = real};
  const own::RouterChoices made = router.choose(input);
  CHECK(made.chosen == std::vector<int>{1, 1, 1, 0});
  CHECK(made.kept == std::vector<char>{1, 0, 0, 1});
  const double p = 1 / (1 + std::exp(-1.0));
  const double even = 2.0 / 4 * (3 * (3 * p + 1 - p) + 1 * (3 * (1 - p) + p));
  CHECK(router.loss(input, made, 4) == Approx(even / 4));
  CHECK(router.bias_steps(made) == std::vector<double>{1e-3, -1e-3});
  const own::RouterSums sums = router.sums(input, made);
  CHECK(sums.balance == Approx(even));
  CHECK(sums.z_loss == Approx(4 * std::pow(std::log(1 + std::exp(1.0)), 2)));
  CHECK(sums.entropy == Approx(-4 * (p * std::log(p) + (1 - p) * std::log(1 - p))));
  CHECK(sums.dropped == 2);
  CHECK(sums.loads == std::vector<double>{1, 3});
}

TEST_CASE("an engine that departs from its file is named", "[threads]") {
  const auto named = [](const char* scalar, const std::function<void(Config&)>& change) {
    check_named(compare_changed(change), "scalar", scalar);
  };
  named("learning_rate", [](Config& c) { c.lr_schedule.max_lr *= 1.001; });
  named("weight_decay", [](Config& c) { c.optimizer.weight_decay += 0.001; });
  named("bias_correction2", [](Config& c) { c.optimizer.beta2 -= 0.001; });
  named("clip_coefficient", [](Config& c) { c.optimizer.clip_grad_norm = 1e-3; });
  check_named(compare_with_file([](Config& c) { c.optimizer.eps = 1e-5; }), "update of", "");
  check_named(compare_with_file([](Config& c) { c.optimizer.ema_decay = 0.6; },
                                with(small_gpt, {"optimizer.ema_decay=0.5"})),
              "average of", "");
}

TEST_CASE("a sum that is a little wrong is named", "[threads]") {
  const auto sum = [](const FaultAction& act) {
    return on_one({.rank = 1,
                   .group = "gradients dp",
                   .operation = GroupOperation::all_reduce,
                   .occurrence = 1,
                   .act = act});
  };
  const auto grow = with_output([](const Tensor& data) {
    for (std::int64_t i = 0; i < data.numel(); ++i) data.as<float>()[i] *= 1 + 5e-6F;
  });
  check_named(compare_sample(small_gpt, "dp2", sum(grow)), "sum of", "gradient");
  const auto coarse = with_input([](const Tensor& data) {
    for (std::int64_t i = 0; i < data.numel(); ++i) {
      data.as<float>()[i] = to_float(to_bf16(data.as<float>()[i]));
    }
  });
  check_named(compare_sample(joined(small_gpt, in_bf16), "dp2", sum(coarse)), "sum of", "gradient");
  const auto other_bits = with_output([](const Tensor& data) {
    for (std::int64_t i = 0; i < data.numel(); ++i) {
      data.as<float>()[i] = std::nextafter(data.as<float>()[i], 1e30F);
    }
  });
  check_named(compare_sample(small_gpt, "dp2", sum(other_bits)), "sum of", "all_reduce");
}

TEST_CASE("a loss that bends at the size of its rounding has a right gradient") {
  const Options bending{"model.family=llama",
                        "model.num_layers=2",
                        "model.hidden_size=16",
                        "model.ffn_hidden_size=24",
                        "model.num_attention_heads=4",
                        "model.kv_channels=2",
                        "model.seq_length=32",
                        "model.vocab_size=96",
                        "model.num_query_groups=4",
                        "model.qk_layernorm=true",
                        "model.hidden_dropout=0.1",
                        "model.embedding_dropout=0.3",
                        "moe.num_experts=8",
                        "moe.router_topk=2",
                        "moe.ffn_hidden_size=16",
                        "moe.aux_loss_factor=0.01",
                        "moe.router_topk_scaling_factor=2.5",
                        "data.reset_attention_mask=true",
                        "train.global_batch_size=4",
                        "train.seed=277607"};
  const LayoutVerdict verdict = check_alone(read_sample(bending).config);
  INFO(told(verdict));
  CHECK(verdict.equal);
  check_named(
      check_alone(read_sample(bending).config, [](Config& c) { c.moe.aux_loss_factor = 0.5; }),
      "gradient", "router.weight");
}

TEST_CASE("gradients are those of the loss, whatever the model") {
  for (const Options& options :
       {small_gpt, small_llama, with_experts,
        joined(with_experts, {"moe.capacity_factor=1", "recompute.enable=true"}),
        joined(with_experts, {"moe.capacity_factor=0.5", "model.hidden_dropout=0.1"}),
        joined(with_experts, {"moe.router_score_function=sigmoid",
                              "moe.router_enable_expert_bias=true", "data.packing=false"}),
        joined(with_experts,
               {"moe.router_choice=rounds", "moe.router_weights=kept",
                "moe.router_load_balancing_type=round_aux_loss", "moe.capacity_factor=1.1"})}) {
    const LayoutVerdict verdict = check_alone(read_sample(options).config);
    INFO(told(verdict));
    CHECK(verdict.equal);
  }
}

TEST_CASE("one look at a single rank is for all files with its model and data") {
  OneRankChecks checks;
  const auto seconds = [&](const Options& more) {
    const LayoutVerdict verdict = checks.verdict_of(read_sample(joined(small_gpt, more)).config);
    CHECK(verdict.equal);
    return verdict.seconds;
  };
  CHECK(seconds({}) > 0);
  CHECK(seconds({"optimizer.type=sgd", "precision.compute=bf16", "data.prefetch=1"}) == 0);
  CHECK(seconds({"model.hidden_dropout=0.3"}) > 0);
}

TEST_CASE("a gradient of another loss and another dropout are named") {
  const auto with = [](const Options& options, const std::function<void(Config&)>& fault) {
    return check_alone(read_sample(options).config, fault);
  };
  check_named(with(with_experts, [](Config& c) { c.moe.aux_loss_factor *= 2; }), "gradient",
              "layers.1.moe.router.weight");
  check_named(with(with_experts, [](Config& c) { c.moe.z_loss_factor = 0; }), "gradient",
              "layers.1.moe.router.weight");
  check_named(with(small_gpt, [](Config& c) { c.model.hidden_dropout = 0.2; }), "dropout",
              "layers.0.attention");
}
