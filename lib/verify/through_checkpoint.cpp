#include "verify/through_checkpoint.h"

#include "base/error.h"
#include "checkpoint/folder.h"
#include "checkpoint/saver.h"
#include "run/data/corpus.h"
#include "run/steps.h"
#include "verify/verified_rank.h"

namespace trainctl {

namespace {

namespace fs = std::filesystem;

/// Collective; waits until it is complete.
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

/// As `train` does. Returns the state of the run.
TrainState load(Engine& engine, const VerifiedLayout& layout, const fs::path& run,
                std::int64_t step, const Faults& faults, World& world) {
  const fs::path from = CheckpointFolder(run).of(step);
  const auto everyone = world.everyone("continuation");
  const Manifest manifest = read_continuation(from, *everyone).manifest;
  load_run(engine, manifest, from, layout.plan, layout.config.optimizer, world.rank());
  if (faults.loaded) faults.loaded(world.rank(), engine.parameters());
  return manifest.state;
}

}  // namespace

LayoutVerdict save_half_way(const Record& record, const VerifiedLayout& layout, const fs::path& run,
                            std::int64_t half) {
  const auto body = [&](VerifiedRank& rank, World& world) {
    rank.initialise();
    rank.run_until(half);
    save(rank.engine(), layout, run, world);
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

}  // namespace trainctl
