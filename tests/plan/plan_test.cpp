#include "plan/prepare/make_plan.h"

#include <set>

#include "base/error.h"
#include "catch.h"
#include "sample.h"

using namespace trainctl;

TEST_CASE("a plan for one rank", "[plan]") {
  const Plan plan = plan_of(small_config());
  CHECK(plan.mesh.world_size() == 1);
  CHECK(plan.micro_batch_size == 12);
  CHECK(plan.microbatches == 1);
  CHECK(plan.stages.front().slots == 1);
  CHECK(plan.threads_per_rank == 2);
  CHECK(plan.tokens_per_step() == 12 * 64);
  CHECK(plan.units() == 6);
  CHECK(plan.compute == DType::f32);
  CHECK(plan.stages.front().actions.size() == 2 + 2 * 6 + 1);
}

TEST_CASE("plans for many sizes are consistent", "[plan]") {
  for (const std::int64_t ranks : {1, 2, 3, 4, 6, 12}) {
    for (const std::int64_t per_rank : {1, 2, 6}) {
      for (const std::int64_t micro : {1, 2, 6}) {
        if (per_rank % micro != 0) continue;
        for (const Family family : {Family("gpt2"), Family("llama")}) {
          Config config = small_config();
          config.model.family = family;
          config.train.global_batch_size = ranks * per_rank;
          config.train.micro_batch_size = micro;
          config.parallel.bucket_size = 50'000;
          const Plan plan = plan_of(config, ranks);
          REQUIRE(plan.mesh.dp == ranks);
          REQUIRE(plan.microbatches == per_rank / micro);
          REQUIRE(plan.tokens_per_step() == ranks * per_rank * 64);
          std::size_t reduces = 0;
          for (const Action& row : plan.stages.front().actions)
            reduces += row.kind == ActionKind::reduce ? 1 : 0;
          REQUIRE(reduces == (ranks > 1 ? plan.stages.front().flat.buckets.size() : 0));
          REQUIRE(plan.stages.front().flat.buckets.size() > 1);
          REQUIRE(plan.stages.front().actions.back().kind == ActionKind::step);
          REQUIRE(plan.threads_per_rank == (ranks == 1 ? 2 : 1));
        }
      }
    }
  }
}

TEST_CASE("reductions start while the backward still runs", "[plan]") {
  Config config = small_config();
  config.parallel.bucket_size = 100'000;
  const Plan plan = plan_of(config, 2);
  std::size_t first_reduce = 0;
  std::size_t last_weight = 0;
  for (std::size_t i = 0; i < plan.stages.front().actions.size(); ++i) {
    const ActionKind kind = plan.stages.front().actions[i].kind;
    if (kind == ActionKind::reduce && first_reduce == 0) first_reduce = i;
    if (kind == ActionKind::backward_weight) last_weight = i;
  }
  CHECK(first_reduce > 0);
  CHECK(first_reduce < last_weight);
}

TEST_CASE("threads per rank follow the host unless given", "[plan]") {
  Diagnostics diagnostics;
  Config config = small_config();
  const Site site{.world_size = 4, .ranks_per_host = 2, .cores_per_host = 17};
  CHECK(make_plan(config, site, SourceMap{}, diagnostics).threads_per_rank == 8);
  config.parallel.threads_per_rank = 3;
  CHECK(make_plan(config, site, SourceMap{}, diagnostics).threads_per_rank == 3);
  CHECK(diagnostics.list().empty());
}

