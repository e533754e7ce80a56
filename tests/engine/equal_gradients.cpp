#include "equal_gradients.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <numbers>

#include "base/error.h"
#include "base/integers.h"
#include "base/philox.h"
#include "device/slab.h"
#include "plan/tables/shard.h"

namespace trainctl {

namespace {

bool same_bits(float one, float other) { return std::memcmp(&one, &other, sizeof one) == 0; }

/// Every element that `held` has of a tensor of a parameter, where it lies in the whole.
void take(std::vector<float>& whole, const ParamSpec& spec, const std::vector<BoxRun>& pieces,
          const Tensor& held) {
  const HostValues copy(held);
  std::vector<float> values(static_cast<std::size_t>(held.numel()));
  load_floats(copy.values(), values.data());
  whole.resize(static_cast<std::size_t>(spec.global_shape.numel()), NAN);
  for (const BoxRun& piece : pieces) {
    const auto begin = values.begin() + piece.to;
    // NaN stands for what no rank holds.
    require(std::none_of(begin, begin + piece.length, [](float one) { return std::isnan(one); }),
            ExitCode::internal, spec.name + " has a NaN");
    std::copy_n(begin, piece.length, whole.begin() + piece.from);
  }
}

void set_gradients(ParamStore& store, const Plan& plan, int rank, int step) {
  for (int i = 0; i < static_cast<int>(store.table().size()); ++i) {
    const Slice owned = store.owned(i);
    if (owned.length() == 0) continue;
    const ParamSpec& spec = store.table()[static_cast<std::size_t>(i)];
    const HostValues gradient(store.owned_gradient(i));
    for (const BoxRun& piece : pieces_in(spec, plan.mesh, rank, owned)) {
      for (std::int64_t at = 0; at < piece.length; ++at) {
        gradient.values().as<float>()[piece.to + at] =
            equal_gradient(spec.name, piece.from + at, step);
      }
    }
    gradient.store();
  }
}

}  // namespace

float equal_gradient(const std::string& name, std::int64_t index, int step) {
  const Philox random(static_cast<std::uint64_t>(step), fnv1a(name));
  const double one = (random.bits(static_cast<std::uint64_t>(2 * index)) + 1.0) / 0x1p32;
  const double other = random.bits(static_cast<std::uint64_t>(2 * index + 1)) / 0x1p32;
  return static_cast<float>(std::sqrt(-2 * std::log(one)) * std::cos(2 * std::numbers::pi * other));
}

Tensors owned_values(const ParamStore& store, const Plan& plan, int rank) {
  constexpr int max_states = 3;
  Tensors all;
  for (int i = 0; i < static_cast<int>(store.table().size()); ++i) {
    const Slice owned = store.owned(i);
    if (owned.length() == 0) continue;
    const ParamSpec& spec = store.table()[static_cast<std::size_t>(i)];
    const std::vector<BoxRun> pieces = pieces_in(spec, plan.mesh, rank, owned);
    take(all[spec.name], spec, pieces, store.master(i));
    for (int k = 0; k < max_states; ++k) {
      const Tensor state = store.state(i, k);
      if (!state.empty()) take(all[spec.name + " state " + std::to_string(k)], spec, pieces, state);
    }
  }
  return all;
}

void join(Tensors& all, const Tensors& other) {
  for (const auto& [name, values] : other) {
    std::vector<float>& whole = all[name];
    whole.resize(values.size(), NAN);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (std::isnan(values[i])) continue;
      require(std::isnan(whole[i]) || same_bits(whole[i], values[i]), ExitCode::internal,
              "owners of " + name + " differ at " + std::to_string(i));
      whole[i] = values[i];
    }
  }
}

Tensors owned_after_equal_steps(const EqualSteps& run, World& world) {
  const Plan* plan = nullptr;
  int step = 0;
  Tensors owned;
  SampleRun sample{
      .set_options = with(run.options, {"optimizer.clip_grad_norm=0", "lr_schedule.style=constant",
                                        "lr_schedule.min_lr=0"}),
      .steps = run.steps,
      .world = {},
      .change = run.change};
  sample.prepare = [&](Engine&, const Plan& of_run, World&) { plan = &of_run; };
  sample.hooks.finalize_model_grads = [&](ParamStore& store) {
    set_gradients(store, *plan, world.rank(), step++);
  };
  sample.inspect = [&](Engine& engine, const Plan& of_run, World&) {
    owned = owned_values(engine.parameters(), of_run, world.rank());
  };
  train_sample_rank(sample, world);
  return owned;
}

Tensors after_equal_steps(const EqualSteps& run) {
  std::mutex mutex;
  Tensors all;
  run_thread_world(run.ranks, {}, [&](World& world) {
    const Tensors owned = owned_after_equal_steps(run, world);
    const std::lock_guard lock(mutex);
    join(all, owned);
  });
  for (const auto& [name, values] : all) {
    const bool whole = std::ranges::none_of(values, [](float one) { return std::isnan(one); });
    require(whole, ExitCode::internal, "no rank owns all of " + name);
  }
  return all;
}

std::vector<std::string> different_bits(const Tensors& found, const Tensors& expected) {
  std::vector<std::string> names;
  for (const auto& [name, values] : found) {
    const auto other = expected.find(name);
    const bool same = other != expected.end() &&
                      std::ranges::equal(values, other->second, [](float one, float whole) {
                        return std::isnan(one) || same_bits(one, whole);
                      });
    if (!same) names.push_back(name);
  }
  return names;
}

}  // namespace trainctl
