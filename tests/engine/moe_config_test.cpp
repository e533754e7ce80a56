// A step of a model under MindFormers' section moe_config, on one rank and on several, against a
// script in fp64 (tests/reference/make_moe_config.py).
#include <algorithm>
#include <cmath>

#include "base/at.h"
#include "catch.h"
#include "comm/world.h"
#include "config/read/read.h"
#include "engine/engine.h"
#include "plan/prepare/make_plan.h"
#include "verify/record.h"
#include "weights/safetensors.h"

using namespace trainctl;

namespace {

constexpr double bound = 1e-5;  // of the largest element

using Options = std::vector<std::string>;

std::string reference(const std::string& name) {
  return std::string(TRAINCTL_SOURCE_DIR) + "/tests/reference/" + name;
}

template <class T>
std::vector<T> values_in(const SafetensorsFile& file, const std::string& name) {
  const Tensor tensor = file.at(name);
  return {tensor.as<T>(), tensor.as<T>() + tensor.numel()};
}

/// The sequences of a micro-batch of this replica.
Batch batch_of(const SafetensorsFile& file, const Plan& plan, std::int64_t first) {
  const std::int64_t length = plan.model.seq_length;
  const auto tokens = values_in<std::int32_t>(file, "tokens");
  const auto labels = values_in<std::int32_t>(file, "labels");
  Batch batch;
  batch.length = length;
  batch.real.assign(static_cast<std::size_t>(plan.micro_batch_size), length);
  for (std::int64_t i = first * length; i < (first + plan.micro_batch_size) * length; ++i) {
    batch.tokens.push_back(tokens.at(static_cast<std::size_t>(i)));
    batch.labels.push_back(labels.at(static_cast<std::size_t>(i)));
    batch.position.push_back(static_cast<std::int32_t>(i % length));
    batch.document.push_back(0);
    batch.loss_weight.push_back(1);
    batch.global_token.push_back(i);
    batch.weight_sum += 1;
  }
  return batch;
}

/// Whole tensors that the script has under a prefix.
WholeTensors whole(const SafetensorsFile& file, const std::string& prefix) {
  WholeTensors tensors;
  for (const auto& [name, entry] : file.entries()) {
    if (name.starts_with(prefix)) {
      tensors[name.substr(prefix.size())] = values_in<float>(file, name);
    }
  }
  return tensors;
}

/// Each part of a tensor that a rank holds is the right one.
void check_parts(const ParamStore& store, const Mesh& mesh, std::int64_t rank,
                 const WholeTensors& expected) {
  for (int i = 0; i < static_cast<int>(store.table().size()); ++i) {
    const ParamSpec& spec = at(store.table(), i);
    INFO(spec.name << ", rank " << rank);
    const HeldPart held = held_part(store, i, 0);
    const std::vector<float> found = values_of(held.values);
    load_part(spec, mesh, rank, expected.at(spec.name), held);
    const std::vector<float> right = values_of(held.values);
    double most = 0;
    for (std::size_t k = 0; k < right.size(); ++k) {
      most =
          std::max(most, std::abs(static_cast<double>(found[k]) - static_cast<double>(right[k])));
    }
    CHECK(most <= bound * largest_of(expected.at(spec.name)));
  }
}

void check_step(const Options& options, int ranks) {
  const SafetensorsFile file(reference("moe_config.safetensors"));
  const double loss = values_in<double>(file, "loss").front();
  const double balance = values_in<double>(file, "balance_loss").front();
  const double norm = values_in<double>(file, "norm").front();
  std::mutex one_at_a_time;
  run_thread_world(ranks, {}, [&](World& world) {
    Options all{"parallel.threads_per_rank=1"};
    all.insert(all.end(), options.begin(), options.end());
    ReadResult read = read_config(reference("moe_config.yaml"), all);
    const Plan plan =
        make_plan(read.config, {.world_size = world.size(), .ranks_per_host = world.size()},
                  read.sources, read.diagnostics);
    if (read.diagnostics.has_errors()) throw std::logic_error(render_text(read.diagnostics, false));
    Engine engine({.plan = plan,
                   .train = read.config.train,
                   .optimizer = read.config.optimizer,
                   .lr_schedule = read.config.lr_schedule,
                   .deadline_seconds = 30},
                  world);
    engine.initialise();
    const WholeTensors start = whole(file, "param.");
    ParamStore& store = engine.parameters();
    for (int i = 0; i < static_cast<int>(store.table().size()); ++i) {
      const ParamSpec& spec = at(store.table(), i);
      load_part(spec, plan.mesh, world.rank(), start.at(spec.name), held_part(store, i, 0));
    }
    engine.masters_changed();
    std::vector<Batch> batches;
    for (std::int64_t m = 0; m < plan.microbatches; ++m) {
      const std::int64_t replica = plan.mesh.coordinate(world.rank(), Axis::dp);
      batches.push_back(batch_of(file, plan, (m * plan.mesh.dp + replica) * plan.micro_batch_size));
    }
    const StepReport report = engine.train_step(batches);
    const std::lock_guard lock(one_at_a_time);  // Catch is not for several threads
    CHECK(report.loss == Approx(loss).epsilon(bound));
    CHECK(report.grad_norm == Approx(norm).epsilon(bound));
    REQUIRE(report.router.has_value());
    CHECK(report.router->balance_loss == Approx(balance).epsilon(bound));
    CHECK(report.router->dropped > 0);
    check_parts(store, plan.mesh, world.rank(), whole(file, "after."));
  });
}

}  // namespace

TEST_CASE("a step under moe_config is that of TopkRouter, on one rank and on four", "[threads]") {
  check_step({}, 1);
  check_step({"parallel.tensor_parallel=2", "parallel.expert_parallel=2"}, 4);
  check_step({"parallel.tensor_parallel=2", "parallel.sequence_parallel=true",
              "parallel.expert_parallel=2", "moe.group_wise_a2a=true"},
             4);
  check_step({"parallel.context_parallel=2", "parallel.expert_parallel=4"}, 4);
}
