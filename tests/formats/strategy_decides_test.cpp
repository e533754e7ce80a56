// Strategy files that decide how operators are split: what a plan wrote gives the same plan, and
// what does not fit is named with its place.
#include <algorithm>

#include "catch.h"
#include "config/schema/words.h"
#include "formats/strategy/requested_files.h"
#include "plan/sample.h"

using namespace trainctl;

namespace {

Config by_operator(bool sequence_parallel = true) {
  Config config = small_config();
  config.parallel.parallel_mode = ParallelMode::semi_auto_parallel;
  config.parallel.tensor_parallel = 2;
  config.parallel.sequence_parallel = sequence_parallel;
  return config;
}

std::string file_of(const Config& config) {
  return write_layouts(make_layout_file(plan_of(config, 2), config.parallel, nullptr), true);
}

/// `config` with what the text decides.
Diagnostics decided(const std::string& text, Config& config, SourceMap& sources) {
  Diagnostics diagnostics;
  const PlacementFile layouts = read_layouts(text, true);
  decide_splits({"s.json", text, layouts}, Mesh{.tp = 2}, model_shape(config.model), config,
                sources, diagnostics);
  return diagnostics;
}

Diagnostics decided(const std::string& text, Config config) {
  SourceMap sources;
  return decided(text, config, sources);
}

/// The text with the operator of one line as that of another file.
std::string with_operator(std::string text, const std::string& name, const std::string& other) {
  const auto line_of = [&](const std::string& file) {
    const std::size_t begin = file.find("\"" + name + "\"");
    REQUIRE(begin != std::string::npos);
    return std::pair(begin, file.find('}', begin) - begin);
  };
  const auto [begin, length] = line_of(text);
  const auto [from, count] = line_of(other);
  return text.replace(begin, length, other.substr(from, count));
}

}  // namespace

TEST_CASE("a file decides the splits that it was written with", "[strategy]") {
  for (const bool sequence_parallel : {false, true}) {
    Config config = by_operator(sequence_parallel);
    OperatorSplitsConfig& splits = config.parallel.operator_splits;
    splits.attention = "tokens*2, whole, features";
    splits.feed_forward = "whole, tokens, features*2";
    splits.embedding = splits.head = SplitBy::whole;
    const OperatorSplitsConfig said = splits;
    const std::string text = file_of(config);
    const std::uint64_t hash = plan_of(config, 2).hash;
    splits = {};
    SourceMap sources;
    CHECK(decided(text, config, sources).list().empty());
    CHECK(config.parallel.operator_splits == said);
    CHECK(plan_of(config, 2).hash == hash);
    CHECK(file_of(config) == text);
    const Place place = sources.find("parallel.operator_splits.attention");
    CHECK(place.file == "s.json");
    CHECK(place.line > 1);
    CHECK(decided(text, config).list().empty());  // the same twice
  }
}

TEST_CASE("keys that ranks share follow the queries", "[strategy]") {
  Config config = by_operator();
  config.model.num_query_groups = 1;
  const std::string text = file_of(config);
  SourceMap sources;
  CHECK(decided(text, config, sources).list().empty());
  CHECK(config.parallel.operator_splits.attention == "features");
}

TEST_CASE("products of one operator in two splits are named with the tensor between",
          "[strategy]") {
  Config config = by_operator();
  const std::string features = file_of(config);
  config.parallel.operator_splits.feed_forward = "tokens";
  config.parallel.operator_splits.attention = "whole";
  const std::string tokens = file_of(config);
  config.parallel.operator_splits = {};

  const std::string text = with_operator(features, "layers.1.mlp.down", tokens);
  const Diagnostics mlp = decided(text, config);
  REQUIRE(mlp.list().size() == 1);
  const Diagnostic& found = mlp.list()[0];
  const auto line = [&](const char* name) {
    return std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(text.find(name)),
                      '\n') +
           1;
  };
  CHECK(found.code == "strategy-operators");
  CHECK(found.place.position() == "s.json:" + std::to_string(line("\"layers.1.mlp.down\"")) + ":5");
  CHECK(found.message ==
        "operator 'layers.1.mlp.down' has the split tokens, but 'layers.1.mlp.up' (s.json:" +
            std::to_string(line("\"layers.1.mlp.up\"")) +
            ":5) the split features: the tensor between them, layers.1.mlp.act, stays where it is "
            "made");
  CHECK(found.help == "give both the same split");

  const Diagnostics attention =
      decided(with_operator(features, "layers.0.attention.k", tokens), config);
  REQUIRE(attention.list().size() == 1);
  CHECK(attention.list()[0].message.find("layers.0.attention.context") != std::string::npos);
}

TEST_CASE("an operator in none of the splits", "[strategy]") {
  const Config config = by_operator();
  std::string text = file_of(config);
  const std::string from = "\"layers.0.mlp.up\": {\"stage\":0,\"parallel_strategy\":[[1,1,1]";
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  text.replace(at + from.size() - 4, 1, "3");
  const Diagnostics found = decided(text, config);
  REQUIRE(found.list().size() == 1);
  CHECK(found.list()[0].message ==
        "operator 'layers.0.mlp.up' splits its inputs [[1,3,1], [2,1], [2]], which is none of the "
        "splits of 2 ranks: a cut weight, whole weights with 2 parts of the tokens, or with 1");
}

TEST_CASE("what the configuration says must agree with the file", "[strategy]") {
  Config config = by_operator();
  const std::string text = file_of(config);
  config.parallel.operator_splits.attention = "features*4";
  CHECK(decided(text, config).list().empty());
  config.parallel.operator_splits.attention = "features*3, tokens";
  const Diagnostics found = decided(text, config);
  REQUIRE(found.list().size() == 1);
  CHECK(found.list()[0].path == "parallel.operator_splits.attention");
  CHECK(found.list()[0].message.starts_with("it contradicts s.json:"));
  CHECK(found.list()[0].message.ends_with(
      "where 'layers.0.attention.q' and its like have the split features"));
}
