// Training with experts: the run's report about them, other precisions, and experts without tokens.
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <string_view>

#include "catch.h"
#include "sample_run.h"

using namespace trainctl;

namespace {

using Options = std::vector<std::string>;

const Options experts{"model.family=llama", "moe.num_experts=4", "moe.router_topk=2",
                      "moe.ffn_hidden_size=48"};

std::vector<StepReport> train(Options options, int ranks = 1, int steps = 12) {
  Options all = experts;
  all.insert(all.end(), options.begin(), options.end());
  SampleRun run;
  run.set_options = all;
  run.ranks = ranks;
  run.steps = steps;
  return train_sample(run);
}

/// Bytes of all_to_all between ranks with other experts, of all ranks in the last step.
std::int64_t exchanged_bytes(Options options, int ranks) {
  options.insert(options.begin(), experts.begin(), experts.end());
  std::atomic<std::int64_t> bytes = 0;
  SampleRun run;
  run.set_options = options;
  run.ranks = ranks;
  run.steps = 1;
  run.inspect = [&](Engine&, const Plan&, World& world) {
    for (const Traffic::Row& row : world.traffic().rows()) {
      if (row.group != "layers expert:ep") continue;
      bytes += row.uses[static_cast<std::size_t>(GroupOperation::all_to_all)].bytes;
    }
  };
  train_sample(run);
  return bytes;
}

}  // namespace

TEST_CASE("with shares of the tokens the ranks of tp send each row once") {
  for (const char* sequence : {"true", "false"}) {
    const Options layout{"parallel.tensor_parallel=2",
                         std::string("parallel.sequence_parallel=") + sequence,
                         "parallel.expert_parallel=2", "model.num_layers=2"};
    Options shares = layout;
    shares.emplace_back("moe.group_wise_a2a=true");
    Options chunks = shares;
    chunks.emplace_back("moe.comp_comm_parallel=true");
    const std::int64_t all = exchanged_bytes(layout, 4);
    CHECK(all > 0);
    CHECK(2 * exchanged_bytes(shares, 4) == all);
    CHECK(2 * exchanged_bytes(chunks, 4) == all);
  }
}

TEST_CASE("the hook after a router sees each token, and experts are chosen by what it leaves",
          "[threads]") {
  constexpr std::int64_t tokens = 8 * 16;  // of a step
  for (const char* layout : {"parallel.data_parallel=2", "parallel.tensor_parallel=2",
                             "parallel.context_parallel=2", "parallel.pipeline_stages=2"}) {
    INFO(layout);
    std::array<std::array<std::atomic<int>, tokens>, 2> seen{};  // by layer
    SampleRun run;
    run.set_options = experts;
    run.set_options.insert(run.set_options.end(),
                           {layout, "moe.router_topk=1", "train.micro_batch_size=4"});
    run.ranks = 2;
    run.steps = 1;
    run.hooks.after_router = [&](std::int64_t layer, const Tensor& token, const Tensor& logits) {
      for (std::int64_t row = 0; row < token.numel(); ++row) {
        const std::int64_t number = token.as<std::int64_t>()[row];
        if (number < tokens)
          ++seen.at(static_cast<std::size_t>(layer))[static_cast<std::size_t>(number)];
        std::fill_n(logits.as<float>() + row * 4, 4, 0.0F);
        logits.as<float>()[row * 4 + number % 4] = 1;  // the tokens to one expert after another
      }
    };
    const auto reports = train_sample(run);
    // Ranks along tp route the same tokens.
    const int times = std::string_view(layout).find("tensor") == std::string_view::npos ? 1 : 2;
    for (const auto& layer : seen) {
      CHECK(std::ranges::all_of(layer, [&](int count) { return count == times; }));
    }
    REQUIRE(reports.front().router.has_value());
    CHECK(reports.front().router->balance_loss == Approx(1));
  }
}

TEST_CASE("a model with experts learns, and says what its routers do") {
  const auto reports = train({}, 1, 40);
  CHECK(reports.back().loss < 0.8 * reports.front().loss);
  for (const StepReport& report : reports) {
    REQUIRE(report.router.has_value());
    const RouterReport& router = *report.router;
    CHECK(router.balance_loss > 0.9);
    CHECK(router.balance_loss < 4);
    CHECK(router.load >= 1);
    CHECK(router.load <= 2);  // every token chooses two of four
    CHECK(router.entropy > 0);
    CHECK(router.entropy <= std::log(4.0) + 1e-6);
    CHECK(router.dropped == 0);
  }
  SampleRun plain;
  plain.steps = 1;
  CHECK_FALSE(train_sample(plain).front().router.has_value());
}

