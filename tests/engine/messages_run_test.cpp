// parallel.pipeline's options as they are executed: the same numbers, other waits. And validation
// and generation through a pipeline.
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <fstream>
#include <mutex>
#include <numeric>
#include <sstream>

#include "catch.h"
#include "config/read/read.h"
#include "data/token_file.h"
#include "plan/prepare/make_plan.h"
#include "run/models/generate.h"
#include "sample_run.h"
#include "thorough.h"
#include "verify/verify.h"
#include "weights/export.h"

using namespace trainctl;

namespace {

namespace fs = std::filesystem;
using Options = std::vector<std::string>;

class Folder {
 public:
  explicit Folder(const std::string& name)
      : path_(fs::temp_directory_path() / ("trainctl-" + name + std::to_string(::getpid()))) {
    fs::create_directories(path_);
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

const std::string pipeline = "parallel.pipeline.";

Options two_stages(const Options& more) {
  Options options{"parallel.pipeline_stages=2", "train.micro_batch_size=1",
                  pipeline + "scheduler=gpipe"};
  options.insert(options.end(), more.begin(), more.end());
  return options;
}

using Numbers = std::vector<std::pair<double, double>>;

/// Loss and gradient norm of each step.
Numbers numbers_of(const Options& options, int ranks) {
  Numbers numbers;
  for (const StepReport& report :
       train_sample({.set_options = options, .ranks = ranks, .steps = 3, .world = {}})) {
    numbers.emplace_back(report.loss, report.grad_norm);
  }
  return numbers;
}

double largest_difference(const Numbers& a, const Numbers& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    most = std::max(
        {most, std::abs(a[i].first / b[i].first - 1), std::abs(a[i].second / b[i].second - 1)});
  }
  return most;
}

/// Seconds that the rows of `kind` waited on the last rank (F: on the first), without the first
/// micro-batch's: the less of two steps. Four micro-batches.
double waited(Options options, int ranks, ActionKind kind, double wire_seconds) {
  options.push_back("train.global_batch_size=4");
  const int rank = kind == ActionKind::forward ? 0 : ranks - 1;
  std::vector<std::unique_ptr<Trace>> traces(static_cast<std::size_t>(ranks));
  std::vector<Action> rows;
  train_sample({.set_options = options,
                .ranks = ranks,
                .steps = 3,
                .world = {.wire_alpha_seconds = wire_seconds},
                .make_trace = [&](const World& world, const Plan& plan) {
                  auto& trace = traces[static_cast<std::size_t>(world.rank())];
                  if (world.rank() == rank) rows = plan.stage_of(rank).actions;
                  trace = std::make_unique<Trace>(plan.stage_of(world.rank()).actions, 2);
                  return trace.get();
                }});
  double least = 1e9;
  const Trace& trace = *traces[static_cast<std::size_t>(rank)];
  for (std::int64_t step = trace.first_kept_step(); step <= trace.completed_steps(); ++step) {
    const auto records = trace.step(step);
    double sum = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (rows[i].kind == kind && rows[i].microbatch > 0) sum += records[i].waited;
    }
    least = std::min(least, sum);
  }
  return least;
}

}  // namespace

TEST_CASE("all ways to exchange messages give bit-identical numbers", "[threads]") {
  const Options chosen{pipeline + "batch_p2p_comm=false", pipeline + "overlap_p2p_comm=true",
                       pipeline + "deallocate_outputs=true"};
  const Numbers usual = numbers_of(two_stages({}), 4);
  for (const std::string& option : chosen) {
    INFO(option);
    CHECK(numbers_of(two_stages({option}), 4) == usual);
  }
  CHECK(numbers_of(two_stages({chosen[1], chosen[2]}), 4) == usual);
  CHECK(numbers_of(two_stages({pipeline + "scheduler=1f1b", chosen[0], chosen[2]}), 4) == usual);
  CHECK(largest_difference(usual, numbers_of({}, 1)) < 1e-5);
}

TEST_CASE("messages of another dtype: wider ones change nothing, narrower ones round") {
  const Options half{"precision.compute=bf16"};
  const std::string wide = pipeline + "dtype=fp32";
  CHECK(numbers_of(two_stages({half[0], wide}), 2) == numbers_of(two_stages(half), 2));
  CHECK(numbers_of(two_stages({half[0], wide, pipeline + "overlap_p2p_comm=true"}), 2) ==
        numbers_of(two_stages(half), 2));
  const Numbers full = numbers_of(two_stages({}), 2);
  const std::string narrow = pipeline + "dtype=bf16";
  for (const Options& way : {Options{narrow}, Options{narrow, pipeline + "deallocate_outputs=true"},
                             Options{narrow, pipeline + "overlap_p2p_comm=true"},
                             Options{narrow, pipeline + "batch_p2p_comm=false"}}) {
    const Numbers rounded = numbers_of(two_stages(way), 2);
    CHECK(largest_difference(rounded, full) > 0);
    CHECK(largest_difference(rounded, full) < 1e-2);
    CHECK(rounded == numbers_of(two_stages({narrow}), 2));
  }
}

