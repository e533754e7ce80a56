// The parallel optimizer against the plain one: the same numbers, from smaller state, with what the
// plan says is sent.
#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>

#include "base/error.h"
#include "catch.h"
#include "comm/world.h"
#include "config/read/read.h"
#include "plan/prepare/make_plan.h"
#include "sample_run.h"
#include "thorough.h"

using namespace trainctl;

namespace {

using Options = std::vector<std::string>;

struct Case {
  int ranks = 2;
  Options layout;
};

const Options rows{"parallel.parallel_mode=hybrid_parallel"};
const Options on{"parallel.parallel_optimizer.enable=true",
                 "parallel.parallel_optimizer.threshold=0",
                 "parallel.parallel_optimizer.gradient_accumulation_shard=false"};

const std::vector<Case> cases{
    {2, rows},
    {4, rows},
    {2, {"parallel.parallel_mode=data_parallel"}},
    {4, {"parallel.parallel_mode=data_parallel"}},
    {2, {"parallel.tensor_parallel=2", "parallel.vocab_emb_dp=true"}},
    {4, {"parallel.tensor_parallel=2"}},
    {4, {"parallel.tensor_parallel=2", "parallel.sequence_parallel=true"}},
    {4,
     {"parallel.tensor_parallel=2", "parallel.sequence_parallel=true",
      "parallel.vocab_emb_dp=true"}},
    {8,
     {"parallel.tensor_parallel=4", "parallel.sequence_parallel=true", "model.family=llama",
      "model.num_query_groups=2"}},
    {4, {"parallel.pipeline_stages=2", "train.micro_batch_size=2"}},
    {4, {"parallel.pipeline_stages=2", "model.tie_word_embeddings=false"}},
    {8, {"parallel.pipeline_stages=2", "parallel.tensor_parallel=2", "train.micro_batch_size=1"}},
    {4,
     {"parallel.parallel_mode=hybrid_parallel", "parallel.parallel_optimizer.weight_shard_size=2"}},
    {8,
     {"parallel.tensor_parallel=2", "parallel.sequence_parallel=true",
      "parallel.parallel_optimizer.weight_shard_size=2"}},
    {4, {"parallel.tensor_parallel=2", "parallel.rank_order=dp-tp-cp-ep-pp"}},
    {4, {"parallel.bucket_rule=megatron"}},
    {8,
     {"parallel.bucket_rule=megatron", "parallel.pipeline_stages=2", "parallel.tensor_parallel=2",
      "train.micro_batch_size=2"}},
    {4, {"parallel.tensor_parallel=2", "hooks.param_sync=before_forward"}},
    {4, {"parallel.parallel_mode=hybrid_parallel", "parallel.bucket_rule=comm_fusion"}},
    {4,
     {"parallel.parallel_mode=hybrid_parallel", "parallel.bucket_rule=comm_fusion",
      "parallel.comm_fusion.openstate=false"}},
    {4,
     {"parallel.parallel_mode=hybrid_parallel", "parallel.comm_fusion.allgather={mode: auto}",
      "parallel.comm_fusion.reducescatter={mode: size, config: 1}"}},
    {8,
     {"parallel.tensor_parallel=2", "parallel.sequence_parallel=true",
      "parallel.bucket_rule=comm_fusion", "parallel.parallel_optimizer.weight_shard_size=2",
      "parallel.gradient_fp32_sync=false"}},
    {8,
     {"parallel.pipeline_stages=2", "parallel.tensor_parallel=2", "train.micro_batch_size=1",
      "parallel.bucket_rule=layers", "parallel.gradient_aggregation_group=2"}},
};

Options operator+(const Options& left, const Options& right) { return with(left, right); }

std::string text_of(const Case& layout) {
  std::string text = std::to_string(layout.ranks) + " ranks";
  for (const std::string& option : layout.layout) text += " " + option;
  return text;
}

void check_same(const std::vector<StepReport>& found, const std::vector<StepReport>& expected,
                double tolerance) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    CHECK(found[i].loss == Approx(expected[i].loss).epsilon(tolerance));
    CHECK(found[i].grad_norm == Approx(expected[i].grad_norm).epsilon(10 * tolerance));
  }
}

