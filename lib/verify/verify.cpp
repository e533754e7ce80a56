#include "verify/verify.h"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "checkpoint/folder.h"
#include "checkpoint/saver.h"
#include "plan/ownership/ownership.h"
#include "run/data/corpus.h"
#include "run/steps.h"
#include "verify/alone.h"
#include "verify/data.h"
#include "verify/free_run.h"
#include "verify/ranks.h"
#include "verify/record.h"
#include "verify/verified_rank.h"

namespace trainctl {

namespace {

namespace fs = std::filesystem;

/// Saves a checkpoint and waits for it. Collective.
void save(Engine& engine, const VerifiedLayout& layout, const fs::path& run, World& world) {
  const auto everyone = world.everyone("checkpoint");
  Saver saver({.plan = layout.plan,
               .config = layout.config,
               .config_text = "",
               .store = engine.parameters(),
               .everyone = *everyone,
               .run = run,
               .deadline_seconds = layout.deadline_seconds});
  const TrainState state = engine.train_state();
  saver.save({.state = state, .loss = std::nullopt, .val_loss = std::nullopt}, false);
  require(saver.saved_step() == state.step, ExitCode::io,
          "no checkpoint could be saved in " + run.string());
}

/// Loads the checkpoint as `train` does. Returns the state of the run.
TrainState load(Engine& engine, const VerifiedLayout& layout, const fs::path& run,
                std::int64_t step, const Faults& faults, World& world) {
  const fs::path from = CheckpointFolder(run).of(step);
  const auto everyone = world.everyone("continuation");
  const Manifest manifest = read_continuation(from, *everyone).manifest;
  load_run(engine, manifest, from, layout.plan, layout.config.optimizer, world.rank());
  if (faults.loaded) faults.loaded(world.rank(), engine.parameters());
  return manifest.state;
}

/// Runs and compares `half` steps, then saves a checkpoint in the folder `run`.
LayoutVerdict save_half_way(const Record& record, const VerifiedLayout& layout, const fs::path& run,
                            std::int64_t half) {
  const auto body = [&](VerifiedRank& rank, World& world) {
    rank.initialise();
    rank.run_until(half);
    save(rank.engine(), layout, run, world);
  };
  return compare_ranks(record, layout, {}, body);
}

/// Loads the checkpoint in `run`, then runs and compares `half` more steps.
LayoutVerdict load_half_way(const Record& record, const VerifiedLayout& layout, const fs::path& run,
                            std::int64_t half, const Faults& faults) {
  const auto body = [&](VerifiedRank& rank, World& world) {
    rank.resume(load(rank.engine(), layout, run, half, faults, world));
    rank.run_until(2 * half);
  };
  return compare_ranks(record, layout, faults, body);
}

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

void LayoutVerdict::add(const LayoutVerdict& later) {
  if (!first) first = later.first;
  if (failure.empty()) failure = later.failure;
  equal = !first && failure.empty();
  seconds += later.seconds;
  const Departure& other = later.largest;
  if (other.what.empty()) return;
  const bool larger = other.error * largest.bound > largest.error * other.bound;
  if (largest.what.empty() || larger) largest = other;
}

std::int64_t verification_bytes(const Config& config, const Plan& plan, std::int64_t steps,
                                std::int64_t records, bool freely) {
  std::int64_t total = records * record_bytes(config, steps);
  if (freely) {
    // Checkpoints are written from a copy, hence saved_bytes.
    total += records * free_record_bytes(config, day_of(config, steps)) +
             saved_bytes(plan, config.optimizer);
  }
  const std::int64_t ranks_of_stage = plan.mesh.world_size() / plan.mesh.pp;
  for (const StagePlan& stage : plan.stages) {
    const MemoryEstimate& memory = stage.memory;
    std::int64_t elements = 0;  // elements whose gradients are copied before their sums
    for (const ParamSpec& row : stage.parameters) elements += row.shape.numel();
    total += ranks_of_stage * (memory.total() - memory.runtime - memory.data + 4 * elements);
  }
  return total;
}

struct Verification::Impl {
  const Config config;
  const std::int64_t steps;
  std::map<MessageRounding, Record> records{};  // made on demand

  const Record& record_of(const MessageRounding& rounding) {
    const auto found = records.find(rounding);
    if (found != records.end()) return found->second;
    return records.emplace(rounding, record_alone(config, steps, rounding)).first->second;
  }

  const std::vector<RampPart> batches = plan_alone(alone(config)).ramp;

