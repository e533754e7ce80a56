// Saving and loading: a run that is cut in two equals one that is not, and a checkpoint of any
// layout loads into any other.
#include "checkpoint/load.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <set>

#include "base/error.h"
#include "catch.h"
#include "checkpoint/inspect.h"
#include "checkpoint/saver.h"
#include "comm/group.h"
#include "config/read/read.h"
#include "equal_gradients.h"
#include "plan/tables/model.h"
#include "sample_run.h"
#include "temp_folder.h"
#include "thorough.h"

using namespace trainctl;
namespace fs = std::filesystem;

namespace {

using Options = std::vector<std::string>;

struct Setup {
  int ranks = 1;
  Options options;
};

const Options sharded{"parallel.parallel_optimizer.enable=true",
                      "parallel.parallel_optimizer.threshold=0",
                      "parallel.parallel_optimizer.gradient_accumulation_shard=false",
                      "parallel.parallel_mode=hybrid_parallel"};

const Options narrow_moments{"optimizer.exp_avg_dtype=bf16", "optimizer.exp_avg_sq_dtype=bf16"};

std::vector<Setup> layouts() {
  return {
      {1, {}},
      {2, {"parallel.tensor_parallel=2"}},
      {4, {"parallel.tensor_parallel=2", "parallel.sequence_parallel=true"}},
      {2, {"parallel.pipeline_stages=2", "train.micro_batch_size=2"}},
      {4, sharded},
      {4, with(sharded, {"parallel.bucket_rule=megatron"})},
      {4, {"parallel.parallel_mode=data_parallel", "parallel.parallel_optimizer.enable=true"}},
      {8, with(sharded, {"parallel.tensor_parallel=2", "parallel.pipeline_stages=2",
                         "train.micro_batch_size=1"})},
      {4, with(sharded, {"parallel.tensor_parallel=2", "parallel.vocab_emb_dp=true"})},
      {4, {"parallel.pipeline_stages=2", "parallel.tensor_parallel=2"}},
  };
}

struct Cut {
  fs::path run;
  Setup first, then;
  int at = 3;
  bool in_background = false;
  DType compute = DType::f32;
};

Config config_of(const Options& options) {
  return read_config_text(sample_yaml(), "sample.yaml", options).config;
}

SampleRun sample_run(const Setup& setup, int steps) {
  SampleRun run;
  run.set_options = setup.options;
  run.ranks = setup.ranks;
  run.steps = steps;
  return run;
}

/// The values that all ranks own together.
class Gathered {
 public:
  void add(Engine& engine, const Plan& plan, const World& world) {
    const std::lock_guard lock(mutex_);
    join(all, owned_values(engine.parameters(), plan, world.rank()));
  }
  Tensors all;

