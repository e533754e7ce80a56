// Answers of dynamic_programming compared with every layout of its space, planned one by one, and
// with MindSpore's answers.
#include "plan/prepare/search_by_seconds.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/at.h"
#include "catch.h"
#include "plan/prepare/split_space.h"
#include "plan/rules/check.h"
#include "sample.h"
#include "thorough.h"

using namespace trainctl;

namespace {

constexpr double gibibyte_of_test = 1 << 30;

Config searched_config() {
  Config config = small_config();
  config.model.num_layers = 2;
  config.train.global_batch_size = 4;
  config.parallel.parallel_mode = ParallelMode::auto_parallel;
  config.parallel.search_mode = "dynamic_programming";
  config.cluster.device = "cpu-avx2";
  return config;
}

struct Answer {
  std::optional<SearchReport> report;
  Diagnostics diagnostics;
};

Answer answer_of(const Config& config, std::int64_t ranks,
                 std::optional<std::int64_t> tensor_parallel = {}) {
  Answer answer;
  const SourceMap sources;
  const Site site = site_of(ranks);
  Check check(sources, answer.diagnostics);
  answer.report = search_by_seconds(
      {.config = config,
       .sources = sources,
       .site = site,
       .given = given_splits(config.parallel.operator_splits, config.model.num_layers),
       .tensor_parallel = tensor_parallel},
      check);
  return answer;
}

struct Planned {
  double seconds = 0;
  std::int64_t bytes = 0;
  bool mixed = false;  // some layers have other words than the rest
};

/// The plan of the layout written by hand; none where rules refuse it.
std::optional<Planned> planned(Config config, std::int64_t ranks, std::int64_t tensor_parallel,
                               const SearchedSplits& splits) {
  config.parallel.parallel_mode = ParallelMode::semi_auto_parallel;
  config.parallel.search_mode = {};
  config.parallel.tensor_parallel = tensor_parallel;
  if (tensor_parallel > 1) config.parallel.operator_splits = splits_config(splits);
  Diagnostics diagnostics;
  const Plan plan = make_plan(config, site_of(ranks), SourceMap{}, diagnostics);
  if (diagnostics.has_errors()) return std::nullopt;
  const bool mixed = plan.splits.attention_text().find('*') != std::string::npos ||
                     plan.splits.attention_text().find(',') != std::string::npos ||
                     plan.splits.feed_forward_text().find(',') != std::string::npos;
  return Planned{plan.time->step(), plan.max_memory().device(), mixed};
}

/// Every layout in which the first layers have one pair of words and the others another.
std::vector<Planned> all_planned(const Config& config, std::int64_t ranks) {
  std::vector<Planned> all;
  const ModelShape model = model_shape(config.model);
  for (std::int64_t size = 1; size <= ranks; ++size) {
    if (ranks % size != 0) continue;
    const SplitSpace space = split_space(model, no_splits(model.layers), size);
    const std::size_t pairs = space.groups.front().choices.size();
    for (std::size_t ends = 0; ends < space.ends.size(); ++ends) {
      for (std::size_t first = 0; first < pairs; ++first) {
        for (std::size_t rest = 0; rest < pairs; ++rest) {
          const std::int64_t most = first == rest ? 1 : model.layers - 1;
          for (std::int64_t count = 1; count <= most; ++count) {
            const SplitChoices layout{size, ends, {{first, rest, count}}};
            const auto one = planned(config, ranks, size, space.splits(layout));
            if (one) all.push_back(*one);
          }
        }
      }
    }
  }
  return all;
}

double min_within(const std::vector<Planned>& all, std::int64_t bytes) {
  double least = std::numeric_limits<double>::infinity();
  for (const Planned& one : all) {
    if (one.bytes <= bytes) least = std::min(least, one.seconds);
  }
  return least;
}

}  // namespace

TEST_CASE("the answer of dynamic_programming is the least of all layouts that fit", "[search]") {
  Config config = searched_config();
  struct Net {
    std::int64_t ranks, layers;
  };
  std::vector<Net> nets = {{2, 2}};
  if (thorough()) nets = {{2, 2}, {4, 2}, {4, 4}, {16, 3}};
  for (const Net& net : nets) {
    config.model.num_layers = net.layers;
    config.train.global_batch_size = net.ranks;
    config.cluster.device_memory.reset();
    const std::vector<Planned> all = all_planned(config, net.ranks);
    REQUIRE(all.size() > 10);
    const auto by_bytes = [](const Planned& a, const Planned& b) { return a.bytes < b.bytes; };
    const std::int64_t leanest = std::ranges::min_element(all, by_bytes)->bytes;
    const std::int64_t largest = std::ranges::max_element(all, by_bytes)->bytes;
    for (const std::int64_t bytes : {largest, leanest + (largest - leanest) / 4, leanest}) {
      config.cluster.device_memory = static_cast<double>(bytes) / gibibyte_of_test;
      const Answer answer = answer_of(config, net.ranks);
      INFO(net.ranks << " ranks, " << bytes << " bytes of " << leanest << " to " << largest);
      REQUIRE(answer.report);
      const SecondsSearch& found = *answer.report->by_seconds;
      CHECK(found.gap == 0);
      CHECK(found.bytes <= bytes);
      CHECK(found.seconds == min_within(all, bytes));
      const auto repeated =
          planned(config, net.ranks, answer.report->tensor_parallel, answer.report->splits);
      REQUIRE(repeated);
      CHECK(repeated->seconds == found.seconds);
      CHECK(repeated->bytes == found.bytes);
    }
  }
}

