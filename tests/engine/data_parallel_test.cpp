// The effect of each option of data parallelism on rows, bytes and numbers.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <mutex>
#include <set>

#include "base/error.h"
#include "catch.h"
#include "config/read/read.h"
#include "config/support/standing.h"
#include "engine/memory/buffers.h"
#include "nn/linear.h"
#include "plan/prepare/make_plan.h"
#include "sample_run.h"
#include "verify/layouts.h"
#include "verify/verify.h"

using namespace trainctl;

namespace {

using Options = std::vector<std::string>;

Options operator+(Options left, const Options& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

const std::vector<Options> bucket_rules{
    {"parallel.bucket_size=2000"},
    {"parallel.bucket_rule=megatron", "parallel.bucket_size=3000"},
    {"parallel.comm_fusion={allreduce: {mode: auto}}"},
    {"parallel.comm_fusion={allreduce: {mode: size, config: 1}}"},
    {"parallel.all_reduce_fusion_config=[0, 4, 9]"},
    {"parallel.comm_fusion={openstate: false}"},
    {"parallel.gradient_aggregation_group=2"},
    {"parallel.gradient_aggregation_group=1"},
};

Plan plan_of(const Options& options, int ranks) {
  ReadResult read = read_config_text(sample_yaml(), "sample.yaml", options);
  Plan plan = make_plan(read.config, {.world_size = ranks, .ranks_per_host = ranks}, read.sources,
                        read.diagnostics);
  require(!read.diagnostics.has_errors(), ExitCode::config, render_text(read.diagnostics, false));
  return plan;
}

LayoutVerdict verify(const Options& options, const std::string& layout, const Faults& faults = {}) {
  const Config config = read_config_text(sample_yaml(), "sample.yaml", options).config;
  const LayoutChoice choice = parse_layouts(layout, 0).front();
  const Config own = with_layout(config, choice);
  Diagnostics diagnostics;
  const Plan plan = make_plan(own, {.world_size = choice.ranks(), .ranks_per_host = choice.ranks()},
                              {}, diagnostics);
  require(!diagnostics.has_errors(), ExitCode::config, render_text(diagnostics, false));
  return Verification(config, 2).compare({own, plan, 20}, faults);
}

/// The summed gradients of rank 0 in its first step, and the reports.
struct Trained {
  std::vector<float> gradients;
  std::vector<StepReport> reports;
};

Trained train(const Options& options, int ranks, int steps = 4) {
  Trained trained;
  std::mutex mutex;
  std::set<const ParamStore*> seen;
  SampleRun run{.set_options = options, .ranks = ranks, .steps = steps, .world = {}};
  std::map<const ParamStore*, std::vector<float>> first;
  run.hooks.finalize_model_grads = [&](ParamStore& store) {
    const std::lock_guard lock(mutex);
    if (!seen.insert(&store).second) return;
    for (int i = 0; i < std::ssize(store.table()); ++i) {
      const float* values = store.gradient(i).as<float>();
      first[&store].insert(first[&store].end(), values, values + store.gradient(i).numel());
    }
  };
  run.inspect = [&](Engine& engine, const Plan&, World& world) {
    const std::lock_guard lock(mutex);
    if (world.rank() == 0) trained.gradients = first.at(&engine.parameters());
  };
  trained.reports = train_sample(run);
  return trained;
}

void check_times(const std::vector<float>& found, const std::vector<float>& expected,
                 float factor) {
  REQUIRE(found.size() == expected.size());
  const bool same = std::equal(found.begin(), found.end(), expected.begin(),
                               [&](float a, float b) { return a == factor * b; });
  CHECK(same);
}

void check_close(const std::vector<StepReport>& found, const std::vector<StepReport>& expected,
                 double tolerance) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    CHECK(found[i].loss == Approx(expected[i].loss).epsilon(tolerance));
  }
}

std::int64_t planned_bytes(const Plan& plan, const std::string& what) {
  std::int64_t bytes = 0;
  for (const CollectiveUse& use : plan.stages[0].communication) {
    if (use.name() == what) bytes += use.bytes;
  }
  return bytes;
}

bool has_row(const Plan& plan, const std::string& name) {
  const auto& rows = plan.stages[0].activations;
  return std::any_of(rows.begin(), rows.end(), [&](const auto& row) { return row.name == name; });
}

bool is_bf16(float value) { return (std::bit_cast<std::uint32_t>(value) & 0xFFFFU) == 0; }

const Options two_tensor_ranks{"parallel.tensor_parallel=2"};
const Options half{"precision.compute=bf16"};

}  // namespace