TEST_CASE("every way of exchanging messages is verified against one rank") {
  const auto verified = [](const Options& more) {
    Options options = two_stages(more);
    options.push_back("model.num_layers=4");
    const Config config = read_config_text(sample_yaml(), "sample.yaml", options).config;
    Diagnostics diagnostics;
    const Plan plan = make_plan(config, {.world_size = 4, .ranks_per_host = 4}, {}, diagnostics);
    REQUIRE(!diagnostics.has_errors());
    const LayoutVerdict verdict = Verification(config, 2).compare({config, plan, 20});
    INFO(more.back() << ": " << verdict.largest.place() << " " << verdict.failure);
    CHECK(verdict.equal);
    return verdict.largest.error;
  };
  const std::string sequence = "parallel.sequence_parallel=true";
  CHECK(verified({"parallel.tensor_parallel=2", sequence, pipeline + "batch_p2p_comm=false"}) <
        2e-5);
  CHECK(verified({"parallel.tensor_parallel=2", sequence, pipeline + "overlap_p2p_comm=true",
                  pipeline + "deallocate_outputs=true"}) < 2e-5);
  CHECK(verified({pipeline + "scheduler=1f1b", pipeline + "dtype=bf16"}) > 2e-5);
}

TEST_CASE("overlapped messages travel while the stage computes") {
  // The collectives inside the layers take their time on the emulated wire too. That time is the
  // computation during which messages can travel without a core of their own.
  const Options options = two_stages({"parallel.tensor_parallel=2"});
  const double wire = 4e-3;
  const double batched = waited(options, 4, ActionKind::receive_forward, wire);
  CHECK(batched > 3 * 0.9 * wire);
  Options overlapped = options;
  overlapped.push_back(pipeline + "overlap_p2p_comm=true");
  CHECK(waited(overlapped, 4, ActionKind::wait_forward, wire) < 0.6 * batched);
}

TEST_CASE("an output that is kept is not waited for") {
  const double wire = 10e-3;
  const Options kept = two_stages({});
  Options freed = kept;
  freed.push_back(pipeline + "deallocate_outputs=true");
  CHECK(waited(kept, 2, ActionKind::forward, wire) < 1.5 * wire);
  CHECK(waited(freed, 2, ActionKind::forward, wire) > 3 * 0.9 * wire);
}

namespace {

/// 13 windows of 16 tokens: odd for every number of replicas and micro-batch size here.
Dataset thirteen_windows(const Folder& folder) {
  TokenWriter writer(folder.path() / "tokens", 61);
  std::vector<std::int32_t> tokens(13 * 16 + 1);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<std::int32_t>((i * i + 7 * i) % 61);
  }
  writer.append(tokens);
  writer.end_document(-1);
  writer.commit();
  std::vector<SourceFile> sources;
  sources.push_back({TokenFile::open(folder.path() / "tokens"), 1});
  return Dataset(std::move(sources), {.fraction = 1}, Split::validation, 16, 1, false);
}

struct Evaluated {
  std::vector<std::optional<double>> results;  // by rank
};

Evaluated evaluate_twice(const Options& options, int ranks, const Dataset& data,
                         std::int64_t most = 0) {
  Evaluated evaluated;
  evaluated.results.resize(static_cast<std::size_t>(ranks));
  std::mutex mutex;
  train_sample({.set_options = options,
                .ranks = ranks,
                .steps = 2,
                .world = {},
                .inspect = [&](Engine& engine, const Plan& plan, World& world) {
                  const BatchRule rule{.sequences = plan.micro_batch_size};
                  const auto first = engine.evaluate(data, rule, most);
                  const auto again = engine.evaluate(data, rule, most);
                  const std::lock_guard lock(mutex);
                  if (first == again) {
                    evaluated.results[static_cast<std::size_t>(world.rank())] = first;
                  }
                }});
  return evaluated;
}

}  // namespace

TEST_CASE("validation through a pipeline is that of one rank, whatever the number of windows",
          "[threads]") {
  const Folder folder("windows");
  const Dataset data = thirteen_windows(folder);
  REQUIRE(data.windows() == 13);
  for (const std::int64_t most : {0, 1, 6}) {
    const double alone = *evaluate_twice({}, 1, data, most).results[0];
    for (const Options& options :
         {Options{"parallel.pipeline_stages=2", "train.micro_batch_size=2"},
          two_stages({"parallel.tensor_parallel=2"}), two_stages({"parallel.data_parallel=2"}),
          two_stages({"parallel.tensor_parallel=2", "parallel.sequence_parallel=true",
                      pipeline + "overlap_p2p_comm=true"})}) {
      const bool four = options.back() != "train.micro_batch_size=2";
      const auto results = evaluate_twice(options, four ? 4 : 2, data, most).results;
      REQUIRE(results[0]);
      CHECK(std::abs(*results[0] / alone - 1) < 1e-5);
    }
  }
}