 private:
  std::mutex mutex_;
};

/// A run of `at` steps that ends with a checkpoint.
std::vector<StepReport> run_and_save(const Cut& cut, Gathered* gathered = nullptr) {
  SampleRun run = sample_run(cut.first, cut.at);
  run.inspect = [&](Engine& engine, const Plan& plan, World& world) {
    if (gathered != nullptr) gathered->add(engine, plan, world);
    const auto everyone = world.everyone("checkpoint");
    const Config config = config_of(cut.first.options);
    Saver saver({.plan = plan,
                 .config = config,
                 .config_text = "of the test\n",
                 .store = engine.parameters(),
                 .everyone = *everyone,
                 .run = cut.run});
    saver.save({.state = engine.train_state(), .loss = 1.5, .val_loss = std::nullopt},
               cut.in_background);
    saver.finish();
    if (saver.saved_step() != cut.at) throw Error(ExitCode::internal, "not saved");
  };
  return train_sample(run);
}

/// `gathered`: before the first step.
std::vector<StepReport> load_and_run(const Cut& cut, int steps, Gathered* gathered = nullptr) {
  const fs::path from = CheckpointFolder(cut.run).of(cut.at);
  const Manifest manifest = read_manifest(from);
  SampleRun run = sample_run(cut.then, steps);
  run.first_step = cut.at;
  run.prepare = [&](Engine& engine, const Plan& plan, World& world) {
    const OptimizerConfig optimizer = config_of(cut.then.options).optimizer;
    check_fits(manifest, from, plan, optimizer);
    load_checkpoint(manifest, from, plan, optimizer, world.rank(), engine.parameters());
    engine.resume(manifest.state);
    if (gathered != nullptr) gathered->add(engine, plan, world);
  };
  return train_sample(run);
}

/// The state that a resumed run begins with: the names of begun_parameters, and the sum of squares
/// of the first value that the optimizer keeps of each parameter.
struct Begun {
  std::vector<std::string> names;
  std::map<std::string, double> squares;
};

Begun begin_from(const Cut& cut) {
  const fs::path from = CheckpointFolder(cut.run).of(cut.at);
  const Manifest manifest = read_manifest(from);
  SampleRun run = sample_run(cut.then, 1);
  Begun begun;
  std::mutex mutex;
  run.prepare = [&](Engine& engine, const Plan& plan, World& world) {
    const OptimizerConfig optimizer = config_of(cut.then.options).optimizer;
    check_fits(manifest, from, plan, optimizer);
    load_checkpoint(manifest, from, plan, optimizer, world.rank(), engine.parameters());
    engine.resume(manifest.state);
    const std::lock_guard lock(mutex);
    begun.names = begun_parameters(manifest, plan, optimizer);
    const ParamStore& store = engine.parameters();
    for (int i = 0; i < static_cast<int>(store.table().size()); ++i) {
      const Tensor kept = store.state(i, 0);
      double& sum = begun.squares[store.table()[static_cast<std::size_t>(i)].name];
      for (std::int64_t k = 0; k < kept.numel(); ++k) {
        sum += double{kept.as<float>()[k]} * double{kept.as<float>()[k]};
      }
    }
  };
  train_sample(run);
  return begun;
}

void check_equal(const StepReport& a, const StepReport& b) {
  CHECK(a.step == b.step);
  CHECK(a.loss == b.loss);
  CHECK((a.grad_norm == b.grad_norm || (std::isnan(a.grad_norm) && std::isnan(b.grad_norm))));
  CHECK(a.lr == b.lr);
  CHECK(a.tokens == b.tokens);
  CHECK(a.loss_scale == b.loss_scale);
}

}  // namespace

TEST_CASE("a run cut in two has the numbers of one that is not", "[load][threads]") {
  std::vector<Setup> all = layouts();
  all.push_back({1, {"precision.compute=fp16", "precision.initial_loss_scale=1.0e7"}});
  all.push_back({2, {"precision.compute=bf16"}});
  all.push_back({1, {"optimizer.type=sgd"}});
  all.push_back({1, {"optimizer.type=sgd", "optimizer.momentum=0"}});
  all.push_back({1, {"optimizer.type=lion", "optimizer.exp_avg_dtype=bf16"}});
  all.push_back({1, narrow_moments});
  all.push_back({4, with(sharded, {"precision.compute=bf16", "optimizer.main_params_dtype=bf16"})});
  all.push_back({4, with(with(sharded, narrow_moments), {"parallel.tensor_parallel=2"})});
  for (const Setup& layout : some_of(all)) {
    CAPTURE(layout.ranks, layout.options);
    const TempFolder temp;
    const Cut cut{.run = temp.path(),
                  .first = layout,
                  .then = layout,
                  .in_background = layout.ranks % 4 == 0};
    const auto whole = train_sample(sample_run(layout, 2 * cut.at));
    run_and_save(cut);
    const auto second = load_and_run(cut, cut.at);
    REQUIRE(second.size() == 3);
    for (std::size_t i = 0; i < 3; ++i) check_equal(second[i], whole[3 + i]);
  }
}

TEST_CASE("a checkpoint of any layout loads into any other", "[load][threads]") {
  const std::vector<Setup> all = layouts();
  for (std::size_t i = 0; i < all.size(); i += brief() ? 3 : 1) {
    const TempFolder temp;
    Cut cut{.run = temp.path(), .first = all[i], .then = {}};
    run_and_save(cut);
    std::vector<StepReport> expected;
    for (std::size_t j = 0; j < all.size(); ++j) {
      if (!thorough() && (j + i) % 5 != 0) continue;
      cut.then = all[j];
      CAPTURE(all[i].options, all[j].options);
      const auto second = load_and_run(cut, 2);
      if (expected.empty())
        expected = load_and_run({.run = cut.run, .first = all[i], .then = all[0]}, 2);
      for (std::size_t step = 0; step < 2; ++step) {
        CHECK(second[step].loss == Approx(expected[step].loss).epsilon(1e-5));
        CHECK(second[step].grad_norm == Approx(expected[step].grad_norm).epsilon(2e-4));
      }
    }
  }
}

