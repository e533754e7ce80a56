#include "plan/rules/place_layers.h"

#include <algorithm>
#include <functional>

#include "catch.h"
#include "plan/rules/check.h"
#include "sample.h"

using namespace trainctl;

namespace {

using Counts = std::vector<std::int64_t>;

struct Made {
  StageMap map;
  Diagnostics found;

  bool has_error(const std::string& code, const std::string& path, const std::string& text) const {
    return std::any_of(found.list().begin(), found.list().end(), [&](const Diagnostic& one) {
      return one.severity == Severity::error && one.code == code &&
             one.path == "parallel." + path && one.message.find(text) != std::string::npos &&
             !one.help.empty();
    });
  }
  std::string shown() const {
    std::string text;
    for (const Diagnostic& one : found.list()) {
      text += one.code + " " + one.path + ": " + one.message + "\n    " + one.help + "\n";
    }
    return text;
  }
};

using Change = std::function<void(PipelineConfig&)>;

Config staged(std::int64_t layers, std::int64_t stages, std::int64_t chunks) {
  Config config = small_config();
  config.model.num_layers = layers;
  config.parallel.pipeline_stages = stages;
  config.parallel.virtual_pipeline_stages = chunks;
  return config;
}

Made made(const Config& config, const SourceMap& sources = {}) {
  Made result;
  Check check(sources, result.found);
  result.map = make_stage_map(config, check);
  CHECK(result.map.all.empty() == result.found.has_errors());
  return result;
}

Made made(std::int64_t layers, std::int64_t stages, std::int64_t chunks, const Change& change) {
  Config config = staged(layers, stages, chunks);
  change(config.parallel.pipeline);
  return made(config);
}

/// Layers of the chunks in model order, after what holds for every map was checked.
Counts counts_of(const StageMap& map, std::int64_t layers) {
  Counts counts;
  std::int64_t layer = 0;
  int unit = 0;
  for (int chunk = 0; chunk < map.chunks; ++chunk) {
    for (int stage = 0; stage < map.stages; ++stage) {
      const UnitRange& held = map.at(stage, chunk);
      const std::int64_t count = count_blocks(held, layers);
      const bool first = chunk == 0 && stage == 0;
      const bool last = chunk == map.chunks - 1 && stage == map.stages - 1;
      REQUIRE(blocks_in(held, layers).begin == layer + 1);
      REQUIRE(held.holds(0) == first);
      REQUIRE(held.holds(head_unit(layers)) == last);
      REQUIRE(held.begin == unit);
      REQUIRE(held.end - held.begin == count + (first ? 1 : 0) + (last ? 1 : 0));
      layer += count;
      unit = held.end;
      counts.push_back(count);
    }
  }
  REQUIRE(layer == layers);
  REQUIRE(unit == layers + 2);
  return counts;
}

Counts counts_of(
    std::int64_t layers, std::int64_t stages, std::int64_t chunks,
    const Change& change = [](PipelineConfig&) {}) {
  const Made result = made(layers, stages, chunks, change);
  INFO(result.shown());
  REQUIRE_FALSE(result.found.has_errors());
  return counts_of(result.map, layers);
}

Change ends(std::optional<std::int64_t> first, std::optional<std::int64_t> last) {
  return [=](PipelineConfig& pipeline) {
    pipeline.first_stage_layers = first;
    pipeline.last_stage_layers = last;
  };
}
Change accounts(bool embedding, bool loss) {
  return [=](PipelineConfig& pipeline) {
    pipeline.account_for_embedding = embedding;
    pipeline.account_for_loss = loss;
  };
}
Change layout(const std::string& text) {
  return [=](PipelineConfig& pipeline) { pipeline.layout = text; };
}
Change offset(const IntList& numbers) {
  return [=](PipelineConfig& pipeline) { pipeline.offset = numbers; };
}

}  // namespace

TEST_CASE("even stages and chunks", "[stage_map]") {
  CHECK(counts_of(4, 1, 1) == Counts{4});
  CHECK(counts_of(8, 4, 1) == Counts{2, 2, 2, 2});
  CHECK(counts_of(16, 2, 4) == Counts{2, 2, 2, 2, 2, 2, 2, 2});
  const Made interleaved = made(staged(16, 4, 2));
  CHECK(interleaved.map.at(1, 0).begin == 3);
  CHECK(interleaved.map.at(1, 1).begin == 11);
}