TEST_CASE("every bucket rule gives the numbers of one rank") {
  for (const Options& rule : bucket_rules) {
    for (const char* layout :
         {"dp2", "dp4", "tp2+dp2", "tp2sp+dp2", "pp2+dp2+m2", "pp2+dp2+m4+gpipe"}) {
      INFO(rule.front() << " " << layout);
      const LayoutVerdict verdict = verify(rule, layout);
      INFO((verdict.first ? verdict.first->place() : verdict.failure));
      CHECK(verdict.equal);
    }
  }
  for (const char* layout : {"dp2+zero1", "dp2+fusion", "tp2+dp2+layers", "pp2+dp2+megatron"}) {
    CHECK(verify(bucket_rules[0], layout).equal);
  }
}

TEST_CASE("lengths that no vector register divides, without gaps between parameters") {
  const Options odd{"model.hidden_size=40", "model.ffn_hidden_size=51",
                    "model.make_vocab_size_divisible_by=2"};
  for (const char* layout : {"dp2", "dp3", "pp2+dp2+m2"}) {
    const Options batch{"train.global_batch_size=12"};
    const LayoutVerdict verdict = verify(bucket_rules[1] + odd + batch, layout);
    INFO(layout << (verdict.first ? verdict.first->place() : verdict.failure));
    CHECK(verdict.equal);
  }
}

TEST_CASE("what runs is the plan's buckets") {
  std::set<std::size_t> counts;
  for (const Options& rule : bucket_rules) {
    INFO(rule.front());
    const std::size_t buckets = plan_of(rule, 2).stages[0].flat.buckets.size();
    counts.insert(buckets);
    std::atomic<std::size_t> sums = 0;
    SampleRun run{.set_options = rule, .ranks = 2, .steps = 2, .world = {}};
    run.hooks.grad_sync = [&](int) { ++sums; };
    train_sample(run);
    CHECK(sums == 2 * 2 * buckets);
  }
  CHECK(counts.size() >= 5);
}

TEST_CASE("sums start while the backward runs", "[threads]") {
  for (const Options& rule : bucket_rules) {
    const Plan plan = plan_of(rule, 2);
    const auto& rows = plan.stages[0].actions;
    const auto of_kind = [](ActionKind kind) {
      return [kind](const Action& row) { return row.kind == kind; };
    };
    const auto first = std::find_if(rows.begin(), rows.end(), of_kind(ActionKind::reduce));
    REQUIRE(first != rows.end());
    const bool more = std::any_of(first, rows.end(), of_kind(ActionKind::backward_weight));
    INFO(rule.front());
    CHECK(more == (plan.stages[0].flat.buckets.size() > 1));
  }
}

TEST_CASE("without gradients_mean gradients are larger by the number of replicas") {
  for (const int ranks : {2, 4}) {
    const Options off{"parallel.gradients_mean=false"};
    const Trained mean = train({}, ranks);
    const Trained sum = train(off, ranks);
    check_times(sum.gradients, mean.gradients, static_cast<float>(ranks));
    check_times(train({"parallel.gradients_mean=true"}, ranks).gradients, mean.gradients, 1);
    CHECK(sum.reports[0].loss == mean.reports[0].loss);
    CHECK(sum.reports[0].grad_norm == Approx(ranks * mean.reports[0].grad_norm));
    check_close(sum.reports, mean.reports, 1e-4);  // both are clipped to the same norm
  }
}

TEST_CASE("an unclipped update of SGD grows with the gradients") {
  const Options sgd{"optimizer.type=sgd", "optimizer.momentum=0", "optimizer.weight_decay=0",
                    "optimizer.clip_grad_norm=0", "lr_schedule.style=constant"};
  const Trained slow = train(sgd + Options{"parallel.gradients_mean=false"}, 2);
  const Trained fast = train(sgd + Options{"lr_schedule.max_lr=2.0e-2"}, 2);
  const Trained plain = train(sgd, 2);
  check_close(slow.reports, fast.reports, 1e-6);
  CHECK(slow.reports.back().loss < plain.reports.back().loss);
}

TEST_CASE("without loss_repeated_mean gradients are tensor_parallel times larger") {
  const Trained mean = train(two_tensor_ranks, 4);
  const Trained repeated =
      train(two_tensor_ranks + Options{"parallel.loss_repeated_mean=false"}, 4);
  check_times(repeated.gradients, mean.gradients, 2);
  const Trained both = train(two_tensor_ranks + Options{"parallel.loss_repeated_mean=false",
                                                        "parallel.gradients_mean=false"},
                             4);
  check_times(both.gradients, mean.gradients, 4);
}