struct Use {
  std::int64_t count = 0;
  std::int64_t bytes = 0;
};
using Uses = std::map<std::string, Use>;  // "all_gather parameters"

/// Counts what goes through a group whose name begins with "gradients" or "parameters".
class CountingGroup : public Group {
 public:
  CountingGroup(std::unique_ptr<Group> group, Uses& uses)
      : group_(std::move(group)),
        what_(group_->name().substr(0, group_->name().find(' '))),
        uses_(uses) {}
  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  const std::string& name() const override { return group_->name(); }
  double deadline_seconds() const override { return group_->deadline_seconds(); }
  void all_reduce(const Tensor& data, Stream& stream) override {
    add("all_reduce", data);
    group_->all_reduce(data, stream);
  }
  void reduce_scatter(const Tensor& data, const Tensor& shard, Stream& stream) override {
    add("reduce_scatter", data);
    group_->reduce_scatter(data, shard, stream);
  }
  void all_gather(const Tensor& shard, const Tensor& data, Stream& stream) override {
    add("all_gather", data);
    group_->all_gather(shard, data, stream);
  }
  void broadcast(const Tensor& data, int root, Stream& stream) override {
    add("broadcast", data);
    group_->broadcast(data, root, stream);
  }
  void all_to_all(const Tensor& send, std::span<const std::int64_t> send_counts,
                  const Tensor& receive, std::span<const std::int64_t> receive_counts,
                  Stream& stream) override {
    group_->all_to_all(send, send_counts, receive, receive_counts, stream);
  }
  Event send(const Tensor& data, int to, int tag, Stream& stream) override {
    return group_->send(data, to, tag, stream);
  }
  Event receive(const Tensor& data, int from, int tag, Stream& stream) override {
    return group_->receive(data, from, tag, stream);
  }
  void barrier(Stream& stream) override { group_->barrier(stream); }

 private:
  void add(const std::string& operation, const Tensor& data) {
    if (size() == 1 || name() == "gradients tp" || name() == "gradients kv" ||
        name() == "gradients embedding") {
      return;
    }
    Use& use = uses_[operation + " " + what_];
    ++use.count;
    use.bytes += data.bytes();
  }
  std::unique_ptr<Group> group_;
  std::string what_;
  Uses& uses_;
};

class CountingWorld : public ForwardingWorld {
 public:
  CountingWorld(World& world, Uses& uses) : ForwardingWorld(world), uses_(uses) {}
  std::unique_ptr<Group> group(const std::string& name, std::span<const int> ranks) override {
    auto made = inner().group(name, ranks);
    if (!name.starts_with("gradients") && !name.starts_with("parameters")) return made;
    return std::make_unique<CountingGroup>(std::move(made), uses_);
  }

 private:
  Uses& uses_;
};

Use planned(const StagePlan& stage, const std::string& name) {
  Use use;
  for (const CollectiveUse& row : stage.communication) {
    if (row.name() != name) continue;
    use.count += row.count;
    use.bytes += row.bytes;
  }
  return use;
}

/// Bytes of optimizer state that a store holds, with the padding of slices.
std::int64_t state_bytes(const ParamStore& store, int states) {
  return store.ownership().state_length * states * 4;
}

Options level(const char* word) {
  return {"parallel.parallel_optimizer.enable=true", "parallel.parallel_optimizer.threshold=0",
          "parallel.parallel_optimizer.optimizer_level=" + std::string(word)};
}

/// Every parameter of the model, whole, as the run left it.
std::map<std::string, std::vector<float>> exported(const SampleRun& given) {
  std::map<std::string, std::vector<float>> values;
  SampleRun run = given;
  run.inspect = [&](Engine& engine, const Plan& plan, World& world) {
    WholeParams whole = engine.whole_parameters();
    if (world.rank() != 0) return whole.give();
    for (const StagePlan& stage : plan.stages) {
      for (const ParamSpec& row : stage.parameters) {
        const Tensor x = whole.get(row.name);
        values[row.name].assign(x.as<float>(), x.as<float>() + x.numel());
      }
    }
    whole.end();
  };
  train_sample(run);
  return values;
}

}  // namespace