TEST_CASE("layers that cannot be cut evenly", "[stage_map]") {
  const auto plain = [](PipelineConfig&) {};
  const Made stages = made(10, 4, 1, plain);
  CHECK(stages.has_error("stage-layers", "pipeline_stages",
                         "10 layers must be divisible by pipeline_stages (4)"));
  CHECK(stages.found.list().front().help.find("1, 2, 5 or 10") != std::string::npos);
  CHECK(made(8, 4, 3, plain)
            .has_error("chunk-layers", "virtual_pipeline_stages",
                       "8 layers / 4 stages) must be divisible by virtual_pipeline_stages (3)"));
}

TEST_CASE("embedding and loss as layers", "[stage_map]") {
  CHECK(counts_of(7, 4, 1, accounts(true, false)) == Counts{1, 2, 2, 2});
  CHECK(counts_of(7, 4, 1, accounts(false, true)) == Counts{2, 2, 2, 1});
  CHECK(counts_of(6, 4, 1, accounts(true, true)) == Counts{1, 2, 2, 1});
  CHECK(counts_of(2, 4, 1, accounts(true, true)) == Counts{0, 1, 1, 0});
  CHECK(counts_of(14, 4, 2, accounts(true, true)) == Counts{1, 2, 2, 2, 2, 2, 2, 1});
  CHECK(counts_of(6, 4, 2, accounts(true, true)) == Counts{0, 1, 1, 1, 1, 1, 1, 0});
  CHECK(made(8, 4, 1, accounts(true, true))
            .has_error("stage-layers", "pipeline_stages", "8 layers + embedding + loss = 10"));
  CHECK(made(7, 4, 3, accounts(true, false))
            .has_error("chunk-layers", "virtual_pipeline_stages",
                       "must be divisible by virtual_pipeline_stages (3)"));
}

TEST_CASE("first and last stage by count", "[stage_map]") {
  CHECK(counts_of(10, 4, 1, ends(1, std::nullopt)) == Counts{1, 3, 3, 3});
  CHECK(counts_of(10, 4, 1, ends(std::nullopt, 4)) == Counts{2, 2, 2, 4});
  CHECK(counts_of(10, 4, 1, ends(3, 3)) == Counts{3, 2, 2, 3});
  CHECK(counts_of(7, 2, 1, ends(3, 4)) == Counts{3, 4});
  CHECK(counts_of(7, 2, 1, ends(3, std::nullopt)) == Counts{3, 4});
  // With chunks each stage's layers are cut evenly: F/V, middle/V ..., Z/V in every round.
  CHECK(counts_of(14, 4, 2, ends(4, 2)) == Counts{2, 2, 2, 1, 2, 2, 2, 1});
  const Made chunks = made(14, 4, 2, ends(4, 2));
  CHECK(chunks.map.at(0, 1).begin == 8);
  CHECK(chunks.map.at(2, 1).begin == 12);
  CHECK(counts_of(6, 2, 2, ends(2, 4)) == Counts{1, 2, 1, 2});
}

TEST_CASE("first and last stages that do not fit", "[stage_map]") {
  const Made odd = made(10, 4, 1, ends(2, std::nullopt));
  CHECK(odd.has_error("stage-layers", "pipeline.first_stage_layers",
                      "= 8 must be divisible by the 3 other stages"));
  CHECK(odd.found.list().front().help.find("to 1 or 4") != std::string::npos);
  CHECK(made(10, 4, 1, ends(std::nullopt, 5))
            .has_error("stage-layers", "pipeline.last_stage_layers",
                       "= 5 must be divisible by the 3 other stages"));
  CHECK(made(10, 4, 1, ends(6, 4))
            .has_error("stage-layers", "pipeline.first_stage_layers", "= 0 layers are left for"));
  CHECK(made(10, 4, 1, ends(20, std::nullopt))
            .has_error("stage-layers", "pipeline.first_stage_layers", "= -10"));
  CHECK(made(8, 2, 1, ends(3, 4))
            .has_error("stage-layers", "pipeline.first_stage_layers", "= 1 layers are left"));
  CHECK(made(11, 4, 2, ends(3, 4))
            .has_error("chunk-layers", "pipeline.first_stage_layers",
                       "divisible by virtual_pipeline_stages (2)"));
  CHECK(made(11, 4, 2, ends(4, 3))
            .has_error("chunk-layers", "pipeline.last_stage_layers",
                       "(3) must be divisible by virtual_pipeline_stages (2)"));
  CHECK(made(10, 4, 2, ends(2, 2))
            .has_error("chunk-layers", "pipeline.first_stage_layers",
                       "divisible by virtual_pipeline_stages (2)"));
}