TEST_CASE("lion resumes in another layout", "[load][threads]") {
  const TempFolder temp;
  const Options lion{"optimizer.type=lion", "lr_schedule.max_lr=1e-3", "lr_schedule.min_lr=0"};
  Cut cut{.run = temp.path(),
          .first = {4, with(sharded, with(lion, {"parallel.tensor_parallel=2"}))},
          .then = {4, with(sharded, with(lion, {"parallel.tensor_parallel=2"}))}};
  run_and_save(cut);
  const auto expected = load_and_run(cut, 3);
  const Manifest manifest = read_manifest(CheckpointFolder(cut.run).of(cut.at));
  CHECK(manifest.optimizer == "lion");
  std::set<std::string> values;
  for (const SavedTensor& tensor : manifest.tensors) values.insert(tensor.value);
  CHECK(values == std::set<std::string>{"exp_avg", "parameters"});
  cut.then = {2, with(lion, {"parallel.pipeline_stages=2", "train.micro_batch_size=2"})};
  const auto found = load_and_run(cut, 3);
  for (std::size_t step = 0; step < 3; ++step) {
    CHECK(found[step].loss == Approx(expected[step].loss).epsilon(1e-5));
    CHECK(found[step].grad_norm == Approx(expected[step].grad_norm).epsilon(2e-4));
  }
}

TEST_CASE("what muon keeps has the same bytes in any other layout", "[load][threads]") {
  // No rows of padding, which no checkpoint has.
  const Options muon{"optimizer.type=muon", "optimizer.ema_decay=0.9",
                     "moe.num_experts=4",   "model.add_bias_linear=false",
                     "model.vocab_size=64", "model.make_vocab_size_divisible_by=16"};
  const Setup all[] = {
      {1, {}},
      {2, {"parallel.tensor_parallel=2", "parallel.sequence_parallel=true"}},
      {2, {"parallel.pipeline_stages=2", "train.micro_batch_size=2"}},
      {2, {"parallel.context_parallel=2"}},
      {4, with(sharded, {"parallel.tensor_parallel=2", "parallel.expert_parallel=2"})},
      {4, with(sharded, {"parallel.bucket_rule=megatron", "parallel.expert_parallel=4"})},
      {4, {"parallel.parallel_mode=data_parallel", "parallel.parallel_optimizer.enable=true"}},
      {4, with(sharded, {"parallel.parallel_optimizer.gradient_accumulation_shard=true",
                         "parallel.parallel_optimizer.optimizer_level=level3"})}};
  constexpr std::size_t count = std::size(all);
  for (std::size_t i = 0; i < count; i += brief() ? 3 : 1) {
    const TempFolder temp;
    Cut cut{.run = temp.path(),
            .first = {all[i].ranks, with(muon, all[i].options)},
            .then = {},
            .at = 2};
    Gathered saved;
    run_and_save(cut, &saved);
    for (std::size_t j = 0; j < count; ++j) {
      if (!thorough() && (i + j) % 4 != 3) continue;
      CAPTURE(all[i].options, all[j].options);
      cut.then = {all[j].ranks, with(muon, all[j].options)};
      Gathered loaded;
      load_and_run(cut, 0, &loaded);
      CHECK(loaded.all.size() == saved.all.size());
      CHECK(different_bits(loaded.all, saved.all).empty());
      CHECK(different_bits(saved.all, loaded.all).empty());
    }
  }
}