TEST_CASE("verify divides by what gradients_mean and loss_repeated_mean leave out") {
  const Options off{"parallel.gradients_mean=false", "parallel.loss_repeated_mean=false"};
  for (const char* layout : {"dp2", "dp4+zero1", "tp2+dp2", "tp2sp+pp2+dp2+m2"}) {
    const LayoutVerdict verdict = verify(off, layout);
    INFO(layout << (verdict.first ? verdict.first->place() : verdict.failure));
    CHECK(verdict.equal);
  }
}

TEST_CASE("gradients may travel in the compute type") {
  const Options narrow = half + Options{"parallel.gradient_fp32_sync=false"};
  const Plan wide_plan = plan_of(half, 2);
  const Plan narrow_plan = plan_of(narrow, 2);
  const std::string name = "all_reduce gradients";
  CHECK(2 * planned_bytes(narrow_plan, name) == planned_bytes(wide_plan, name));
  CHECK(narrow_plan.stages[0].memory.communication > wide_plan.stages[0].memory.communication);
  const Trained wide = train(half, 2);
  const Trained sent = train(narrow, 2);
  CHECK(std::all_of(sent.gradients.begin(), sent.gradients.end(), is_bf16));
  CHECK_FALSE(std::all_of(wide.gradients.begin(), wide.gradients.end(), is_bf16));
  double most = 0;
  float largest = 0;
  for (std::size_t i = 0; i < wide.gradients.size(); ++i) {
    largest = std::max(largest, std::abs(wide.gradients[i]));
    most = std::max(most, static_cast<double>(std::abs(wide.gradients[i] - sent.gradients[i])));
  }
  CHECK(most <= largest / 128);  // each rank's part and the sum are rounded to 8 bits
  check_close(sent.reports, wide.reports, 1e-2);
  const Options forced = narrow + Options{"parallel.force_fp32_communication=true"};
  check_times(train(forced, 2).gradients, wide.gradients, 1);
  CHECK(planned_bytes(plan_of(forced, 2), name) == planned_bytes(wide_plan, name));
}

TEST_CASE("gradients in the compute type, over stages, tensor ranks and slices") {
  for (const char* layout : {"tp2+dp2", "tp2sp+dp2", "pp2+dp2+m2", "dp2+zero1", "dp4"}) {
    const LayoutVerdict verdict =
        verify(half + Options{"parallel.gradient_fp32_sync=false"}, layout);
    INFO(layout << (verdict.first ? verdict.first->place() : verdict.failure));
    CHECK(verdict.equal);
  }
}

TEST_CASE("activations may be summed in fp32 over tensor ranks") {
  const Options force{"parallel.force_fp32_communication=true"};
  for (const Options& layout :
       {two_tensor_ranks, two_tensor_ranks + Options{"parallel.sequence_parallel=true"}}) {
    const Options narrow = layout + half;
    const char* name = layout.size() == 1 ? "all_reduce mlp" : "reduce_scatter mlp";
    const Plan plan = plan_of(narrow, 2);
    const Plan forced = plan_of(narrow + force, 2);
    CHECK(planned_bytes(forced, name) == 2 * planned_bytes(plan, name));
    CHECK(planned_bytes(forced, "all_gather mlp") == planned_bytes(plan, "all_gather mlp"));
    CHECK(has_row(forced, "stream.sum"));
    CHECK_FALSE(has_row(plan, "stream.sum"));
    // Our groups add 16-bit values up in fp32 and round once, so the bits are the same.
    check_times(train(narrow + force, 2).gradients, train(narrow, 2).gradients, 1);
  }
  CHECK_FALSE(has_row(plan_of(two_tensor_ranks + force, 2), "stream.sum"));  // fp32 already
}

TEST_CASE("initial parameters of the first replica reach the others when they are broadcast",
          "[threads]") {
  Faults another_seed;
  another_seed.config = [](int rank, Config& config) { config.train.seed += rank == 1 ? 1 : 0; };
  const LayoutVerdict apart = verify({}, "dp2", another_seed);
  REQUIRE(apart.first);
  CHECK(apart.first->what == "initial parameter");
  const LayoutVerdict same = verify({"parallel.parameter_broadcast=true"}, "dp2", another_seed);
  CHECK((!same.first || same.first->what != "initial parameter"));
  CHECK(verify({"parallel.parameter_broadcast=true"}, "tp2+dp2").equal);
  CHECK(verify(half + Options{"parallel.parameter_broadcast=true"}, "dp2").equal);
}