TEST_CASE("the hash sees what changes results and nothing else", "[plan]") {
  const Config base = small_config();
  const auto hash = [](const Config& config, std::int64_t ranks = 1) {
    const Plan plan = plan_of(config, ranks);
    REQUIRE(plan.hash != 0);
    return plan.hash;
  };
  CHECK(hash(base) == hash(base));
  std::set<std::uint64_t> seen{hash(base)};
  const auto differs = [&](auto change) {
    Config config = base;
    change(config);
    CHECK(seen.insert(hash(config)).second);
  };
  differs([](Config& c) { c.train.seed = 1; });
  differs([](Config& c) { c.train.steps = 2001; });
  differs([](Config& c) { c.train.micro_batch_size = 6; });
  differs([](Config& c) { c.train.validate_every = 5; });
  differs([](Config& c) { c.lr_schedule.max_lr = 2e-3; });
  differs([](Config& c) { c.lr_schedule.warmup_steps = 1; });
  differs([](Config& c) { c.lr_schedule.decay_steps = 2000; });
  differs([](Config& c) { c.optimizer.beta2 = 0.99; });
  differs([](Config& c) { c.optimizer.clip_grad_norm = 0; });
  differs([](Config& c) { c.optimizer.type = OptimizerType::sgd; });
  differs([](Config& c) { c.model.hidden_dropout = 0.1; });
  differs([](Config& c) { c.model.norm_epsilon = 1e-6; });
  differs([](Config& c) { c.model.num_layers = 5; });
  differs([](Config& c) { c.precision.compute = ComputeType::bf16; });
  differs([](Config& c) { c.precision.loss_scale = 1024; });
  differs([](Config& c) { c.parallel.bucket_size = 1000; });
  differs([](Config& c) { c.parallel.threads_per_rank = 1; });
  differs([](Config& c) { c.data.train[0].weight = 2; });
  differs([](Config& c) { c.data.train.push_back({"more", 1.0}); });
  differs([](Config& c) { c.data.shuffle = false; });
  differs([](Config& c) { c.data.eod_token = 0; });
  differs([](Config& c) { c.data.tokenizer = "sentencepiece:a"; });
  differs([](Config& c) { c.data.validation.fraction = 0.1; });
  differs([](Config& c) { c.output.save_weights = false; });
  differs([](Config& c) { c.log.trace = "trace.json"; });
  differs([](Config& c) { c.cluster = {1e12, 1e11, 1e-6, 1e10}; });
  differs([](Config& c) { c.moe.capacity_factor = 2; });
  differs([](Config& c) { c.recompute.layers_per_stage = IntList{1}; });
  differs([](Config& c) { c.recompute.layers_per_stage = IntList{1, 2}; });
  differs([](Config& c) { c.offload.num_layers = 1; });
  differs([](Config& c) { c.hooks.timers = true; });
  differs([](Config& c) { c.log.every = 1; });  // all ranks report their timers then
  differs([](Config& c) { c.train.rampup_batch_size = IntList{4, 4, 100}; });
  differs([](Config& c) { c.parallel.dataset_strategy = {"", {{1, 2}}}; });
  CHECK(seen.insert(hash(base, 2)).second);

  const auto same = [&](auto change) {
    Config config = base;
    change(config);
    CHECK(hash(config, 4) == hash(base, 4));
  };
  same([](Config& c) { c.data.train[0].path = "/elsewhere"; });
  same([](Config& c) { c.data.cache_dir = "/tmp"; });
  same([](Config& c) { c.output.dir = "elsewhere"; });
  same([](Config& c) { c.output.overwrite = false; });
  same([](Config& c) { c.model.preset = "any"; });
  same([](Config& c) { c.parallel.global_rank = 3; });
  same([](Config& c) { c.parallel.group_ckpt_save_file = "groups.pb"; });
  same([](Config& c) { c.parallel.deadline_seconds = 5; });
  same([](Config& c) { c.parallel.check_collectives = true; });
  same([](Config& c) { c.data.prefetch = 5; });
  Config model_a = base;
  Config model_b = base;
  model_a.data.tokenizer = "sentencepiece:/one/m.model";
  model_b.data.tokenizer = "sentencepiece:/two/m.model";
  CHECK(hash(model_a) == hash(model_b));
}

