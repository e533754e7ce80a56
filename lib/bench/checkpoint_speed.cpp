#include "bench/checkpoint_speed.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <optional>

#include "base/at.h"
#include "base/error.h"
#include "base/file.h"
#include "base/parallel_for.h"
#include "bench/figures.h"
#include "bench/overlap.h"
#include "checkpoint/load.h"
#include "checkpoint/saver.h"
#include "engine/engine.h"
#include "plan/ownership/ownership.h"
#include "plan/rules/resolve.h"
#include "run/preflight/machine.h"
#include "run/records/step_records.h"
#include "verify/layouts.h"

namespace trainctl {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t block_bytes = 4 << 20;

/// What `dd bs=4M conv=fsync` does, in a process that already runs.
double write_plainly(const fs::path& path, std::int64_t bytes) {
  const std::vector<char> block(block_bytes, 1);
  const double seconds = seconds_of([&] {
    File file = File::create(path);
    for (std::int64_t left = bytes; left > 0;) {
      const auto size = static_cast<std::size_t>(std::min<std::int64_t>(left, block_bytes));
      file.write({block.data(), size});
      left -= static_cast<std::int64_t>(size);
    }
    file.sync();
  });
  fs::remove(path);
  return seconds;
}

double copy_once(std::int64_t bytes, std::vector<std::byte>& from, std::vector<std::byte>& to) {
  return seconds_of([&] { std::memcpy(to.data(), from.data(), static_cast<std::size_t>(bytes)); });
}

/// One rank that trains on random tokens and saves.
class SavingRank {
 public:
  SavingRank(const BenchSetup& setup, const fs::path& directory)
      : world_(self_world()),
        everyone_(world_->everyone("bench")),
        config_(setup.config),
        folder_(directory),
        engine_({.plan = setup.plan,
                 .train = setup.config.train,
                 .optimizer = setup.config.optimizer,
                 .lr_schedule = setup.config.lr_schedule,
                 .loss_scaling = resolve_loss_scaling(setup.config)},
                *world_),
        batches_(random_batches(setup.plan)),
        saver_({.plan = setup.plan,
                .config = config_,
                .config_text = "",
                .store = engine_.parameters(),
                .everyone = *everyone_,
                .run = directory}) {
    engine_.initialise();
    for (int step = 0; step < 2; ++step) take_step();
  }

  void take_step() { engine_.train_step(batches_); }
  void take_steps(int count) {
    for (int step = 0; step < count; ++step) take_step();
  }

  void begin_save(bool in_background) {
    const TrainState state = engine_.train_state();
    saver_.save({.state = state, .loss = std::nullopt, .val_loss = std::nullopt}, in_background);
  }

  /// After one step, steps with a save in background, until it is complete. Returns their number.
  int take_steps_while_saving() {
    take_step();
    const std::int64_t step = engine_.train_state().step;
    begin_save(true);
    int steps = 0;
    for (; saver_.saved_step() < step && saver_.failures() == 0; ++steps) {
      take_step();
      saver_.poll();
    }
    return steps;
  }
  void take_steps_while_saving(int count) {
    begin_save(true);
    for (int step = 0; step < count; ++step) {
      take_step();
      saver_.poll();
    }
  }
  void finish_save() { saver_.finish(); }
  /// From the next save on, older ones go while the newest is written.
  void keep_newest() { config_.checkpoint.keep = 1; }
  void remove_saves() {
    for (const auto& entry : folder_.complete()) remove_directory(entry.path);
  }

  const Saver& saver() const { return saver_; }