TEST_CASE("the parallel optimizer gives the losses of the plain one") {
  const std::vector<Options> models{
      {},
      {"optimizer.type=sgd", "optimizer.momentum=0.9", "lr_schedule.max_lr=0.1"},
      {"precision.compute=bf16"},
  };
  int number = 0;
  for (const Options& model : models) {
    const bool half = model == models.back();
    const int steps = half ? 4 : 6;  // each update amplifies what 16 bits round
    for (const Case& layout : cases) {
      if (number++ % stride(1) != 0) continue;
      INFO(text_of(layout) << (model.empty() ? "" : " " + model.front()));
      const auto plain = train_sample({.set_options = layout.layout + model,
                                       .ranks = layout.ranks,
                                       .steps = steps,
                                       .world = {}});
      const auto sharded = train_sample({.set_options = layout.layout + model + on,
                                         .ranks = layout.ranks,
                                         .steps = steps,
                                         .world = {}});
      CHECK(plain.back().loss < plain.front().loss);
      check_same(sharded, plain, half ? 1e-3 : 1e-5);
    }
  }
}

TEST_CASE("every level gives the losses of the plain one", "[threads]") {
  const std::vector<Options> ways{
      level("level2") + Options{"train.micro_batch_size=1"},
      level("level3") + Options{"train.micro_batch_size=1"},
      level("level3") + Options{"parallel.parallel_optimizer.prefetch=0"},
      level("level1") + Options{"train.micro_batch_size=1", "hooks.no_sync=never"},
      level("level2") + Options{"train.micro_batch_size=1", "recompute.enable=true",
                                "recompute.parallel_optimizer_comm_recompute=true"},
  };
  int number = 0;
  for (const char* type : {"fp32", "bf16"}) {
    const Options precision{"precision.compute=" + std::string(type)};
    for (const Case& layout : cases) {
      if (layout.ranks > 4 || number++ % stride(1) != 0) continue;
      const auto plain = train_sample({.set_options = layout.layout + precision,
                                       .ranks = layout.ranks,
                                       .steps = 3,
                                       .world = {}});
      for (const Options& way : ways) {
        INFO(text_of(layout) << " " << type << " " << way[2] << " " << way.back());
        const auto sharded = train_sample({.set_options = layout.layout + precision + way,
                                           .ranks = layout.ranks,
                                           .steps = 3,
                                           .world = {}});
        check_same(sharded, plain, type == std::string("bf16") ? 2e-3 : 1e-5);
      }
    }
  }
}

TEST_CASE("small parameters stay whole, and their buckets are summed") {
  for (const char* threshold : {"4", "64"}) {
    const Options some{"parallel.parallel_optimizer.enable=true",
                       "parallel.parallel_optimizer.threshold=" + std::string(threshold)};
    const auto plain = train_sample({.set_options = rows, .ranks = 4, .steps = 6, .world = {}});
    check_same(train_sample({.set_options = rows + some, .ranks = 4, .steps = 6, .world = {}}),
               plain, 1e-5);
  }
}

TEST_CASE("every rank has the whole parameters after the step", "[threads]") {
  for (const Case& layout : some_of(cases)) {
    INFO(text_of(layout));
    SampleRun run{.set_options = layout.layout, .ranks = layout.ranks, .steps = 3, .world = {}};
    const auto plain = exported(run);
    run.set_options = run.set_options + on;
    const auto sharded = exported(run);
    REQUIRE(plain.size() == sharded.size());
    for (const auto& [name, values] : plain) {
      INFO(name);
      const auto& others = sharded.at(name);
      REQUIRE(values.size() == others.size());
      double most = 0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        most = std::max(most, static_cast<double>(std::abs(values[i] - others[i])));
      }
      CHECK(most < 1e-5);
    }
  }
}

