// The router against the cases in tests/reference/router (make_router.py): every file there is
// read.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "catch.h"
#include "config/read/read.h"
#include "device/slab.h"
#include "nn/experts.h"
#include "ops/kernels.h"
#include "ops/router.h"

using namespace trainctl;

namespace {

using Json = nlohmann::json;
using Row = std::vector<std::vector<double>>;

constexpr double weight_bound = 1e-6;
constexpr double loss_bound = 1e-6;   // of the loss
constexpr double slope_bound = 1e-5;  // of the largest
constexpr double min_slope = 1e-8;

/// The router of a configuration with these words of the section moe.
RouterRule rule_of(const Json& test) {
  const std::string text =
      "model: {family: llama, num_layers: 1, hidden_size: 8, "
      "num_attention_heads: 1, seq_length: 8, vocab_size: 8}\n"
      "data: {train: none}\ntrain: {steps: 1, global_batch_size: 1}\n"
      "lr_schedule: {max_lr: 0.1}\nmoe: " +
      test.at("moe").dump();
  const ReadResult read =
      read_config_text(text, "case", {"moe.expert_group_size=" + test.at("group").dump()}, {});
  INFO(render_text(read.diagnostics, false));
  REQUIRE(!read.diagnostics.has_errors());
  return router_rule(model_shape(read.config.model, read.config.moe));
}

/// The tensors of a router on one rank.
struct RoutedCase {
  explicit RoutedCase(const Json& test)
      : rule(rule_of(test)),
        tokens(std::ssize(test.at("logits"))),
        experts(std::ssize(test.at("logits").at(0))),
        topk(std::ssize(test.at("chosen").at(0))),
        memory(DeviceKind::cpu,
               {{"logits", {tokens, experts}, DType::f32},
                {"d_logits", {tokens, experts}, DType::f32},
                {"chosen", {tokens, topk}, DType::i32},
                {"weight", {tokens, topk}, DType::f32},
                {"slot", {tokens, topk}, DType::i32},
                {"choices", {tokens / rule.group * rule.choice.counted(topk), experts}, DType::i32},
                {"counts", {experts}, DType::i64},
                {"sums", {router_sums + experts}, DType::f32}}) {
    const Row logits = test.at("logits").get<Row>();
    float* to = at("logits").as<float>();
    for (const auto& row : logits) to = std::copy(row.begin(), row.end(), to);
    state.token_factor = 1.0F / static_cast<float>(tokens);
    run();
  }

  Tensor at(const std::string& name) const { return memory.at(name); }

  void run() {
    const OpContext ops{.kernels = &cpu_kernels(), .stream = &stream};
    router_forward(ops, {.logits = at("logits"),
                         .group = rule.group,
                         .capacity = rule.capacity,
                         .choice = rule.choice,
                         .chosen = at("chosen"),
                         .weight = at("weight"),
                         .slot = at("slot"),
                         .choices = at("choices"),
                         .counts = at("counts")});
    const RouterLosses losses{.logits = at("logits"),
                              .chosen = at("chosen"),
                              .group = rule.group,
                              .choice = rule.choice,
                              .choices = at("choices"),
                              .balance_factor = has_balance() ? 1.0F : 0.0F,
                              .d_logits = at("d_logits"),
                              .state = &state,
                              .sums = at("sums")};
    router_losses(ops, losses);
    router_statistics(ops, losses);
  }

  bool has_balance() const { return rule.balance_factor > 0; }
  double balance_loss() const {
    const float sum = at("sums").as<float>()[static_cast<int>(RouterSum::balance)];
    return has_balance() ? static_cast<double>(sum) / static_cast<double>(tokens) : 0;
  }

  RouterRule rule;
  std::int64_t tokens, experts, topk;
  Slab memory;
  Stream stream{DeviceKind::cpu, "compute", Stream::Mode::run_inline};
  StepState state;
};

/// The largest difference from a matrix, and its largest value.
std::pair<double, double> difference(const Tensor& found, const Row& expected) {
  double most = 0;
  double largest = 0;
  const float* value = found.as<float>();
  for (const auto& row : expected) {
    for (const double one : row) {
      most = std::max(most, std::abs(static_cast<double>(*value++) - one));
      largest = std::max(largest, std::abs(one));
    }
  }
  return {most, largest};
}

void check_case(const Json& test) {
  const RoutedCase routed(test);
  std::vector<std::vector<int>> chosen;
  std::vector<std::vector<int>> kept;
  for (std::int64_t t = 0; t < routed.tokens; ++t) {
    chosen.emplace_back();
    kept.emplace_back();
    for (std::int64_t j = 0; j < routed.topk; ++j) {
      const std::int32_t one = routed.at("chosen").as<std::int32_t>()[t * routed.topk + j];
      chosen.back().push_back(one < 0 ? ~one : one);
      kept.back().push_back(one < 0 ? 0 : 1);
    }
  }
  CHECK(chosen == test.at("chosen").get<std::vector<std::vector<int>>>());
  CHECK(kept == test.at("kept").get<std::vector<std::vector<int>>>());
  CHECK(difference(routed.at("weight"), test.at("weights").get<Row>()).first <= weight_bound);
  const double loss = test.at("balance_loss").get<double>();
  CHECK(std::abs(routed.balance_loss() - loss) <= loss_bound * std::abs(loss));
  const auto [slope, largest] = difference(routed.at("d_logits"), test.at("d_logits").get<Row>());
  CHECK(slope <= std::max(min_slope, slope_bound * largest));
}

}  // namespace

TEST_CASE("a router does what the reference cases say") {
  const std::filesystem::path folder = TRAINCTL_SOURCE_DIR "/tests/reference/router";
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    std::ifstream file(entry.path());
    const Json cases = Json::parse(file).at("cases");
    for (std::size_t i = 0; i < cases.size(); ++i) {
      INFO(entry.path().filename().string() + ", case " + std::to_string(i));
      check_case(cases[i]);
    }
    count += cases.size();
  }
  CHECK(count >= 40);
}