TEST_CASE("gradients may stay unsummed only where none are shared", "[plan]") {
  const auto findings = [](std::int64_t ranks, auto change) {
    Config config = small_config();
    config.hooks.finalize_model_grads = false;
    change(config);
    Diagnostics diagnostics;
    make_plan(config, site_of(ranks), SourceMap{}, diagnostics);
    std::string text;
    for (const Diagnostic& one : diagnostics.list()) {
      if (one.severity != Severity::error) continue;
      CHECK(one.code == "unfinished-gradients");
      CHECK(one.path == "hooks.finalize_model_grads");
      CHECK(one.help == "set finalize_model_grads to true");
      text += one.message;
    }
    return text;
  };
  CHECK(findings(1, [](Config&) {}) == "");
  CHECK(findings(2, [](Config&) {}) ==
        "finalize_model_grads: false leaves gradients unsummed, but this "
        "layout has to sum gradients over dp (2 ranks): ranks that share parameters would drift "
        "apart");
  const auto stages = [](Config& config) { config.parallel.pipeline_stages = 2; };
  const auto untied = [&](Config& config) {
    stages(config);
    config.model.tie_word_embeddings = false;
  };
  CHECK(findings(2, untied) == "");
  CHECK(findings(2, stages).find("tied embedding over embedding (2 ranks)") != std::string::npos);
  const auto sequence_parallel = [&](Config& config) {
    config.parallel.tensor_parallel = 2;
    config.parallel.sequence_parallel = true;
  };
  CHECK(findings(2, sequence_parallel).find("over tp (2 ranks)") != std::string::npos);
}

TEST_CASE("a world of 16384 ranks builds nothing of that size", "[plan]") {
  Config config = llama3_8b();
  config.train.global_batch_size = 16'384;
  const Plan plan = plan_of(config, 16'384);
  CHECK(plan.mesh.world_size() == 16'384);
  CHECK(plan.stages.front().parameters.size() == 1 + 32 * 9 + 2);
  CHECK(plan.stages.front().actions.size() < 1000);
}

TEST_CASE("a world that cannot be is refused", "[plan]") {
  Diagnostics diagnostics;
  CHECK_THROWS_AS(make_plan(small_config(), site_of(0), SourceMap{}, diagnostics), Error);
}

TEST_CASE("the device of auto is the site's, and the plan is that of this device") {
  const auto plan_on = [](const std::string& word, DeviceKind around) {
    Config config = gpt2_124m();
    config.parallel.device = word;
    Site site = site_of(1);
    site.device = around;
    Diagnostics diagnostics;
    return make_plan(config, site, SourceMap{}, diagnostics);
  };
  for (const DeviceKind around : {DeviceKind::cpu, DeviceKind::cuda}) {
    const Plan found = plan_on("auto", around);
    CHECK(found.device == around);
    CHECK(found.hash == plan_on(around == DeviceKind::cuda ? "cuda" : "cpu", around).hash);
    CHECK(plan_on("cuda", around).device == DeviceKind::cuda);
    CHECK(plan_on("cpu", around).device == DeviceKind::cpu);
  }
  CHECK(plan_on("auto", DeviceKind::cpu).hash != plan_on("auto", DeviceKind::cuda).hash);
}

TEST_CASE("the preview of rates has the corners of the schedule", "[plan]") {
  Config config = small_config();
  config.lr_schedule.style = LrStyle::cosine;
  config.lr_schedule.warmup_steps = 100;
  config.lr_schedule.decay_steps = 1800;
  const Plan plan = plan_of(config);
  std::vector<std::int64_t> steps;
  for (const RatePoint& point : plan.rates) steps.push_back(point.step);
  CHECK(steps == std::vector<std::int64_t>{0, 100, 500, 1000, 1500, 1800, 1999});
  CHECK(plan.rates[1].learning_rate == Approx(1e-3));
  CHECK(plan.rates[6].learning_rate == 0);
}