TEST_CASE("the average of weights is saved, and begins as the weights", "[load][threads]") {
  const TempFolder temp;
  const Options averaged{"optimizer.ema_decay=0.9"};
  Cut cut{.run = temp.path(),
          .first = {4, with(sharded, with(averaged, {"parallel.tensor_parallel=2"}))},
          .then = {2, with(averaged, {"parallel.pipeline_stages=2", "train.micro_batch_size=2"})}};
  run_and_save(cut);
  const fs::path from = CheckpointFolder(cut.run).of(cut.at);
  CHECK(has_averages(read_manifest(from)));
  const auto model = model_shape(config_of(averaged).model);
  const auto weights = open_weights(from, model);
  const auto averages = open_weights(from, model, true);
  const MatrixBox begin{.row = 0, .rows = 4, .column = 0, .columns = 4};
  std::array<float, 16> trained{};
  std::array<float, 16> average{};
  weights->read("embedding.token.weight", begin, trained.data());
  averages->read("embedding.token.weight", begin, average.data());
  CHECK(trained != average);
  CHECK(load_and_run(cut, 2).size() == 2);

  const TempFolder other;
  cut.run = other.path();
  cut.first.options = sharded;
  run_and_save(cut);
  const Manifest plain = read_manifest(CheckpointFolder(cut.run).of(cut.at));
  CHECK_FALSE(has_averages(plain));
  SampleRun run = sample_run(cut.then, 1);
  bool alike = true;
  std::mutex mutex;
  run.prepare = [&](Engine& engine, const Plan& plan, World& world) {
    const OptimizerConfig optimizer = config_of(averaged).optimizer;
    const fs::path at = CheckpointFolder(cut.run).of(cut.at);
    check_fits(plain, at, plan, optimizer);
    load_checkpoint(plain, at, plan, optimizer, world.rank(), engine.parameters());
    engine.resume(plain.state);
    const std::lock_guard lock(mutex);
    const ParamStore& store = engine.parameters();
    for (int i = 0; i < static_cast<int>(store.table().size()); ++i) {
      const Tensor kept = store.average(i);
      const Tensor master = store.master(i);
      alike = alike && !kept.empty() &&
              std::equal(kept.as<float>(), kept.as<float>() + kept.numel(), master.as<float>());
    }
  };
  train_sample(run);
  CHECK(alike);
  CHECK_THROWS_WITH(open_weights(CheckpointFolder(cut.run).of(cut.at), model, true),
                    Catch::Contains("optimizer.ema_decay"));
}

TEST_CASE("groups of several optimizers go on in another layout", "[load][threads]") {
  const TempFolder temp;
  const Options groups{
      "optimizer.momentum=0.8",
      "optimizer.groups=[{match: \"*norm*\", type: sgd, lr_mult: 0.5, wd_mult: 1}, "
      "{match: [\"*.mlp.*\", \"embedding.*\"], type: lion, lr_mult: 0.1}]"};
  Cut cut{.run = temp.path(),
          .first = {4, with(sharded, with(groups, {"parallel.tensor_parallel=2"}))},
          .then = {4, with(sharded, with(groups, {"parallel.tensor_parallel=2"}))}};
  run_and_save(cut);
  const auto expected = load_and_run(cut, 3);
  const Manifest manifest = read_manifest(CheckpointFolder(cut.run).of(cut.at));
  CHECK(manifest.find("layers.0.norm1.weight", "momentum") != nullptr);
  CHECK(manifest.find("layers.0.norm1.weight", "exp_avg") == nullptr);
  CHECK(manifest.find("layers.0.mlp.up.weight", "exp_avg") != nullptr);
  CHECK(manifest.find("layers.0.mlp.up.weight", "exp_avg_sq") == nullptr);
  CHECK(manifest.find("layers.0.attention.q.weight", "exp_avg_sq") != nullptr);
  cut.then = {2, with(groups, {"parallel.pipeline_stages=2", "train.micro_batch_size=2"})};
  const auto found = load_and_run(cut, 3);
  for (std::size_t step = 0; step < 3; ++step) {
    CHECK(found[step].loss == Approx(expected[step].loss).epsilon(1e-5));
    CHECK(found[step].grad_norm == Approx(expected[step].grad_norm).epsilon(2e-4));
  }
}

TEST_CASE("values that only the new optimizer keeps begin at 0, and common ones are resumed",
          "[load][threads]") {
  const Options adamw{"parallel.tensor_parallel=2"};
  const Options muon{"optimizer.type=muon", "parallel.pipeline_stages=2",
                     "train.micro_batch_size=2"};
  const std::string matrix = "layers.0.attention.q.weight";
  const std::string norm = "layers.0.norm1.weight";
  const TempFolder temp;
  Cut cut{.run = temp.path(), .first = {2, adamw}, .then = {2, muon}};
  run_and_save(cut);
  const Begun changed = begin_from(cut);
  CHECK(changed.squares.at(matrix) == 0);
  CHECK(changed.squares.at(norm) > 0);
  CHECK(std::ranges::count(changed.names, matrix) == 1);
  CHECK(std::ranges::count(changed.names, norm) == 0);
  CHECK(load_and_run(cut, 2).size() == 2);

  const TempFolder other;
  cut = {.run = other.path(), .first = {2, muon}, .then = {2, muon}};
  run_and_save(cut);
  const Begun same = begin_from(cut);
  CHECK(same.names.empty());
  CHECK(same.squares.at(matrix) > 0);
  CHECK(same.squares.at(norm) > 0);
  // Both have a value of the name momentum, and mean another.
  cut.then = {2, with(adamw, {"optimizer.type=sgd"})};
  const Begun alike = begin_from(cut);
  CHECK(alike.squares.at(matrix) == 0);
  CHECK(alike.squares.at(norm) == 0);
  // A version that names the optimizer of the whole run alone.
  cut.then = {2, muon};
  const fs::path from = CheckpointFolder(cut.run).of(cut.at);
  Manifest old = read_manifest(from);
  for (SavedTensor& tensor : old.tensors) tensor.optimizer.clear();
  std::ofstream(from / "manifest.json") << manifest_text(old);
  CHECK(begin_from(cut).names.empty());
}

