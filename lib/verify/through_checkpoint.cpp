#include "verify/through_checkpoint.h"

#include <bit>
#include <cmath>
#include <mutex>
#include <vector>

#include "base/at.h"
#include "base/error.h"
#include "checkpoint/load.h"
#include "checkpoint/saver.h"
#include "engine/parameters/optimizer.h"
#include "plan/ownership/saved_parts.h"
#include "plan/rules/resolve.h"
#include "verify/alone.h"
#include "verify/data.h"
#include "verify/verified_rank.h"

namespace trainctl {

namespace {

namespace fs = std::filesystem;

/// Collective; waits until it is complete.
void save(Engine& engine, const VerifiedLayout& layout, const fs::path& run, bool in_background,
          World& world) {
  const auto everyone = world.everyone("checkpoint");
  Saver saver({.plan = layout.plan,
               .config = layout.config,
               .config_text = "",
               .store = engine.parameters(),
               .everyone = *everyone,
               .run = run,
               .deadline_seconds = layout.deadline_seconds});
  const TrainState state = engine.train_state();
  saver.save({.state = state, .loss = std::nullopt, .val_loss = std::nullopt}, in_background);
  saver.finish();
  require(saver.saved_step() == state.step, ExitCode::io,
          "no checkpoint could be saved in " + run.string());
}

/// Returns the state of the run.
TrainState load(Engine& engine, const VerifiedLayout& layout, const fs::path& run,
                std::int64_t step, const Faults& faults, World& world) {
  const fs::path from = CheckpointFolder(run).of(step);
  const Manifest manifest = read_manifest(from);
  const OptimizerConfig& optimizer = layout.config.optimizer;
  check_fits(manifest, from, layout.plan, optimizer);
  load_checkpoint(manifest, from, layout.plan, optimizer, world.rank(), engine.parameters());
  if (faults.loaded) faults.loaded(world.rank(), engine.parameters());
  return manifest.state;
}

/// What some steps reported, and what the rank holds after them.
struct Passage {
  std::vector<StepReport> reports;
  std::vector<std::vector<float>> values;  // by parameter, and by kind of value
};

/// An engine that runs as in training, without comparison.
class FreeRank {
 public:
  FreeRank(const VerifiedLayout& layout, World& world)
      : layout_(layout),
        world_(world),
        engine_(engine_input(layout.config, layout.plan, layout.deadline_seconds), world) {}

  Engine& engine() { return engine_; }

  std::vector<StepReport> take_steps(std::int64_t count) {
    std::vector<StepReport> reports;
    const Plan& plan = layout_.plan;
    const std::int64_t replica = plan.mesh.coordinate(world_.rank(), Axis::dp);
    for (std::int64_t i = 0; i < count; ++i) {
      const TrainState state = engine_.train_state();
      reports.push_back(engine_.train_step(
          made_up_batches(layout_.config, plan.after(state.step), replica, state.samples)));
    }
    engine_.complete_weights();
    return reports;
  }

  /// Without the rows that pad the vocabulary, which are not saved.
  std::vector<std::vector<float>> values() {
    std::vector<std::vector<float>> all;
    const ParamStore& store = engine_.parameters();
    for (int i = 0; i < static_cast<int>(store.table().size()); ++i) {
      const ParamSpec& spec = at(store.table(), i);
      const std::int64_t end = saved_shape(spec, layout_.plan.model).numel();
      for (int kind = 0; kind < kinds(); ++kind) {
        all.push_back(
            part_before(spec, layout_.plan.mesh, world_.rank(), held_part(store, i, kind), end));
      }
    }
    return all;
  }

  int kinds() const {
    return 1 + static_cast<int>(optimizer_values(layout_.config.optimizer).size());
  }