  /// The refusal of a layout whose batch sizes differ from the single rank's; nullopt if equal.
  static std::optional<LayoutVerdict> refusal(const VerifiedLayout& layout,
                                              const std::vector<RampPart>& batches) {
    if (layout.plan.ramp == batches) return std::nullopt;
    LayoutVerdict refused;
    refused.failure = "decrease_batch_size_if_needed gives this layout other batches than one rank";
    refused.equal = false;
    return refused;
  }

  const Day day = day_of(config, steps);

  std::int64_t samples_of_day() const {
    return samples_in(plan_alone(config_of_day(alone(config), day)).ramp, day.steps);
  }

  std::optional<FreeData> free_data{};
  std::map<FreeRules, FreeRecord> free_records{};

  const FreeRecord& free_record_of(const FreeRules& rules) {
    const auto found = free_records.find(rules);
    if (found != free_records.end()) return found->second;
    const LossScaling& scaling = record_of(rules.morning.rounding).loss_scaling;
    return free_records.emplace(rules, record_freely(config, day, *free_data, rules, scaling))
        .first->second;
  }

  /// A layout with the configuration and plan of the day, and the record for its comparison.
  struct FreeLayout {
    Config config;
    Plan plan;
    const FreeRecord& record;
    const VerifiedLayout& given;
    VerifiedLayout layout() const { return {config, plan, given.deadline_seconds, given.job}; }
  };

  /// `morning` is the layout that saved the checkpoint from which this layout resumes; null if this
  /// layout runs the whole day.
  FreeLayout freely(const VerifiedLayout& given, const FreeLayout* morning = nullptr) {
    if (!free_data) free_data.emplace(config, samples_of_day());
    Config own = config_of_day(given.config, day);
    own.data = free_data->section(own.data);
    Plan plan = plan_of_day(own, given.plan);
    const FreeRecord& record =
        free_record_of(free_rules(morning == nullptr ? plan : morning->plan, plan));
    return {std::move(own), std::move(plan), record, given};
  }

  LayoutVerdict run_day(const FreeLayout& one, const Faults& faults, NoonCheckpoint& noon) const {
    if (const auto refused = refusal(one.layout(), one.record.plan.ramp)) return *refused;
    return judge_day(one.record, one.layout(), faults, noon);
  }
};

Verification::Verification(const Config& config, std::int64_t steps)
    : impl_(std::make_unique<Impl>(config, steps)) {
  impl_->record_of({});
}

Verification::~Verification() = default;

LayoutVerdict Verification::compare(const VerifiedLayout& layout, const Faults& faults) const {
  if (const auto refused = Impl::refusal(layout, impl_->batches)) return *refused;
  const auto start = Clock::now();
  const auto body = [&](VerifiedRank& rank, World&) {
    rank.initialise();
    rank.run_until(impl_->steps);
  };
  LayoutVerdict verdict =
      compare_ranks(impl_->record_of(message_rounding(layout.plan)), layout, faults, body);
  verdict.seconds = seconds_since(start);
  return verdict;
}

LayoutVerdict Verification::run_freely(const VerifiedLayout& layout, const Faults& faults) const {
  const auto start = Clock::now();
  const Impl::FreeLayout one = impl_->freely(layout);
  const JobFolder folder(layout.job);
  NoonCheckpoint noon{folder.path()};
  LayoutVerdict verdict = impl_->run_day(one, faults, noon);
  verdict.seconds = seconds_since(start);
  return verdict;
}

LayoutVerdict Verification::compare_through_checkpoint(const VerifiedLayout& saves,
                                                       const VerifiedLayout& loads,
                                                       const std::filesystem::path& run,
                                                       const Faults& faults) const {
  const auto start = Clock::now();
  const Record& record = impl_->record_of(message_rounding(loads.plan));
  const std::int64_t half = impl_->steps / 2;
  LayoutVerdict verdict = save_half_way(record, saves, run, half);
  if (verdict.failure.empty()) verdict.add(load_half_way(record, loads, run, half, faults));
  verdict.seconds = seconds_since(start);
  return verdict;
}

LayoutVerdict Verification::go_on_freely(const VerifiedLayout& saves, const VerifiedLayout& loads,
                                         const std::filesystem::path& run,
                                         const Faults& faults) const {
  const auto start = Clock::now();
  const Impl::FreeLayout morning = impl_->freely(saves);
  const Impl::FreeLayout afternoon = impl_->freely(loads, &morning);
  const bool same = saves.plan.hash == loads.plan.hash;
  NoonCheckpoint noon{run};
  LayoutVerdict verdict = impl_->run_day(morning, {}, noon);
  if (verdict.failure.empty()) {
    verdict.add(judge_afternoon(afternoon.record, afternoon.layout(), faults, noon, same));
  }
  verdict.seconds = seconds_since(start);
  return verdict;
}

}  // namespace trainctl
