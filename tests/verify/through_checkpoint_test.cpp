// Checkpoints between layouts: half of the steps in one, the other half in another, against a
// single rank that takes all.
#include "base/error.h"
#include "catch.h"
#include "checkpoint/folder.h"
#include "sample_verify.h"
#include "temp_folder.h"
#include "thorough.h"
#include "verify/layouts.h"
#include "verify/verify.h"

using namespace trainctl;

namespace {

struct Made {
  Config config;
  Plan plan;
  VerifiedLayout layout() const { return {config, plan, 20}; }
};

Made made(const Options& options, const std::string& name) {
  const LayoutChoice choice = parse_layouts(name, 0).front();
  Config config = with_layout(read_sample(options).config, choice);
  Plan plan = plan_of(config, choice.ranks());
  return {std::move(config), std::move(plan)};
}

// Layouts of 1 to 8 ranks, with sizes of every axis, chunks, schedules and levels of the optimizer.
const char* const ten_layouts[] = {"dp1",
                                   "tp2",
                                   "tp4sp+dp2+zero2",
                                   "pp2+vp2+m4",
                                   "pp4+gpipe+m4",
                                   "dp4+zero1+megatron",
                                   "tp2sp+pp2+dp2+zero3",
                                   "dp8+zero3+shard2",
                                   "tp2+vocab_dp+pp2+zb-v+m4",
                                   "tp2+dp3+zero1+recompute"};

const Options odd_batch{"train.global_batch_size=24"};

Options with_batch(Options options) {
  options.insert(options.end(), odd_batch.begin(), odd_batch.end());
  return options;
}

}  // namespace

TEST_CASE("a checkpoint of any layout loads into any other", "[threads-every]") {
  std::size_t model = 0;
  for (const Options& options : {with_batch(small_gpt), with_batch(small_llama)}) {
    const std::size_t turn = model++;
    const Verification verification(read_sample(options).config, 4);
    std::vector<Made> all;
    for (const char* name : ten_layouts) all.push_back(made(options, name));
    for (std::size_t i = 0; i < all.size(); ++i) {
      for (std::size_t j = 0; j < all.size(); ++j) {
        // Each layout saves once and loads once; the models alternate.
        if (!thorough() && (j != (3 * i + 1) % all.size() || i % 2 != turn)) continue;
        const TempFolder temp;
        const LayoutVerdict verdict =
            verification.compare_through_checkpoint(all[i].layout(), all[j].layout(), temp.path());
        INFO(options[0] << " " << ten_layouts[i] << "->" << ten_layouts[j] << ": "
                        << told(verdict));
        CHECK(verdict.equal);
      }
    }
  }
}

TEST_CASE("a layout resumes from its checkpoint with the same bits", "[threads-every]") {
  const auto in_16_bits = [](const Options& more) {
    Options options{"model.num_layers=4", "model.num_attention_heads=8"};
    options.insert(options.end(), more.begin(), more.end());
    return options;
  };
  const std::vector<Options> kinds = {
      // The default run has the first of every two.
      small_gpt,
      with(small_gpt, {"optimizer.exp_avg_dtype=bf16", "optimizer.exp_avg_sq_dtype=bf16"}),
      // Too large until a step after the checkpoint, which is skipped too.
      in_16_bits({"precision.compute=fp16", "precision.loss_scale_hysteresis=4",
                  "precision.loss_scale_backoff=0.0009765625"}),
      in_16_bits({"precision.compute=fp16", "precision.initial_loss_scale=1.0e7"}),
      in_16_bits({"precision.compute=bf16", "optimizer.main_params_dtype=bf16",
                  "optimizer.qk_clip_threshold=0.01"}),
      in_16_bits({"precision.compute=bf16", "parallel.pipeline.dtype=fp32"}), small_llama};
  std::size_t number = 0;
  for (const Options& kind : kinds) {
    if (!thorough() && number++ % 2 == 1) continue;
    const Options options = with_batch(kind);
    const Verification verification(read_sample(options).config, 1);  // a day has seven steps
    for (const char* name : ten_layouts) {
      const bool sampled = name == ten_layouts[kind == kinds.front() ? 5 : 6];
      if (!thorough() && !sampled) continue;
      const TempFolder temp;
      const Made one = made(options, name);
      const LayoutVerdict verdict =
          verification.go_on_freely(one.layout(), one.layout(), temp.path());
      INFO(kind.back() << " " << name << ": " << told(verdict));
      CHECK(verdict.equal);
    }
  }
}

TEST_CASE("messages of another type between the layouts that save and load", "[threads-every]") {
  const Verification verification(read_sample(small_gpt).config, 2);
  const Made rounded = made(small_gpt, "pp2+send_bf16");
  const Made exact = made(small_gpt, "tp2");
  for (const auto& [from, to] : {std::pair(&rounded, &exact), std::pair(&exact, &rounded)}) {
    const TempFolder temp;
    const LayoutVerdict verdict =
        verification.compare_through_checkpoint(from->layout(), to->layout(), temp.path());
    INFO(told(verdict));
    CHECK(verdict.equal);
  }
}

TEST_CASE("routers of a layout that rounds no messages, compared with one that does",
          "[threads-every]") {
  const Options experts =
      with(small_llama, {"moe.num_experts=4", "moe.router_topk=2", "moe.ffn_hidden_size=24",
                         "moe.capacity_factor=1", "moe.overflow=probability"});
  const Verification verification(read_sample(experts).config, 2);
  const Made exact = made(experts, "tp2");
  const Made rounded = made(experts, "pp2+send_bf16");
  const TempFolder temp;
  const LayoutVerdict verdict =
      verification.compare_through_checkpoint(exact.layout(), rounded.layout(), temp.path());
  INFO(told(verdict));
  CHECK(verdict.equal);
}

