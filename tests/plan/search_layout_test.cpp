// From a configuration with auto_parallel to the one that was found.
#include "catch.h"
#include "config/schema/words.h"
#include "plan/rules/check.h"
#include "plan/search/search.h"
#include "sample.h"

using namespace trainctl;

namespace {

struct Found {
  std::optional<SearchReport> report;
  Diagnostics diagnostics;
  Config config;
};

template <class Change>
Found found(std::int64_t ranks, Change change, std::optional<std::int64_t> tensor_parallel = {}) {
  Found result;
  Config config = small_config();
  config.parallel.parallel_mode = ParallelMode::auto_parallel;
  change(config);
  SourceMap sources;
  Check check(sources, result.diagnostics);
  const Site site = site_of(ranks);
  result.report = search_by_rule(
      {.config = config,
       .sources = sources,
       .site = site,
       .given = given_splits(config.parallel.operator_splits, config.model.num_layers),
       .tensor_parallel = tensor_parallel},
      check);
  if (result.report) take_answer(*result.report, config, sources);
  result.config = config;
  return result;
}

Extents parts_in(const SearchReport& report, const std::string& name) {
  for (const StageSearch& stage : report.stages) {
    for (std::size_t product = 0; product < stage.net.products.size(); ++product) {
      if (stage.net.products[product].name == name) return stage.parts[product];
    }
  }
  throw std::logic_error("no product " + name);
}

}  // namespace

TEST_CASE("the answer is a configuration of semi_auto_parallel that rules accept", "[search]") {
  const Found one = found(4, [](Config& c) {
    c.model.hidden_size = 1024;
    c.train.global_batch_size = 2;
  });
  REQUIRE(one.report);
  const ParallelConfig& parallel = one.config.parallel;
  CHECK(parallel.parallel_mode == ParallelMode::semi_auto_parallel);
  CHECK(parallel.search_mode == SearchMode("recursive_programming"));
  CHECK(parallel.tensor_parallel == one.report->tensor_parallel);
  CHECK(parallel.operator_splits.embedding == parallel.operator_splits.head);
  CHECK_NOTHROW(plan_of(one.config, 4));
}

TEST_CASE("data parallelism alone writes no words", "[search]") {
  const Found one = found(4, [](Config&) {});
  REQUIRE(one.report);
  CHECK(one.report->tensor_parallel == 1);
  CHECK(one.config.parallel.operator_splits == OperatorSplitsConfig{});
  CHECK(one.report->notes.empty());
}

TEST_CASE("data_parallel divides the batch, and what is given decides", "[search]") {
  const auto few = [](Config& c) { c.train.global_batch_size = 2; };
  const Found grown = found(8, few);
  REQUIRE(grown.report);
  CHECK(grown.report->data_parallel == 2);
  CHECK(grown.report->tensor_parallel == 4);
  CHECK(grown.report->notes.front() ==
        "tensor_parallel (4) is more than the 1 of the rounds: global_batch_size / micro_batch_num "
        "/ micro_batch_size (2) must be divisible by data_parallel, and is not by 8");
  const Found given = found(8, few, 8);
  REQUIRE(given.report);
  CHECK(given.report->tensor_parallel == 8);
  CHECK(given.report->data_parallel == 1);
  const Found data = found(8, [](Config& c) { c.parallel.data_parallel = 4; });
  REQUIRE(data.report);
  CHECK(data.report->tensor_parallel == 2);
  const Found both = found(8, [](Config& c) {
    c.train.global_batch_size = 16;
    c.train.micro_batch_num = 2;
    c.train.micro_batch_size = 4;
  });
  REQUIRE(both.report);
  CHECK(both.report->data_parallel == 2);
}

TEST_CASE("the rows of a product are the sequences of a micro-batch on the stage", "[search]") {
  const auto rows = [](auto change) {
    const Found one = found(4, change);
    REQUIRE(one.report);
    return one.report->stages.front().net.products.front().extents.i / 64;
  };
  CHECK(rows([](Config&) {}) == 12);
  CHECK(rows([](Config& c) { c.train.micro_batch_num = 3; }) == 4);
  CHECK(rows([](Config& c) { c.train.micro_batch_size = 1; }) == 4);
  CHECK(rows([](Config& c) { c.train.micro_batch_size = 100; }) == 12);
  CHECK(rows([](Config& c) { c.parallel.pipeline_stages = 2; }) == 2);
  CHECK(rows([](Config& c) { c.parallel.context_parallel = 2; }) == 6);
}