TEST_CASE("a layout in words", "[stage_map]") {
  CHECK(counts_of(14, 4, 1, layout("Et*3|t*4|(tt)*2|tttL")) == Counts{3, 4, 4, 3});
  CHECK(counts_of(6, 4, 2, layout("E|(t|)*6,L")) == Counts{0, 1, 1, 1, 1, 1, 1, 0});
  CHECK(counts_of(4, 2, 1, layout("Ettt|,t L")) == Counts{3, 1});
  CHECK(counts_of(4, 4, 1, layout("E||tttt|L")) == Counts{0, 0, 4, 0});
  CHECK(counts_of(8, 2, 1, layout("E((t*2)*2)|(t,t)*2L")) == Counts{4, 4});
  CHECK(counts_of(4, 2, 1, layout("Et|t|t|tL")) == Counts{1, 1, 1, 1});  // says two chunks
  Config config = staged(4, 2, 1);
  config.parallel.pipeline.layout = "Et|t|t|tL";
  CHECK(resolve_chunks(config.parallel, ParallelMode::hybrid_parallel) == 2);
  CHECK(made(config).map.chunks == 2);
  config.parallel.pipeline.layout = "Ett|(";
  CHECK(resolve_chunks(config.parallel, ParallelMode::hybrid_parallel) == 1);
}

TEST_CASE("layouts that cannot be read", "[stage_map]") {
  for (const char* text :
       {"Et|x|L", "Et*|L", "E(t|L", "Et)|L", "Et*0|L", "e", "Et*9999999|L", "E(t*1000)*1001|L"}) {
    INFO(text);
    CHECK_FALSE(parse_stage_layout(text).error.empty());
    CHECK(
        made(4, 2, 1, layout(text)).has_error("layout-syntax", "pipeline.layout", "at character"));
  }
  CHECK(parse_stage_layout(std::string(100, '(')).error.find("more than 64") == 0);
  CHECK(parse_stage_layout("Et\n").error.find("found '?'") != std::string::npos);
  CHECK(parse_stage_layout("").values == std::vector<std::string>{""});
}

TEST_CASE("layouts that break a rule", "[stage_map]") {
  const auto breaks = [](std::int64_t chunks, const char* text, const char* message) {
    const Made result = made(4, 2, chunks, layout(text));
    INFO(result.shown());
    return result.has_error("layout-stages", "pipeline.layout", message);
  };
  CHECK(breaks(1, "tt|ttL", "must start with E"));
  CHECK(breaks(1, "Ett|tt", "must end with L"));
  CHECK(breaks(1, "Ett|EttL", "must contain E once, found 2"));
  CHECK(breaks(1, "EttL|ttL", "must contain L once, found 2"));
  CHECK(breaks(1, "Ett|tttL", "the 4 layers, found 5"));
  CHECK(breaks(1, "Et|tt|tL", "(3) must be divisible by pipeline_stages (2)"));
  CHECK(made(4, 2, 4, layout("Ett|ttL"))
            .has_error("layout-chunks", "pipeline.layout", "1 chunk, but virtual_pipeline_stages"));
  CHECK(made(4, 2, 1, layout("Ett|ttmL"))
            .has_error("not-built", "pipeline.layout", "multi-token prediction"));
  CHECK(made(4, 2, 1, [](PipelineConfig& pipeline) {
          pipeline.layout = "Et|t|t|tL";
          pipeline.scheduler = PipelineScheduler::zb_v;
        }).map.stages == 2);
  CHECK(made(6, 2, 1, [](PipelineConfig& pipeline) {
          pipeline.layout = "Et|t|t|t|t|tL";
          pipeline.scheduler = PipelineScheduler::zb_v;
        }).has_error("scheduler-chunks", "pipeline.layout", "6 / 2 = 3"));
  CHECK(made(4, 2, 1, [](PipelineConfig& pipeline) {
          pipeline.layout = "Et|t|t|tL";
          pipeline.interleave = false;
        }).has_error("interleave-chunks", "pipeline.interleave", "2 chunks"));
}

