#include <barrier>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "catch.h"
#include "config/read/read.h"
#include "count_blocks.h"
#include "engine/engine.h"
#include "engine/forward.h"
#include "engine/trace.h"
#include "plan/prepare/make_plan.h"
#include "run/data/corpus.h"
#include "run/directory/run_dir.h"
#include "run/progress.h"
#include "sample_run.h"
#include "temp_folder.h"

using namespace trainctl;

namespace {

namespace fs = std::filesystem;

/// A folder with a text to train on.
class TextFolder : public TempFolder {
 public:
  TextFolder() {
    std::ofstream text(path() / "text.txt");
    for (int line = 0; line < 2000; ++line) text << "line " << line * 7919 % 1000 << " of it\n";
  }
  fs::path operator/(const char* name) const { return path() / name; }
};

struct Stretch {
  int unwatched_steps = 2;
  int watched_steps = 4;
  bool takes_memory = false;  // as a step should not
};

class Watched {
 public:
  Watched(std::vector<std::string> set_options, int ranks, Stretch stretch)
      : set_options_(std::move(set_options)), stretch_(stretch), steps_(ranks) {
    set_options_.push_back("data.train=" + (folder_ / "text.txt").string());
    set_options_.push_back("data.cache_dir=" + (folder_ / "cache").string());
    run_thread_world(ranks, {.deadline_seconds = 60}, [this](World& world) { train(world); });
  }
  const BlocksTaken& taken() const { return taken_; }

 private:
  void train(World& world) {
    ReadResult read = read_config_text(sample_yaml(), "sample.yaml", set_options_);
    const Plan plan =
        make_plan(read.config, {.world_size = world.size(), .ranks_per_host = world.size()},
                  read.sources, read.diagnostics);
    require(!read.diagnostics.has_errors(), ExitCode::config, render_text(read.diagnostics, false));
    const Config& config = read.config;
    const std::unique_ptr<Group> group =
        world.group("world", plan.mesh.group(world.rank(), Axis::dp));
    Corpus corpus = open_corpus(config.data, Tokenizer::open(config.data.tokenizer), plan.model,
                                config.train.seed, *group, world.rank() == 0);
    corpus.rule.sequences = plan.micro_batch_size;
    Trace trace(plan.stage_of(world.rank()).actions, 2);
    Engine engine({.plan = plan,
                   .train = config.train,
                   .optimizer = config.optimizer,
                   .lr_schedule = config.lr_schedule,
                   .loss_scaling = resolve_loss_scaling(config),
                   .deadline_seconds = 60,
                   .count_loss_weights = true,
                   .request = [] { return 0; },
                   .trace = &trace},
                  world);
    engine.initialise();
    const Fence fence;
    MetricsFile metrics(folder_ / ("metrics" + std::to_string(world.rank())).c_str(), fence);
    std::string shown;
    shown.reserve(200);
    BatchLoader loader(corpus.train, corpus.rule,
                       {.global_batch = config.train.global_batch_size,
                        .microbatches = plan.microbatches,
                        .data_parallel = world.size(),
                        .data_rank = world.rank(),
                        .steps = config.train.steps});
    const auto step = [&] {
      const StepReport report = engine.train_step(loader.next_step());
      StepNotes notes;
      notes.ledger = own_ledger(trace, trace.completed_steps());
      metrics.write(report, notes);
      shown.clear();
      append_progress(report, 0.5, 100, 200, shown);
    };
    for (int i = 0; i < stretch_.unwatched_steps; ++i) step();
    steps_.arrive_and_wait();
    if (world.rank() == 0) start_watching_blocks();
    steps_.arrive_and_wait();
    for (int i = 0; i < stretch_.watched_steps; ++i) step();
    if (stretch_.takes_memory) std::vector<char>(5000).swap(taken_by_test_);
    steps_.arrive_and_wait();
    if (world.rank() == 0) taken_ = stop_watching_blocks();
    steps_.arrive_and_wait();
  }

  TextFolder folder_;
  std::vector<std::string> set_options_;
  Stretch stretch_;
  std::barrier<> steps_;
  BlocksTaken taken_;
  std::vector<char> taken_by_test_;
};

const std::vector<std::string> large_enough{
    "model.hidden_size=128", "model.ffn_hidden_size=256", "model.seq_length=64",
    "model.vocab_size=256",  "train.micro_batch_size=2",  "parallel.bucket_size=100000"};

BlocksTaken blocks_of(std::vector<std::string> more, int ranks, Stretch stretch = {}) {
  more.insert(more.begin(), large_enough.begin(), large_enough.end());
  return Watched(std::move(more), ranks, stretch).taken();
}

}  // namespace