TEST_CASE("the plan's state and traffic are those of the run") {
  struct Kind {
    const char* word;
    const char* masters;
  };
  int number = 0;
  for (const auto& [word, masters] :
       {Kind{"level1", "fp32"}, {"level2", "fp32"}, {"level3", "fp32"}, {"level3", "bf16"}}) {
    for (const Case& layout : cases) {
      if (number++ % stride(1) != 0) continue;
      const char* threshold = word == std::string("level2") ? "4" : "0";
      INFO(text_of(layout) << " " << word << " " << masters);
      std::mutex mutex;
      std::map<int, Uses> uses;
      std::int64_t max_state = 0;
      std::int64_t planned_state = 0;
      std::int64_t max_parameters = 0;
      std::int64_t planned_parameters = 0;
      bool dealt = false;
      SampleRun run{.set_options = layout.layout + level(word),
                    .ranks = layout.ranks,
                    .steps = 3,
                    .world = {}};
      run.set_options.push_back("precision.compute=bf16");
      run.set_options.push_back("optimizer.main_params_dtype=" + std::string(masters));
      run.set_options.push_back("parallel.parallel_optimizer.threshold=" + std::string(threshold));
      run.wrap = [&](World& world) {
        const std::lock_guard lock(mutex);
        return std::make_unique<CountingWorld>(world, uses[world.rank()]);
      };
      run.inspect = [&](Engine& engine, const Plan& plan, World& world) {
        const std::lock_guard lock(mutex);
        const StagePlan& stage = plan.stage_of(world.rank());
        const std::int64_t state = state_bytes(engine.parameters(), 2);
        dealt = stage.shards.front().kind == ShardKind::dealt;
        if (!dealt) CHECK(state == stage.memory.optimizer);
        const MemoryEstimate held = engine.memory();
        if (!dealt) CHECK(held.parameters == stage.memory.parameters);
        CHECK(held.gradients == stage.memory.gradients);
        max_parameters = std::max(max_parameters, held.parameters);
        planned_parameters = stage.memory.parameters;
        max_state = std::max(max_state, state);
        planned_state = stage.memory.optimizer;
        const char* exchange = dealt ? "broadcast parameters" : "all_gather parameters";
        CHECK(planned(stage, exchange).bytes > 0);
        for (const char* name : {"all_reduce gradients", "reduce_scatter gradients",
                                 "all_gather parameters", "broadcast parameters"}) {
          INFO("rank " << world.rank() << " " << name);
          Use use = planned(stage, name);
          const Use slices = planned(stage, "all_reduce gradient slices");
          if (name == std::string("all_reduce gradients")) {
            use = {use.count + slices.count, use.bytes + slices.bytes};
          }
          // Weights that stay are gathered once more before the replicas are compared.
          const bool again = std::string(name).ends_with("parameters") && word[5] != '3';
          const int times = again ? 4 : 3;
          CHECK(uses[world.rank()][name].count == times * use.count);
          CHECK(uses[world.rank()][name].bytes == times * use.bytes);
        }
      };
      train_sample(run);
      if (dealt) CHECK(max_state == planned_state);
      if (dealt) CHECK(max_parameters == planned_parameters);
    }
  }
}

TEST_CASE("the state of rows is divided by the replicas") {
  std::int64_t held = 0;
  SampleRun run{.set_options = rows + on, .ranks = 4, .steps = 1, .world = {}};
  std::int64_t expected = 0;
  run.inspect = [&](Engine& engine, const Plan& plan, World& world) {
    if (world.rank() != 0) return;
    held = state_bytes(engine.parameters(), 2);
    for (const ParamSpec& row : plan.stages[0].parameters) {
      expected += row.shape.numel() * 8 / (row.name.ends_with(".bias") ? 1 : 4);
    }
  };
  train_sample(run);
  CHECK(held == expected);
}