TEST_CASE("full_batch feeds every rank all replicas' batches, and the numbers stay") {
  const Options full{"parallel.dataset_strategy=full_batch", "train.micro_batch_size=1"};
  const Options own{"train.micro_batch_size=1"};
  const Plan fed = plan_of(full, 4);
  const Plan plain = plan_of(own, 4);
  CHECK(fed.full_batch);
  CHECK(fed.fed_sequences() == 4);
  CHECK(fed.tokens_per_step() == plain.tokens_per_step());
  CHECK(fed.stages[0].memory.data == 4 * plain.stages[0].memory.data);
  for (const char* layout : {"dp2", "dp4", "tp2+dp2", "pp2+dp2"}) {
    const LayoutVerdict verdict = verify(full, layout);
    INFO(layout << (verdict.first ? verdict.first->place() : verdict.failure));
    CHECK(verdict.equal);
  }
  const Trained all = train(full, 4);
  const Trained one = train(own, 4);
  check_times(all.gradients, one.gradients, 1);
  CHECK(all.reports.back().loss == one.reports.back().loss);
  // One list for each input, with one slice of the batch per replica, gives the same plan.
  CHECK_FALSE(plan_of({"parallel.dataset_strategy=[[4, 1], [4, 1]]"}, 4).full_batch);
}

TEST_CASE("a rank takes its replica's part of a full batch") {
  Batch batch;
  resize(batch, 3, 2);
  for (std::size_t i = 0; i < 6; ++i) batch.tokens[i] = static_cast<std::int32_t>(i);
  std::vector<std::int32_t> room(2);
  BatchTensors to;
  to.tokens = Tensor{room.data(), Shape{2}, DType::i32, DeviceKind::cpu};
  const Share share{.sequences = 1, .replica = 2, .tokens = {.seq_length = 2}};
  Feed feed(to, 20);
  Stream stream(DeviceKind::cpu, "feed", Stream::Mode::run_inline);
  feed.run(batch, share, stream);
  CHECK(room == std::vector<std::int32_t>{4, 5});
  resize(batch, 1, 2);
  feed.run(batch, share, stream);  // its own batch
  CHECK(room == std::vector<std::int32_t>{0, 1});
}

TEST_CASE("weight gradients may be made apart and then added") {
  const Options apart{"parallel.gradient_accumulation_fusion=false", "train.micro_batch_size=2"};
  const Options fused{"train.micro_batch_size=2"};
  const Plan plan = plan_of(apart, 2);
  CHECK(has_row(plan, "d_weight"));
  CHECK(plan.stages[0].memory.activations > plan_of(fused, 2).stages[0].memory.activations);
  check_close(train(apart, 2).reports, train(fused, 2).reports, 1e-6);
  CHECK(verify(apart, "dp2").equal);
  CHECK(verify(apart, "pp2+tp2").equal);
}

TEST_CASE("a weight gradient that is made apart leaves its product there") {
  std::vector<float> x{1, 2}, dy{3, 5}, gradient{10, 20, 30, 40}, room(5, -1);
  const auto tensor = [](std::vector<float>& values, Shape shape) {
    return Tensor{values.data(), shape, DType::f32, DeviceKind::cpu};
  };
  SampleRun run{.set_options = {}, .ranks = 1, .steps = 1, .world = {}};
  run.inspect = [&](Engine& engine, const Plan&, World&) {
    Weight weight;
    weight.gradient = tensor(gradient, Shape{2, 2});
    weight.apart = tensor(room, Shape{5});
    Pass pass;
    pass.ops = &engine.ops();
    add_weight_gradient(pass, weight, tensor(dy, Shape{1, 2}), tensor(x, Shape{1, 2}));
  };
  train_sample(run);
  CHECK(room == std::vector<float>{3, 6, 5, 10, -1});
  CHECK(gradient == std::vector<float>{13, 26, 35, 50});
}

TEST_CASE("train refuses none of these options") {
  const Options all{"parallel.bucket_rule=megatron",
                    "parallel.all_reduce_fusion_config=[1]",
                    "parallel.gradient_aggregation_group=2",
                    "parallel.gradients_mean=false",
                    "parallel.gradient_fp32_sync=false",
                    "parallel.loss_repeated_mean=false",
                    "parallel.force_fp32_communication=true",
                    "parallel.parameter_broadcast=true",
                    "parallel.gradient_accumulation_fusion=false",
                    "parallel.dataset_strategy=full_batch"};
  for (const std::string& option : all) {
    ReadResult read = read_config_text(sample_yaml(), "sample.yaml", {option});
    INFO(option);
    Diagnostics diagnostics;
    check_built(read.config, read.sources, Severity::error, diagnostics);
    check_effect(read.config, read.sources, diagnostics);
    CHECK(diagnostics.list().empty());
  }
}