TEST_CASE("who learns the result of a validation") {
  const Folder folder("results");
  const Dataset data = thirteen_windows(folder);
  const auto known = [&](const Options& more) {
    std::string text;
    const auto results = evaluate_twice(two_stages(more), 4, data).results;
    for (const auto& result : results) text += result ? (*result == *results[0] ? "=" : "!") : "-";
    return text;
  };
  // Ranks 0 and 1 are the first stage, 2 and 3 the last.
  CHECK(known({"parallel.data_parallel=2"}) == "=-==");
  CHECK(known({"parallel.data_parallel=2", pipeline + "result_broadcast=true"}) == "====");
}

namespace {

/// A run folder with random weights, whose config asks for this layout.
void write_run(const Folder& folder, const Options& model, const Options& layout) {
  Options options = model;
  options.insert(options.end(), layout.begin(), layout.end());
  options.push_back("model.vocab_size=256");
  const ReadResult read = read_config_text(sample_yaml(), "sample.yaml", options);
  std::ofstream(folder.path() / "config.yaml") << dump_config(read.config, nullptr);
}

void write_weights(const Folder& folder, const Options& model) {
  Options options = model;
  options.push_back("model.vocab_size=256");
  train_sample({.set_options = options,
                .ranks = 1,
                .steps = 0,
                .world = {},
                .inspect = [&](Engine& engine, const Plan& plan, World&) {
                  ParamStore& store = engine.parameters();
                  for (std::size_t i = 0; i < plan.stages[0].parameters.size(); ++i) {
                    const Tensor values = store.master(static_cast<int>(i));
                    float* at = values.as<float>();  // far from uniform logits
                    for (std::int64_t k = 0; k < values.numel(); ++k) at[k] *= 8.0F;
                  }
                  const HeldWeights weights(
                      [&](const std::string& name) { return store.master(store.index_of(name)); });
                  write_model(folder.path(), plan.model, weights, {});
                }});
}

std::string text_of(const Folder& folder, int ranks, double temperature) {
  std::ostringstream text;
  generate({.run_dir = folder.path(),
            .prompt = "The quick brown fox",
            .max_tokens = 24,
            .temperature = temperature,
            .seed = 5,
            .local_ranks = ranks},
           text);
  return text.str();
}

}  // namespace

TEST_CASE("every layout generates the text of one rank, greedy and sampled") {
  const std::string tp = "parallel.tensor_parallel=";
  const std::string pp = "parallel.pipeline_stages=";
  const std::string sp = "parallel.sequence_parallel=true";
  const std::vector<std::pair<int, Options>> layouts{
      {2, {}},
      {2, {tp + "2"}},
      {4, {tp + "4", "parallel.vocab_emb_dp=true"}},
      {2, {pp + "2"}},
      {3, {pp + "3", pipeline + "layout=E|tt|ttL"}},
      {8, {tp + "2", sp, pp + "2", "parallel.parallel_optimizer.enable=true"}},
      {8, {tp + "2", sp, pp + "2", pipeline + "result_broadcast=true"}}};
  const std::vector<Options> models{{"model.num_layers=4"},
                                    {"model.num_layers=4", "model.family=llama",
                                     "model.num_query_groups=2", "model.qk_layernorm=true"}};
  for (const Options& model : models) {
    const Folder folder("generate");
    write_weights(folder, model);
    write_run(folder, model, {});
    const std::string greedy = text_of(folder, 0, 0);
    const std::string sampled = text_of(folder, 0, 1);
    CHECK(greedy.size() > 20);
    CHECK(sampled != greedy);
    for (const auto& [ranks, layout] : layouts) {
      write_run(folder, model, layout);
      INFO(ranks << " ranks, " << (layout.empty() ? "dp" : layout.back()));
      CHECK(text_of(folder, ranks, 1) == sampled);
      if (&model != &models.front() && !thorough()) continue;
      CHECK(text_of(folder, ranks, 0) == greedy);
      CHECK(text_of(folder, 0, 1) == sampled);
    }
  }
}

TEST_CASE("generation says why a number of ranks has no layout") {
  const Folder folder("refused");
  const Options model{"model.num_layers=4"};
  write_weights(folder, model);
  write_run(folder, model, {"parallel.tensor_parallel=2"});
  CHECK_THROWS_WITH(text_of(folder, 3, 0),
                    Catch::Contains("has no layout for 3 ranks") && Catch::Contains("3"));
}