TEST_CASE("bytes of parameters, gradients and state on a rank") {
  // Wide blocks, so that biases and norms count little.
  const Options model{"precision.compute=bf16",    "model.num_layers=4",
                      "model.hidden_size=128",     "model.ffn_hidden_size=512",
                      "train.micro_batch_size=1",  "model.tie_word_embeddings=false",
                      "parallel.bucket_size=20000"};
  struct Level {
    const char* word;
    const char* masters;
    double whole, divided;  // bytes of each parameter: on every rank, and divided among them
  };
  for (const Level& one : {Level{"level1", "fp32", 6, 12},
                           {"level2", "fp32", 2, 16},
                           {"level3", "fp32", 0, 16},
                           {"level1", "bf16", 6, 8},
                           {"level2", "bf16", 2, 12},
                           {"level3", "bf16", 0, 14}}) {
    for (const int ranks : some_of({2, 1, 4, 8})) {
      INFO(one.word << " " << one.masters << " on " << ranks);
      SampleRun run{
          .set_options = rows + model + level(one.word), .ranks = ranks, .steps = 1, .world = {}};
      run.set_options.push_back("optimizer.main_params_dtype=" + std::string(one.masters));
      run.inspect = [&](Engine& engine, const Plan& plan, World& world) {
        if (world.rank() != 0) return;
        const MemoryEstimate held = engine.memory();
        const StagePlan& stage = plan.stages[0];
        CHECK(held.parameters == stage.memory.parameters);
        CHECK(held.gradients == stage.memory.gradients);
        CHECK(held.optimizer == stage.memory.optimizer);
        if (ranks == 1) return;
        const auto count = static_cast<double>(plan.parameter_count());
        const auto rings =
            static_cast<double>(stage.weight_ring.length + 4 * stage.gradient_ring.length);
        const auto bytes = static_cast<double>(held.parameters + held.gradients + held.optimizer);
        CHECK(bytes - rings == Approx(count * (one.whole + one.divided / ranks)).epsilon(0.1));
      };
      train_sample(run);
    }
  }
}

TEST_CASE("a bad update is left out on every rank", "[threads]") {
  for (const Case& layout : {cases[1], cases[3], cases[6]}) {
    INFO(text_of(layout));
    Hooks hooks;
    hooks.finalize_model_grads = [calls = std::make_shared<std::map<ParamStore*, int>>(),
                                  mutex = std::make_shared<std::mutex>()](ParamStore& store) {
      const std::lock_guard lock(*mutex);
      if (++(*calls)[&store] != 2) return;
      for (int i = 0; i < std::ssize(store.table()); ++i) {
        const Tensor gradient = store.gradient(i);
        std::fill_n(gradient.as<float>(), gradient.numel(), NAN);
      }
    };
    const auto reports =
        train_sample({.set_options = layout.layout + on + Options{"train.on_bad_loss=skip"},
                      .ranks = layout.ranks,
                      .steps = 4,
                      .world = {},
                      .hooks = hooks});
    CHECK_FALSE(reports[0].skipped);
    CHECK(reports[1].skipped);
    CHECK_FALSE(reports[2].skipped);
    CHECK(std::isfinite(reports[3].loss));
  }
}

TEST_CASE("fewer ranks that share a copy of the state hold more of it and sum their slices") {
  const auto held = [](const Options& options) {
    std::pair<std::int64_t, std::int64_t> bytes;
    SampleRun run{.set_options = rows + on + options, .ranks = 4, .steps = 1, .world = {}};
    run.inspect = [&](Engine& engine, const Plan& plan, World& world) {
      if (world.rank() != 0) return;
      bytes = {state_bytes(engine.parameters(), 2),
               planned(plan.stages[0], "all_reduce gradient slices").bytes};
    };
    train_sample(run);
    return bytes;
  };
  const auto all = held({});
  const auto two = held({"parallel.parallel_optimizer.weight_shard_size=2"});
  CHECK(all.second == 0);
  CHECK(two.second > 0);
  CHECK(two.first > all.first * 3 / 2);
}