TEST_CASE("routers report the same in every layout") {
  const Options limited{"moe.capacity_factor=1"};
  const auto alone = train(limited, 1, 3);
  CHECK(alone.front().router->dropped > 0);
  for (const Options& layout :
       {Options{"parallel.tensor_parallel=2", "parallel.sequence_parallel=true",
                "parallel.expert_parallel=2"},
        Options{"parallel.pipeline_stages=2", "train.micro_batch_num=2",
                "recompute.enable=true"}}) {
    Options all = limited;
    all.insert(all.end(), layout.begin(), layout.end());
    const auto found = train(all, 4, 3);
    for (std::size_t step = 0; step < 3; ++step) {
      const RouterReport& one = *alone[step].router;
      const RouterReport& other = *found[step].router;
      CHECK(found[step].loss == Approx(alone[step].loss).epsilon(1e-4));
      CHECK(other.balance_loss == Approx(one.balance_loss).epsilon(1e-3));
      CHECK(other.z_loss == Approx(one.z_loss).epsilon(1e-3));
      CHECK(other.entropy == Approx(one.entropy).epsilon(1e-3));
      CHECK(other.load == Approx(one.load).epsilon(0.02));
      CHECK(other.dropped == Approx(one.dropped).epsilon(0.05));
    }
  }
}

TEST_CASE("experts in 16 bits stay near fp32") {
  const auto wide = train({});
  for (const char* precision : {"bf16", "fp16"}) {
    const auto found =
        train({std::string("precision.compute=") + precision, "precision.initial_loss_scale=1024"});
    for (std::size_t step = 0; step < wide.size(); ++step) {
      CHECK(found[step].loss == Approx(wide[step].loss).epsilon(0.02));
    }
  }
  const Options split{"precision.compute=bf16", "parallel.tensor_parallel=2",
                      "parallel.sequence_parallel=true", "parallel.expert_parallel=2"};
  Options chunked = split;
  chunked.emplace_back("moe.comp_comm_parallel=true");
  Options shared = chunked;
  shared.emplace_back("moe.group_wise_a2a=true");
  Options wide_sums = shared;
  wide_sums.emplace_back("parallel.force_fp32_communication=true");
  for (const Options& options : {split, chunked, shared, wide_sums}) {
    CHECK(train(options, 4).back().loss == Approx(wide.back().loss).epsilon(0.02));
  }
}

TEST_CASE("experts that no token chooses") {
  // 16 tokens of a micro-batch, 32 experts: some have none in every step.
  const Options many{"moe.num_experts=32", "moe.router_topk=1", "train.micro_batch_size=1"};
  const auto alone = train(many, 1, 4);
  Options split = many;
  split.emplace_back("parallel.expert_parallel=4");
  const auto found = train(split, 4, 4);
  for (std::size_t step = 0; step < alone.size(); ++step) {
    CHECK(found[step].loss == Approx(alone[step].loss).epsilon(1e-4));
  }
}

TEST_CASE("a bias in the choice evens the loads without a loss for it") {
  const Options sigmoid{"moe.num_experts=8", "moe.router_score_function=sigmoid",
                        "moe.router_load_balancing_type=none",
                        "model.init_method_std=0.2"};  // uneven at first
  Options moved = sigmoid;
  moved.insert(moved.end(),
               {"moe.router_enable_expert_bias=true", "moe.router_bias_update_rate=0.02"});
  const auto mean_load = [](const std::vector<StepReport>& reports) {
    double sum = 0;
    for (std::size_t step = reports.size() - 10; step < reports.size(); ++step) {
      sum += reports[step].router->load;
    }
    return sum / 10;
  };
  const double loose = mean_load(train(sigmoid, 1, 60));
  const double even = mean_load(train(moved, 1, 60));
  INFO(loose << ", with the bias " << even);
  CHECK(even < 0.95 * loose);
}

TEST_CASE("biases and shared experts train the same in every layout, and in 16 bits") {
  const Options both{"moe.router_score_function=sigmoid",      "moe.router_enable_expert_bias=true",
                     "moe.router_bias_update_rate=0.02",       "moe.shared_expert_gate=true",
                     "moe.shared_expert_intermediate_size=32", "moe.num_experts=8"};
  const auto alone = train(both, 1, 6);
  for (const Options& layout :
       {Options{"parallel.tensor_parallel=2", "parallel.sequence_parallel=true",
                "parallel.expert_parallel=2"},
        Options{"parallel.expert_parallel=2", "parallel.parallel_optimizer.enable=true",
                "parallel.parallel_optimizer.threshold=0"},
        Options{"parallel.tensor_parallel=2", "parallel.sequence_parallel=true",
                "parallel.expert_parallel=2", "precision.compute=bf16"}}) {
    Options all = both;
    all.insert(all.end(), layout.begin(), layout.end());
    const auto found = train(all, 4, 6);
    const double bound = layout.back() == "precision.compute=bf16" ? 0.02 : 1e-4;
    for (std::size_t step = 0; step < alone.size(); ++step) {
      CHECK(found[step].loss == Approx(alone[step].loss).epsilon(bound));
    }
  }
}

TEST_CASE("the router's losses do what they are for") {
  const auto loose = train({"moe.aux_loss_factor=0.0001"}, 1, 40);
  const auto even = train({"moe.aux_loss_factor=0.5"}, 1, 40);
  CHECK(even.back().router->balance_loss < loose.back().router->balance_loss);
  const auto small = train({"moe.z_loss_factor=0.5"}, 1, 40);
  CHECK(small.back().router->z_loss < loose.back().router->z_loss);
}