 private:
  std::unique_ptr<World> world_;
  std::unique_ptr<Group> everyone_;
  Config config_;  // of the saver
  CheckpointFolder folder_;
  Engine engine_;
  std::vector<Batch> batches_;
  Saver saver_;
};

void measure_speed(SavingRank& rank, const fs::path& directory, int pairs, SavingSpeed& speed) {
  const auto save = [&] {
    speed.save_seconds.push_back(seconds_of([&] { rank.begin_save(false); }));
    require(rank.saver().failures() == 0, ExitCode::io, "a checkpoint could not be saved");
    rank.remove_saves();
  };
  const auto write = [&] {
    speed.write_seconds.push_back(write_plainly(directory / "plain", speed.bytes));
  };
  for (int pair = 0; pair < pairs; ++pair) {
    rank.take_step();
    // Each is first in turn: what was written before can slow down the next.
    if (pair % 2 == 0) save();
    write();
    if (pair % 2 == 1) save();
    say_pair(pair, pairs, {"save", speed.save_seconds.back()},
             {"plain write", speed.write_seconds.back()});
  }
}

void measure_delay(SavingRank& rank, std::int64_t bytes, int pairs, SavingDelay& delay) {
  rank.keep_newest();
  delay.cores = usable_cores();
  begin_part("steps while a save goes on");
  delay.steps = rank.take_steps_while_saving() + 1;  // a save may take longer than this one
  for (int pair = 0; pair < pairs; ++pair) {
    const double before = rank.saver().writer_seconds();
    delay.plain_seconds.push_back(seconds_of([&] { rank.take_steps(delay.steps); }));
    delay.saving_seconds.push_back(seconds_of([&] { rank.take_steps_while_saving(delay.steps); }));
    rank.finish_save();
    require(rank.saver().failures() == 0, ExitCode::io, "a checkpoint could not be saved");
    delay.writer_seconds.push_back(rank.saver().writer_seconds() - before);
    say_pair(pair, pairs, {"steps", delay.plain_seconds.back()},
             {"with a save", delay.saving_seconds.back()});
  }
  std::vector<std::byte> from(static_cast<std::size_t>(bytes), std::byte{1});
  std::vector<std::byte> to(static_cast<std::size_t>(bytes), std::byte{2});
  begin_part("copies in memory");
  for (int pair = 0; pair < pairs; ++pair) {
    delay.copy_seconds.push_back(copy_once(bytes, from, to));
  }
}

/// A layout that the model can be divided into.
struct Candidate {
  std::string name;
  Config config;
  Plan plan;
};

std::vector<Candidate> candidates(const BenchSetup& setup, std::int64_t ranks) {
  const std::string n = std::to_string(ranks);
  std::vector<Candidate> found;
  for (const std::string& word : {"dp" + n, "dp" + n + "+zero1", "tp" + n, "pp" + n}) {
    const LayoutChoice choice = parse_layouts(word, ranks).front();
    Config config = with_layout(setup.config, choice);
    config.train.micro_batch_size = 1;  // nothing is trained: any batch that fits
    config.train.micro_batch_num.reset();
    config.train.global_batch_size = ranks;
    try {
      found.push_back({word, config, plan_on_threads(config)});
    } catch (const Error& refused) {
      std::fprintf(stderr, "%s is left out: %s\n", word.c_str(), refused.what());
    }
  }
  return found;
}

ParamStore store_of(const Candidate& layout, int rank) {
  return {DeviceKind::cpu,
          layout.plan.stage_of(rank),
          {.compute = layout.plan.compute,
           .optimizer = &layout.config.optimizer,
           .training = false,
           .ownership = make_ownership(layout.plan, rank)}};
}

/// The turns count from 0; the one before them warms up.
std::string turn_of(const Candidate& layout, int turn, int turns) {
  const std::string count = std::to_string(turn + 1) + "/" + std::to_string(turns);
  return "loads into " + layout.name + (turn < 0 ? ", warm-up" : " " + count);
}

void wait_for_all(Group& everyone) { gather_values(everyone, 0.0); }

void save_once(const Candidate& layout, const fs::path& run) {
  run_thread_world(static_cast<int>(layout.plan.mesh.world_size()), {}, [&](World& world) {
    set_thread_count(layout.plan.threads_per_rank);
    const auto everyone = world.everyone("bench");
    ParamStore store = store_of(layout, world.rank());
    Saver saver({.plan = layout.plan,
                 .config = layout.config,
                 .config_text = "",
                 .store = store,
                 .everyone = *everyone,
                 .run = run});
    saver.save({.state = {.step = 1}, .loss = std::nullopt, .val_loss = std::nullopt}, false);
    require(saver.saved_step() == 1, ExitCode::io, "a checkpoint could not be saved");
  });
}

}  // namespace

SavingResult measure_saving(const BenchSetup& setup, const fs::path& directory, int pairs) {
  SavingResult result;
  result.speed.bytes = saved_bytes(setup.plan, setup.config.optimizer);
  SavingRank rank(setup, directory);
  measure_speed(rank, directory, pairs, result.speed);
  result.peak_bytes = peak_resident_bytes();
  result.planned_bytes = setup.plan.most_memory().total();
  measure_delay(rank, result.speed.bytes, pairs, result.delay);
  return result;
}

std::vector<LoadingSpeed> measure_loading(const BenchSetup& setup, const fs::path& directory,
                                          std::int64_t ranks, int turns) {
  const std::vector<Candidate> layouts = candidates(setup, ranks);
  for (const Candidate& layout : layouts) {
    begin_part("saving " + layout.name);
    save_once(layout, directory / layout.name);
  }
  std::vector<LoadingSpeed> result;
  for (const Candidate& layout : layouts) {
    LoadingSpeed speed{layout.name, std::vector<std::vector<double>>(layouts.size())};
    run_thread_world(static_cast<int>(ranks), {}, [&](World& world) {
      const auto everyone = world.everyone("bench");
      ParamStore store = store_of(layout, world.rank());
      for (int turn = -1; turn < turns; ++turn) {  // the first brings the files into memory
        if (world.rank() == 0) begin_part(turn_of(layout, turn, turns));
        for (std::size_t from = 0; from < layouts.size(); ++from) {
          const fs::path run = CheckpointFolder(directory / layouts[from].name).of(1);
          wait_for_all(*everyone);
          const double seconds = seconds_of([&] {
            load_checkpoint(read_manifest(run), run, layout.plan, layout.config.optimizer,
                            world.rank(), store);
            wait_for_all(*everyone);
          });
          if (turn >= 0 && world.rank() == 0) at(speed.seconds, from).push_back(seconds);
        }
      }
    });
    result.push_back(std::move(speed));
  }
  return result;
}

}  // namespace trainctl