TEST_CASE("MindSpore's placement", "[stage_map]") {
  Config config = staged(10, 4, 1);
  for (const ParallelMode mode : {ParallelMode::semi_auto_parallel, ParallelMode::auto_parallel}) {
    config.parallel.parallel_mode = mode;
    CHECK(counts_of(made(config).map, 10) == Counts{2, 2, 2, 4});  // the remainder is last
  }
  config.model.num_layers = 17;
  config.parallel.virtual_pipeline_stages = 2;
  CHECK(counts_of(made(config).map, 17) == Counts{2, 2, 2, 2, 2, 2, 2, 3});
  config.model.num_layers = 7;
  CHECK(made(config).has_error("stage-layers", "pipeline_stages",
                               "pipeline_stages (4) x virtual_pipeline_stages (2) = 8"));
  // Placement options of Megatron are cut by its rules in these modes too.
  config.model.num_layers = 14;
  config.parallel.pipeline.account_for_embedding = true;
  config.parallel.pipeline.account_for_loss = true;
  CHECK(counts_of(made(config).map, 14) == Counts{1, 2, 2, 2, 2, 2, 2, 1});
}

TEST_CASE("MindFormers' offsets", "[stage_map]") {
  CHECK(counts_of(10, 4, 1, offset({1, 1, 0, 0})) == Counts{3, 3, 2, 2});
  CHECK(counts_of(8, 4, 1, offset({-1, 1, 1, -1})) == Counts{1, 3, 3, 1});
  CHECK(counts_of(9, 2, 2, offset({0, 0, 0, 1})) == Counts{2, 2, 2, 3});
  CHECK(counts_of(10, 4, 1, offset({0})) == Counts{2, 2, 2, 4});
  CHECK(counts_of(10, 4, 1, offset({1})) == Counts{1, 2, 2, 5});
  CHECK(counts_of(4, 4, 1, offset({-1, 1, 0, 0})) == Counts{0, 2, 1, 1});
  const auto wrong = [](std::int64_t chunks, const IntList& numbers, const char* message) {
    const Made result = made(10, 4, chunks, offset(numbers));
    UNSCOPED_INFO(result.shown());
    return result.has_error("pipeline-offset", "pipeline.offset", message);
  };
  CHECK(wrong(1, {1, 1}, "expected 4 numbers (4 stages x 1 chunk), found 2"));
  CHECK(wrong(2, {1, 1, 0, 0}, "expected 8 numbers (4 stages x 2 chunks), found 4"));
  CHECK(wrong(1, {1, 2, 0, 0}, "must give 10 layers, found 11"));
  CHECK(wrong(1, {-3, 3, 1, 1}, "offset -3 gives -1 layers"));
  CHECK(wrong(1, {-1}, "at least 0"));
  CHECK(wrong(1, {}, "found 0"));
}

TEST_CASE("only one placement may be asked for", "[stage_map]") {
  const auto both = [](const Change& a, const Change& b) {
    return made(8, 4, 1, [&](PipelineConfig& pipeline) {
      pipeline = {};
      a(pipeline);
      PipelineConfig other;
      b(other);
      if (other.layout) pipeline.layout = other.layout;
      if (other.offset) pipeline.offset = other.offset;
      if (other.account_for_loss) pipeline.account_for_loss = true;
    });
  };
  CHECK(both(ends(2, 2), layout("Ett|tt|tt|ttL"))
            .has_error("placement-conflict", "pipeline.first_stage_layers", "layout"));
  CHECK(both(ends(std::nullopt, 2), accounts(false, true))
            .has_error("placement-conflict", "pipeline.account_for_loss", "last_stage_layers"));
  CHECK(both(accounts(true, false), offset({0, 0, 0, 0}))
            .has_error("placement-conflict", "pipeline.account_for_embedding", "offset"));
  CHECK(both(offset({0, 0, 0, 0}), layout("E"))
            .has_error("placement-conflict", "pipeline.offset", "layout"));
}

TEST_CASE("without a pipeline placement has no effect", "[stage_map]") {
  Config config = staged(5, 1, 1);
  config.parallel.pipeline.layout = "nonsense";
  config.parallel.pipeline.account_for_loss = true;
  SourceMap sources;
  for (const char* key : {"layout", "account_for_loss"}) {
    sources.record("parallel.pipeline." + std::string(key),
                   Place{.origin = Place::Origin::file, .file = "a.yaml", .line = 1});
  }
  const Made one = made(config, sources);
  CHECK(counts_of(one.map, 5) == Counts{5});
  REQUIRE(one.found.list().size() == 2);
  CHECK(one.found.list()[0].code == "no-effect");
  config.parallel.pipeline_stages = 4;
  config.parallel.virtual_pipeline_stages = 2;
  config.parallel.parallel_mode = ParallelMode::data_parallel;
  const Made replica = made(config, sources);
  CHECK(counts_of(replica.map, 5) == Counts{5});
  CHECK(replica.map.chunks == 1);
  CHECK(replica.found.list().size() == 2);
}