TEST_CASE("rows that pad the vocabulary are in no checkpoint", "[threads-every]") {
  // Decay moves their momentum.
  const Options options =
      with(small_llama, {"optimizer.weight_decay_form=coupled", "optimizer.weight_decay=0.1"});
  const Verification verification(read_sample(options).config, 2);
  const Made saves = made(options, "tp2");
  const Made loads = made(options, "dp2");
  const TempFolder temp;
  const LayoutVerdict verdict =
      verification.compare_through_checkpoint(saves.layout(), loads.layout(), temp.path() / "pair");
  INFO(told(verdict));
  CHECK(verdict.equal);
  const LayoutVerdict freely =
      verification.go_on_freely(saves.layout(), loads.layout(), temp.path() / "day");
  INFO(told(freely));
  CHECK(freely.equal);
}

TEST_CASE("the average of weights goes through a checkpoint", "[threads-every]") {
  const Options options = with(small_llama, {"optimizer.ema_decay=0.5"});
  const Verification verification(read_sample(options).config, 4);
  const TempFolder temp;
  const LayoutVerdict verdict = verification.compare_through_checkpoint(
      made(options, "tp2").layout(), made(options, "dp2+zero1").layout(), temp.path());
  INFO(told(verdict));
  CHECK(verdict.equal);
}

TEST_CASE("what was loaded wrongly is found and named", "[threads-every]") {
  const Verification verification(read_sample(small_gpt).config, 4);
  const Made saves = made(small_gpt, "tp2");
  const Made loads = made(small_gpt, "dp2");
  const auto change = [](int kind) {
    return Faults{.loaded = [kind](int rank, ParamStore& store) {
      if (rank != 1) return;
      const Tensor values = kind == 0 ? store.master(0) : store.state(0, kind - 1);
      values.as<float>()[40] += 0.5F;
    }};
  };
  const TempFolder temp;
  const LayoutVerdict master = verification.compare_through_checkpoint(
      saves.layout(), loads.layout(), temp.path() / "master", change(0));
  REQUIRE(master.first);
  CHECK(master.first->place() == "loaded parameter embedding.token.weight[1, 8], step 3");
  const LayoutVerdict state = verification.compare_through_checkpoint(
      saves.layout(), loads.layout(), temp.path() / "state", change(2));
  REQUIRE(state.first);
  CHECK(state.first->place() == "loaded optimizer state 2 of embedding.token.weight[1, 8], step 3");
  const Faults tiny{.loaded = [](int rank, ParamStore& store) {
    float& value = store.master(0).as<float>()[40];
    if (rank == 0) value = std::nextafter(value, 1.0F);
  }};
  const LayoutVerdict bits =
      verification.go_on_freely(loads.layout(), loads.layout(), temp.path() / "bits", tiny);
  REQUIRE(bits.first);
  CHECK(bits.first->bound == 0);
  CHECK(bits.first->step > 2);
}

namespace {

/// Five of the day's seven steps have half the batch, so that a run resumes inside the ramp.
Options growing() {
  return with(small_gpt, {"train.micro_batch_size=1", "train.rampup_batch_size=[4, 4, 100]"});
}

LayoutVerdict go_on(const Options& options, const char* saves, const char* loads,
                    const Faults& faults = {}) {
  const Verification verification(read_sample(options).config, 2);
  const TempFolder temp;
  return verification.go_on_freely(made(options, saves).layout(), made(options, loads).layout(),
                                   temp.path(), faults);
}

}  // namespace

TEST_CASE("a free run resumes in another layout, also inside a ramp", "[threads-every]") {
  const Options half = with(small_gpt, {"precision.compute=bf16", "data.packing=false"});
  // Twice as far with two replicas as with one.
  const Options summed = with(small_gpt, {"optimizer.type=sgd", "parallel.gradients_mean=false"});
  for (const auto& [options, saves, loads] :
       {std::tuple(growing(), "dp2", "pp2"), std::tuple(small_llama, "tp2sp", "dp2+zero1"),
        std::tuple(half, "pp2+m4", "tp2"), std::tuple(summed, "dp2", "pp2+send_bf16")}) {
    const LayoutVerdict verdict = go_on(options, saves, loads);
    INFO(options[0] << " " << saves << "->" << loads << ": " << told(verdict));
    CHECK(verdict.equal);
  }
}

TEST_CASE("a run that resumes elsewhere in its data is named", "[threads-every]") {
  const LayoutVerdict earlier =
      go_on(small_gpt, "dp2", "tp2",
            of_order([](BatchLoader::Order& order) { order.first_sample -= 1; }));
  REQUIRE(earlier.first);
  CHECK(earlier.first->what == "batch");
  CHECK(earlier.first->tensor == "tokens");
  CHECK(earlier.first->step == 3);
  const LayoutVerdict larger = go_on(
      growing(), "dp2", "pp2", of_order([](BatchLoader::Order& order) { order.smaller.clear(); }));
  REQUIRE(larger.first);
  CHECK(larger.first->place() == "batch micro-batches, step 3");
  CHECK(larger.first->found == 2 * larger.first->expected);
  CHECK_FALSE(larger.failure.empty());
}