TEST_CASE("dynamic_programming is never slower than MindSpore's answer", "[search]") {
  std::ifstream stream(TRAINCTL_TEST_DIR "/searches/by_seconds.json");
  const nlohmann::json file = nlohmann::json::parse(stream);
  int said = 0;
  for (const auto& one : file["cases"]) {
    const std::int64_t ranks = one["devices"];
    Config config = searched_config();
    config.model.num_layers = 1;
    config.model.hidden_size = one["h"];
    config.model.num_attention_heads = one["heads"];
    config.model.ffn_hidden_size = one["f"];
    config.model.seq_length = one["s"];
    config.train.global_batch_size = one["b"];
    const Answer answer = answer_of(config, ranks);
    INFO(one.dump());
    REQUIRE(answer.report);
    const double seconds = answer.report->by_seconds->seconds;
    CHECK(answer.report->by_seconds->gap == 0);
    // Where words cannot say MindSpore's answer, ours is compared with what words can say.
    for (const SplitBy word : {SplitBy::features, SplitBy::tokens, SplitBy::whole}) {
      for (const std::int64_t size : {std::int64_t{2}, ranks}) {
        SearchedSplits same = no_splits(1);
        same.attention[0] = same.feed_forward[0] = word;
        const auto other = planned(config, ranks, size, same);
        if (other) CHECK(seconds <= other->seconds);
      }
    }
    if (thorough()) CHECK(seconds == min_within(all_planned(config, ranks), 1LL << 50));
    // All six products cut by rows alone are data parallelism, or by tokens.
    const bool rows = std::ranges::all_of(one["products"], [&](const auto& parts) {
      return parts == nlohmann::json::array({ranks, 1, 1});
    });
    if (!rows) continue;
    ++said;
    SearchedSplits tokens = no_splits(1);
    tokens.attention[0] = tokens.feed_forward[0] = SplitBy::tokens;
    for (const std::int64_t size : {std::int64_t{1}, ranks}) {
      const auto theirs = planned(config, ranks, size, tokens);
      if (theirs) CHECK(seconds <= theirs->seconds);
    }
  }
  CHECK(said == 3);
}

TEST_CASE("layers of one kind are mixed whether or not memory binds", "[search]") {
  Config config = searched_config();
  config.model.num_layers = 8;
  config.model.hidden_size = 512;
  config.model.seq_length = 1024;
  config.train.micro_batch_size = 1;
  config.parallel.sequence_parallel = true;
  double before = std::numeric_limits<double>::infinity();
  std::size_t mixed = 0;
  for (const double memory : {0.45, 0.5}) {
    config.cluster.device_memory = memory;
    const Answer answer = answer_of(config, 4, 2);
    REQUIRE(answer.report);
    const SecondsSearch& found = *answer.report->by_seconds;
    CHECK(found.gap == 0);
    CHECK(found.seconds <= before);
    before = found.seconds;
    const auto& words = answer.report->splits.feed_forward;
    if (std::ranges::count(words, words.front()) < std::ssize(words)) ++mixed;
  }
  CHECK(mixed == 2);
}

TEST_CASE("where forms are picked layers are mixed too, and the key that binds is named",
          "[search]") {
  Config config = searched_config();
  config.train.micro_batch_size = 2;
  config.recompute.enable = true;
  config.recompute.select = "auto";
  config.cluster.device_memory = 8;
  config.recompute.memory_limit = 0.001;
  const Answer lost = answer_of(config, 2);
  CHECK_FALSE(lost.report);
  REQUIRE(lost.diagnostics.list().size() == 1);
  const Diagnostic& told = lost.diagnostics.list()[0];
  CHECK(told.code == "search-space-empty");
  CHECK(told.help.find("cluster.device_memory") == std::string::npos);
  const std::string key = "it fits with recompute.memory_limit: ";
  REQUIRE(told.help.starts_with(key));
  config.recompute.memory_limit = std::stod(told.help.substr(key.size()));
  const Answer answer = answer_of(config, 2);
  REQUIRE(answer.report);
  CHECK(answer.report->by_seconds->bytes <= *config.recompute.memory_limit * gibibyte_of_test);
  if (!thorough()) return;
  CHECK(answer.report->by_seconds->gap == 0);
  CHECK(answer.report->by_seconds->seconds == min_within(all_planned(config, 2), 1LL << 40));
}