TEST_CASE("each stage is searched alone, over its own ranks", "[search]") {
  const Found one = found(8, [](Config& c) { c.parallel.pipeline_stages = 2; });
  REQUIRE(one.report);
  CHECK(one.report->ranks == 4);
  REQUIRE(one.report->stages.size() == 2);
  const SearchNet& first = one.report->stages[0].net;
  const SearchNet& second = one.report->stages[1].net;
  CHECK(first.products.front().name == "layers.0.attention.q");
  CHECK(second.products.front().name == "layers.2.attention.q");
  CHECK(second.products.back().name == "head");
  CHECK(first.data == Shape{4, 64});
  CHECK(second.data == Shape{256, 128});
  // The parts of i are at most the number of sequences.
  CHECK(parts_in(*one.report, "layers.0.attention.q").i <= 4);
}

TEST_CASE("experts are in no net, and need the size of their groups", "[search]") {
  const auto experts = [](Config& c) {
    c.moe.num_experts = 4;
    c.moe.first_dense_layers = 2;
    c.moe.expert_group_size = 64;
  };
  const Found one = found(4, experts);
  REQUIRE(one.report);
  for (const SearchProduct& product : one.report->stages.front().net.products) {
    CHECK_FALSE(product.name.starts_with("layers.2.mlp"));
  }
  CHECK_FALSE(one.report->splits.feed_forward[2]);
  const Found none = found(4, [&](Config& c) {
    experts(c);
    c.moe.expert_group_size.reset();
  });
  CHECK_FALSE(none.report);  // a rule of experts says it
}

TEST_CASE("given splits are fixed products", "[search]") {
  const auto tokens = [](Config& c) { c.parallel.operator_splits.attention = "tokens"; };
  const Found one = found(4, tokens, 2);
  REQUIRE(one.report);
  for (const char* name : {"q", "k", "v", "out"}) {
    CHECK(parts_in(*one.report, std::string("layers.1.attention.") + name) == Extents{.i = 4});
  }
  CHECK(one.config.parallel.operator_splits.attention == "tokens");
  const Found lost = found(4, tokens);
  REQUIRE(lost.diagnostics.list().size() == 1);
  CHECK(lost.diagnostics.list()[0].code == "search-operator");
  CHECK(lost.diagnostics.list()[0].path == "parallel.operator_splits");
  CHECK(lost.diagnostics.list()[0].message ==
        "splits that are given need tensor_parallel: by features, 4 ranks may be cut in any number "
        "of parts");
}

TEST_CASE("sharding_propagation needs a configured operator and its ranks", "[search]") {
  const auto spread = [](Config& c) { c.parallel.search_mode = "sharding_propagation"; };
  const Found none = found(4, spread, 2);
  REQUIRE(none.diagnostics.list().size() == 1);
  CHECK(none.diagnostics.list()[0].code == "search-operator");
  CHECK(none.diagnostics.list()[0].path == "parallel.search_mode");
  const auto configured = [&](Config& c) {
    spread(c);
    c.model.tie_word_embeddings = false;
    c.parallel.operator_splits.feed_forward = "features";
  };
  CHECK(found(4, configured).diagnostics.list()[0].message ==
        "splits that are given need tensor_parallel: the ranks that share an operator");
  const Found one = found(4, configured, 2);
  REQUIRE(one.report);
  const OperatorSplitsConfig& words = one.config.parallel.operator_splits;
  CHECK(words.embedding == SplitBy::whole);
  CHECK(words.attention == "whole, features*3");
  CHECK(words.feed_forward == "features");
  CHECK(words.head == SplitBy::features);
  // A tied table has one split.
  const Found tied = found(
      4,
      [&](Config& c) {
        configured(c);
        c.model.tie_word_embeddings = true;
      },
      2);
  CHECK(tied.config.parallel.operator_splits.embedding == SplitBy::features);
}

TEST_CASE("a note names the products that a word divides otherwise", "[search]") {
  const Found one = found(8, [](Config& c) {
    c.model.hidden_size = 1024;
    c.train.global_batch_size = 2;
  });
  REQUIRE(one.report);
  const auto named = [&](const std::string& begin) {
    return std::any_of(one.report->notes.begin(), one.report->notes.end(),
                       [&](const std::string& note) { return note.starts_with(begin); });
  };
  CHECK(named("search-merged: attention: q (4,1,2) becomes (2,1,4) with features"));
}