TEST_CASE("moments are saved in their types and load into others", "[load][threads]") {
  const TempFolder temp;
  const Setup narrow{4, with(narrow_moments, {"parallel.tensor_parallel=2"})};
  Cut cut{.run = temp.path(), .first = narrow, .then = narrow};
  run_and_save(cut);
  const fs::path from = CheckpointFolder(cut.run).of(cut.at);
  const Manifest manifest = read_manifest(from);
  for (const SavedTensor& tensor : manifest.tensors) {
    CHECK(tensor.dtype == (tensor.value == "parameters" ? DType::f32 : DType::bf16));
  }
  CHECK(verify_checkpoint(from).empty());
  const auto expected = load_and_run(cut, 1);
  // Every bf16 number is one of fp32: the first step has the same loss and gradients.
  for (const Setup& other : {Setup{2, {"parallel.pipeline_stages=2"}}, Setup{2, sharded}}) {
    cut.then = other;
    const auto found = load_and_run(cut, 1);
    CHECK(found[0].loss == Approx(expected[0].loss).epsilon(1e-6));
    CHECK(found[0].grad_norm == Approx(expected[0].grad_norm).epsilon(1e-5));
  }
  // And back: what was saved in fp32 is rounded.
  const TempFolder other;
  Cut wide{.run = other.path(), .first = {2, {}}, .then = narrow};
  run_and_save(wide);
  CHECK(read_manifest(CheckpointFolder(wide.run).of(wide.at)).bytes() > manifest.bytes() * 5 / 4);
  const auto rounded = load_and_run(wide, 1);
  wide.then = wide.first;
  CHECK(rounded[0].loss == Approx(load_and_run(wide, 1)[0].loss).epsilon(1e-6));
}

TEST_CASE("matrices are saved in their type and load into others", "[load][threads]") {
  const Options compute{"precision.compute=bf16"};
  const Options narrow = with(compute, {"optimizer.main_params_dtype=bf16"});
  const TempFolder temp;
  Cut cut{.run = temp.path(), .first = {2, narrow}, .then = {2, narrow}};
  run_and_save(cut);
  const fs::path from = CheckpointFolder(cut.run).of(cut.at);
  for (const SavedTensor& tensor : read_manifest(from).tensors) {
    const bool matrix = tensor.value == "parameters" && tensor.shape.rank() > 1;
    CHECK(tensor.dtype == (matrix ? DType::bf16 : DType::f32));
  }
  CHECK(verify_checkpoint(from).empty());
  const auto expected = load_and_run(cut, 1);
  // Products read the same values, whether these are rounded from masters or are the masters.
  cut.then = {2, compute};
  CHECK(load_and_run(cut, 1)[0].loss == expected[0].loss);
  const TempFolder other;
  Cut wide{.run = other.path(), .first = {2, compute}, .then = {2, narrow}};
  run_and_save(wide);
  const auto rounded = load_and_run(wide, 1);
  wide.then = wide.first;
  CHECK(rounded[0].loss == load_and_run(wide, 1)[0].loss);
}