TEST_CASE("nothing is allocated in a step after the second") {
  const std::string compute = GENERATE("fp32", "bf16", "fp16");
  const std::string family = GENERATE("gpt2", "llama");
  const int ranks = GENERATE(1, 2);
  INFO(compute << " " << family << " on " << ranks << " rank(s)");
  const BlocksTaken taken = blocks_of({"precision.compute=" + compute, "model.family=" + family,
                                       "parallel.threads_per_rank=" + std::to_string(2 / ranks)},
                                      ranks);
  INFO(taken.first);
  CHECK(taken.own_news == 0);
  CHECK(taken.large_blocks == 0);
}

TEST_CASE("experts allocate nothing, however many tokens each gets") {
  const std::string compute = GENERATE("fp32", "bf16");
  const int ranks = GENERATE(1, 2);
  const int chunks = GENERATE(1, 3);
  INFO(compute << " on " << ranks << " rank(s), in " << chunks << " chunk(s)");
  const BlocksTaken taken =
      blocks_of({"precision.compute=" + compute, "model.family=llama", "moe.num_experts=4",
                 "moe.router_topk=2", "moe.ffn_hidden_size=128", "moe.comp_comm_parallel=true",
                 "moe.comp_comm_parallel_degree=" + std::to_string(chunks),
                 "parallel.expert_parallel=" + std::to_string(ranks)},
                ranks, {.unwatched_steps = 3, .watched_steps = 12});
  INFO(taken.first);
  CHECK(taken.own_news == 0);
  CHECK(taken.large_blocks == 0);
}

TEST_CASE("parts of experts that gather their tokens allocate nothing") {
  const std::string compute = GENERATE("fp32", "bf16");
  INFO(compute);
  const BlocksTaken taken = blocks_of(
      {"precision.compute=" + compute, "parallel.force_fp32_communication=true",
       "model.family=llama", "moe.num_experts=4", "moe.router_topk=2", "moe.ffn_hidden_size=128",
       "moe.comp_comm_parallel=true", "parallel.expert_tensor_parallel=2"},
      2, {.unwatched_steps = 3, .watched_steps = 12});
  INFO(taken.first);
  CHECK(taken.own_news == 0);
  CHECK(taken.large_blocks == 0);
}

TEST_CASE("dropout and SGD allocate nothing either") {
  const BlocksTaken taken = blocks_of({"model.attention_dropout=0.1", "model.hidden_dropout=0.1",
                                       "optimizer.type=sgd", "optimizer.momentum=0.9"},
                                      2);
  INFO(taken.first);
  CHECK(taken.own_news == 0);
  CHECK(taken.large_blocks == 0);
}

TEST_CASE("copies to the host allocate nothing either") {
  const BlocksTaken taken = blocks_of({"offload.enable=true", "offload.num_layers=1"}, 2);
  INFO(taken.first);
  CHECK(taken.own_news == 0);
  CHECK(taken.large_blocks == 0);
}

TEST_CASE("collectives that overlap with products allocate nothing either") {
  const std::string chunks = GENERATE("false", "true");
  const BlocksTaken taken =
      blocks_of({"precision.compute=bf16", "parallel.force_fp32_communication=true",
                 "parallel.tensor_parallel=2", "parallel.sequence_parallel=true",
                 "parallel.tp_comm_overlap={enable: true, rs_dgrad: " + chunks + "}"},
                2);
  INFO(taken.first);
  CHECK(taken.own_news == 0);
  CHECK(taken.large_blocks == 0);
}

TEST_CASE("generating a token allocates nothing") {
  ReadResult read =
      read_config_text(sample_yaml(), "sample.yaml", {"model.family=llama", "data.train=none"});
  const Plan plan = make_plan(read.config, {}, read.sources, read.diagnostics);
  const auto world = self_world();
  const DeviceWorld devices(*world, DeviceKind::cpu, 60);
  ParamStore store(DeviceKind::cpu, plan.stages.front(),
                   {.compute = plan.compute, .training = false});
  Decoder decoder(plan, devices, [&](const std::string& name) { return store.weight(name); });
  store.initialise(decoder.ops(), 3, plan.mesh, 0);
  const std::vector<std::int32_t> tokens{5, 17, 3, 60, 0, 8, 44};
  decoder.advance(std::span(tokens).first(3));
  decoder.advance(std::span(tokens).subspan(3, 1));
  start_watching_blocks();
  for (std::size_t i = 4; i < tokens.size(); ++i) {
    decoder.advance(std::span(tokens).subspan(i, 1));
  }
  const BlocksTaken taken = stop_watching_blocks();
  INFO(taken.first);
  CHECK(taken.own_news == 0);
  CHECK(taken.large_blocks == 0);
}

TEST_CASE("a block that a step takes is seen") {
  const BlocksTaken taken = blocks_of({}, 1, {.takes_memory = true});
  CHECK(taken.own_news == 1);
  CHECK(taken.large_blocks == 1);
  CHECK(taken.first.find("test_step_blocks") != std::string::npos);
}