 private:
  const VerifiedLayout& layout_;
  World& world_;
  Engine engine_;
};

bool same_bits(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

/// A rank that went on against one that was not cut.
class BitComparison {
 public:
  BitComparison(const ParamStore& store, int rank, int kinds)
      : store_(store), rank_(rank), kinds_(kinds) {}

  /// The first difference.
  std::optional<Departure> first(const Passage& found, const Passage& expected) const {
    for (std::size_t i = 0; i < found.reports.size(); ++i) {
      if (const auto one = difference(found.reports[i], expected.reports[i])) return one;
    }
    for (std::size_t i = 0; i < found.values.size(); ++i) {
      const std::vector<float>& own = found.values[i];
      const std::vector<float>& other = expected.values[i];
      for (std::size_t k = 0; k < own.size(); ++k) {
        if (same_bits(double{own[k]}, double{other[k]})) continue;
        return departure(of_element(found.reports.back().step, i, k), double{own[k]},
                         double{other[k]});
      }
    }
    return std::nullopt;
  }

 private:
  std::optional<Departure> difference(const StepReport& found, const StepReport& expected) const {
    struct Figure {
      const char* what;
      double found, expected;
    };
    const Figure figures[] = {
        {"loss", found.loss, expected.loss},
        {"grad norm", found.grad_norm, expected.grad_norm},
        {"learning rate", found.lr, expected.lr},
        {"tokens", static_cast<double>(found.tokens), static_cast<double>(expected.tokens)},
        {"positions", static_cast<double>(found.positions),
         static_cast<double>(expected.positions)},
        {"labels", static_cast<double>(found.labels), static_cast<double>(expected.labels)},
        {"loss scale", found.loss_scale.value_or(0), expected.loss_scale.value_or(0)}};
    for (const Figure& row : figures) {
      if (same_bits(row.found, row.expected)) continue;
      Departure where;
      where.step = found.step;
      where.what = row.what;
      return departure(where, row.found, row.expected);
    }
    return std::nullopt;
  }

  Departure of_element(std::int64_t step, std::size_t list, std::size_t element) const {
    constexpr const char* words[] = {"parameter", "optimizer state 1 of", "optimizer state 2 of"};
    const int number = static_cast<int>(list);
    Departure where;
    where.step = step;
    where.what = at(words, number % kinds_);
    where.tensor = at(store_.table(), number / kinds_).name;
    where.index = {static_cast<std::int64_t>(element)};  // in the rank's share
    return where;
  }

  Departure departure(Departure where, double found, double expected) const {
    where.rank = rank_;
    where.found = found;
    where.beside = "without the checkpoint it is";
    where.expected = expected;
    where.error = std::abs(found - expected) / std::abs(expected);
    return where;
  }

  const ParamStore& store_;
  int rank_;
  int kinds_;
};

/// Runs `body` on every rank; why one ended goes into the verdict.
void run_free(const VerifiedLayout& layout, LayoutVerdict& verdict,
              const std::function<void(FreeRank&, World&)>& body) {
  try {
    run_thread_world(static_cast<int>(layout.plan.mesh.world_size()),
                     {.deadline_seconds = layout.deadline_seconds}, [&](World& world) {
                       FreeRank rank(layout, world);
                       body(rank, world);
                     });
  } catch (const Error& failure) {
    verdict.failure = failure.what();
  }
}

}  // namespace

LayoutVerdict save_half_way(const Record& record, const VerifiedLayout& layout, const fs::path& run,
                            std::int64_t half) {
  const auto body = [&](VerifiedRank& rank, World& world) {
    rank.initialise();
    rank.run_until(half);
    save(rank.engine(), layout, run, false, world);
  };
  return compare_ranks(record, layout, {}, body);
}

LayoutVerdict load_half_way(const Record& record, const VerifiedLayout& layout, const fs::path& run,
                            std::int64_t half, const Faults& faults) {
  const auto body = [&](VerifiedRank& rank, World& world) {
    rank.resume(load(rank.engine(), layout, run, half, faults, world));
    rank.run_until(2 * half);
  };
  return compare_ranks(record, layout, faults, body);
}

LayoutVerdict continue_layout(const VerifiedLayout& layout, const fs::path& run, std::int64_t half,
                              const Faults& faults) {
  LayoutVerdict verdict;
  std::vector<Passage> whole(static_cast<std::size_t>(layout.plan.mesh.world_size()));
  run_free(layout, verdict, [&](FreeRank& rank, World& world) {
    rank.engine().initialise();
    rank.take_steps(half);
    save(rank.engine(), layout, run, true, world);
    at(whole, world.rank()) = {rank.take_steps(half), rank.values()};
  });
  if (!verdict.failure.empty()) return verdict;
  std::mutex mutex;  // of the verdict
  run_free(layout, verdict, [&](FreeRank& rank, World& world) {
    rank.engine().resume(load(rank.engine(), layout, run, half, faults, world));
    std::vector<StepReport> reports = rank.take_steps(half);
    const Passage found{std::move(reports), rank.values()};
    const BitComparison comparison(rank.engine().parameters(), world.rank(), rank.kinds());
    const auto first = comparison.first(found, at(whole, world.rank()));
    const std::lock_guard lock(mutex);
    if (first && !verdict.first) verdict.first = verdict.largest = first.value();
  });
  verdict.equal = !verdict.first && verdict.failure.empty();
  return verdict;
}

}  // namespace trainctl