TEST_CASE("data that is damaged or does not fit is refused", "[load][threads]") {
  using Catch::Matchers::Contains;
  const TempFolder temp;
  const Cut cut{
      .run = temp.path(), .first = {2, {"parallel.tensor_parallel=2"}}, .then = {}, .at = 1};
  run_and_save(cut);
  const fs::path from = CheckpointFolder(cut.run).of(1);
  const auto message = [&](const Cut& load) {
    try {
      load_and_run(load, 1);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  CHECK(message(cut) == "accepted");
  SECTION("another width") {
    Cut wide = cut;
    wide.then.options = {"model.hidden_size=64"};
    CHECK_THAT(message(wide), Contains("does not fit the configuration"));
    CHECK_THAT(message(wide), Contains("parameters of embedding.token.weight is [61, 32] in the "
                                       "checkpoint and [61, 64] in the model"));
  }
  SECTION("a value of an optimizer that has others of the parameter") {
    Manifest manifest = read_manifest(from);
    std::erase_if(manifest.tensors, [](const SavedTensor& tensor) {
      return tensor.value == "exp_avg_sq" && tensor.name == "embedding.token.weight";
    });
    std::ofstream(from / "manifest.json") << manifest_text(manifest);
    CHECK_THAT(message(cut), Contains("exp_avg_sq of embedding.token.weight [61, 32] is missing"));
  }
  SECTION("a flipped byte") {
    const fs::path file = from / "rank-00001.safetensors";
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    const auto size = static_cast<std::streamoff>(fs::file_size(file));
    stream.seekp(size - 3);
    stream.put('\x55');
    stream.close();
    CHECK_THAT(message(cut), Contains("rank-00001.safetensors: exp_avg_sq of "));
    CHECK_THAT(message(cut), Contains("is damaged"));
  }
  SECTION("a file cut short") {
    fs::resize_file(from / "rank-00000.safetensors", 1000);
    CHECK_THAT(message(cut), Contains("rank-00000.safetensors has 1000 bytes; the manifest says"));
  }
  SECTION("a missing file") {
    fs::remove(from / "rank-00000.safetensors");
    CHECK_THAT(message(cut), Contains("rank-00000.safetensors is missing"));
  }
  SECTION("a link") {
    fs::rename(from / "rank-00000.safetensors", temp.path() / "elsewhere");
    fs::create_symlink(temp.path() / "elsewhere", from / "rank-00000.safetensors");
    CHECK_THAT(message(cut), Contains("is not a regular file"));
  }
  SECTION("headers that do not agree with the manifest") {
    const auto with_length = [&](std::uint64_t length) {
      std::fstream stream(from / "rank-00000.safetensors",
                          std::ios::in | std::ios::out | std::ios::binary);
      stream.write(reinterpret_cast<const char*>(&length), sizeof length);
      stream.close();
      const std::vector<std::string> wrong = verify_checkpoint(from);
      return wrong.empty() ? "accepted" : wrong.front();
    };
    CHECK(verify_checkpoint(from).empty());
    CHECK_THAT(with_length(std::uint64_t{1} << 62), Contains("rank-00000.safetensors"));
    CHECK_THAT(with_length(8), Contains("rank-00000.safetensors"));
    CHECK(message(cut) == "accepted");  // the values themselves are whole
  }
  SECTION("another strategy.json") {
    std::ofstream(from / "strategy.json") << "other";
    CHECK_THAT(message(cut), Contains("strategy.json does not have the hash"));
  }
  SECTION("a checkpoint of format version 1") {
    Manifest manifest = read_manifest(from);
    manifest.strategy_hash.reset();
    std::ofstream(from / "manifest.json") << manifest_text(manifest);
    fs::remove(from / "strategy.json");
    CHECK(message(cut) == "accepted");
  }
  SECTION("another config.yaml") {
    std::ofstream(from / "config.yaml") << "other";
    CHECK_THAT(message(cut), Contains("config.yaml does not have the hash"));
  }
}

TEST_CASE("a save that fails leaves nothing, and the next one succeeds", "[load][threads]") {
  const TempFolder temp;
  SampleRun run = sample_run({2, {}}, 1);
  run.inspect = [&](Engine& engine, const Plan& plan, World& world) {
    const auto everyone = world.everyone("checkpoint");
    const Config config = config_of({});
    Saver saver({.plan = plan,
                 .config = config,
                 .config_text = "",
                 .store = engine.parameters(),
                 .everyone = *everyone,
                 .run = temp.path()});
    const CheckpointFolder folder(temp.path());
    SaveMoment moment{.state = engine.train_state(), .loss = {}, .val_loss = {}};
    // Something already has the name of rank 1's file.
    if (world.rank() == 0) fs::create_directories(folder.partial(1, 0) / "rank-00001.safetensors");
    gather_values(*everyone, 0.0);
    saver.save(moment, true);
    saver.finish();
    if (saver.failures() != 1 || saver.saved_step() != 0) {
      throw Error(ExitCode::internal, "the failure was not seen");
    }
    if (fs::exists(folder.partial(1, 0))) throw Error(ExitCode::internal, "files were left");
    gather_values(*everyone, 0.0);
    saver.save(moment, true);
    while (saver.saved_step() == 0) saver.poll();
  };
  train_sample(run);
  CHECK(CheckpointFolder(temp.path()).complete().size() == 1);
}