TEST_CASE("each decision names the fastest layout in which it is otherwise", "[search]") {
  const Answer answer = answer_of(searched_config(), 4, 2);
  REQUIRE(answer.report);
  CHECK(answer.report->tensor_parallel == 2);
  CHECK(answer.report->data_parallel == 2);
  const auto& others = answer.report->by_seconds->others;
  REQUIRE(others.size() == 3);  // one size is given, and the tables are one
  CHECK(others[0].of == "embedding");
  CHECK(others[1].of == "attention");
  CHECK(others[2].of == "feed_forward");
  for (const OtherDecision& one : others) {
    CHECK(one.taken != one.otherwise);
    CHECK(one.seconds >= answer.report->by_seconds->seconds);
    CHECK_FALSE(one.at_least);
  }
}

TEST_CASE("another tensor_parallel is compared by a search in which it is given", "[search]") {
  const Answer answer = answer_of(searched_config(), 2);
  REQUIRE(answer.report);
  const OtherDecision& other = answer.report->by_seconds->others.front();
  REQUIRE(other.of == "tensor_parallel");
  const Answer given = answer_of(searched_config(), 2, std::stoll(other.otherwise));
  REQUIRE(given.report);
  CHECK(other.fits);
  CHECK_FALSE(other.at_least);
  CHECK(other.seconds == given.report->by_seconds->seconds);
}

TEST_CASE("words that are given stay, and need the ranks that share", "[search]") {
  Config config = searched_config();
  config.parallel.operator_splits.attention = "tokens, whole";
  const Answer answer = answer_of(config, 4, 2);
  REQUIRE(answer.report);
  CHECK(splits_config(answer.report->splits).attention == "tokens, whole");
  const Answer lost = answer_of(config, 4);
  CHECK_FALSE(lost.report);
  REQUIRE(lost.diagnostics.list().size() == 1);
  CHECK(lost.diagnostics.list()[0].code == "search-operator");
}

TEST_CASE("experts need the size of their groups for a search by seconds", "[search]") {
  Config config = searched_config();
  config.moe.num_experts = 4;
  config.moe.first_dense_layers = 1;
  CHECK_FALSE(answer_of(config, 2).report);  // a rule of experts says it
  config.moe.expert_group_size = 64;
  const Answer answer = answer_of(config, 2, 2);
  REQUIRE(answer.report);
  CHECK(answer.report->splits.feed_forward[0]);
  CHECK_FALSE(answer.report->splits.feed_forward[1]);
}

TEST_CASE("without a device the prices are those of one that every host has", "[search]") {
  Config config = searched_config();
  config.cluster.device.reset();
  config.cluster.matmul_flops = config.cluster.memory_bandwidth = 1e9;
  const Answer answer = answer_of(config, 2);
  REQUIRE(answer.report);
  CHECK(answer.report->by_seconds->device == "two cores of an EPYC with AVX2");
  REQUIRE(answer.diagnostics.list().size() == 1);
  CHECK(answer.diagnostics.list()[0].code == "search-default-device");
  CHECK(answer.diagnostics.list()[0].message ==
        "without cluster.device the search takes the prices of cpu-avx2, on every host the same");
}

TEST_CASE("where no layout fits the one that needs least is named, with a limit that works",
          "[search]") {
  Config config = searched_config();
  config.cluster.device_memory = 0.001;
  const Answer answer = answer_of(config, 2);
  CHECK_FALSE(answer.report);
  REQUIRE(answer.diagnostics.list().size() == 1);
  const Diagnostic& told = answer.diagnostics.list()[0];
  CHECK(told.code == "search-space-empty");
  CHECK(told.path == "parallel.search_mode");
  CHECK(told.message.starts_with("no layout of 2 ranks fits in 0.001 GiB: tensor_parallel 2"));
  const std::string key = "cluster.device_memory: ";
  const std::size_t at_key = told.help.find(key);
  REQUIRE(at_key != std::string::npos);
  config.cluster.device_memory = std::stod(told.help.substr(at_key + key.size()));
  CHECK(answer_of(config, 2).report);
}

TEST_CASE("a search of several stages is left to the rule that refuses it", "[search]") {
  Config config = searched_config();
  config.parallel.pipeline_stages = 2;
  const Answer answer = answer_of(config, 2);
  CHECK_FALSE(answer.report);
  CHECK(answer.diagnostics.list().empty());
}
