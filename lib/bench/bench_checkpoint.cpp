#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "base/at.h"
#include "base/error.h"
#include "base/file.h"
#include "base/parallel_for.h"
#include "base/text.h"
#include "base/units.h"
#include "bench/bench_setup.h"
#include "bench/figures.h"
#include "bench/overlap.h"
#include "checkpoint/load.h"
#include "checkpoint/saver.h"
#include "engine/engine.h"
#include "formats/print/text.h"
#include "plan/ownership/ownership.h"
#include "plan/rules/resolve.h"
#include "run/preflight/machine.h"
#include "run/records/step_records.h"
#include "verify/layouts.h"

namespace trainctl {

// The speed of saving and loading checkpoints: against a plain write of the same bytes, against
// steps at the same time, and for loads into another layout against loads into the same layout.

/// Saves that training waits for, alternating with plain writes, on one rank.
struct SavingSpeed {
  std::int64_t bytes = 0;
  std::vector<double> save_seconds;
  // Seconds to write the bytes into one file, 4 MiB at a time, then fsync: dd bs=4M conv=fsync.
  std::vector<double> write_seconds;
};

/// The cost of a save in the background for the steps that run at the same time.
struct SavingDelay {
  int steps = 0;                      // steps in a window, during which the save ends
  std::vector<double> plain_seconds;  // duration of a window without a save
  std::vector<double> saving_seconds;
  std::vector<double> copy_seconds;    // one memcpy of the saved bytes
  std::vector<double> writer_seconds;  // processor time of the threads that write and delete
  int cores = 1;
};

struct SavingResult {
  SavingSpeed speed;
  SavingDelay delay;
  std::int64_t peak_bytes = 0;  // resident memory, with steps and saves
  std::int64_t planned_bytes = 0;
};

/// Times of loads into `layout` from the checkpoints of all layouts.
struct LoadingSpeed {
  std::string layout;
  std::vector<std::vector<double>> seconds;  // [layout that saved][round]
};

namespace {

namespace fs = std::filesystem;

constexpr std::size_t block_bytes = 4 << 20;

/// Writes as `dd bs=4M conv=fsync` does, in a process that already runs.
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

  /// Takes one step, then steps until a save in background is complete. Returns their number.
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
  /// From the next save on, older saves are removed while the newest is written.
  void keep_newest() { config_.checkpoint.keep = 1; }
  void remove_saves() {
    for (const auto& entry : folder_.complete()) remove_directory(entry.path);
  }

  const Saver& saver() const { return saver_; }

 private:
  std::unique_ptr<World> world_;
  std::unique_ptr<Group> everyone_;
  Config config_;  // configuration of the saver
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
    // Save and plain write alternate in going first, since earlier writes can slow down later ones.
    if (pair % 2 == 0) save();
    write();
    if (pair % 2 == 1) save();
    say_pair(pair, pairs, "save", speed.save_seconds.back(), "plain write",
             speed.write_seconds.back());
  }
}

void measure_delay(SavingRank& rank, std::int64_t bytes, int pairs, SavingDelay& delay) {
  rank.keep_newest();
  delay.cores = usable_cores();
  begin_part("steps during a save");
  delay.steps = rank.take_steps_while_saving() + 1;  // one more: a later save may take longer
  for (int pair = 0; pair < pairs; ++pair) {
    const double before = rank.saver().writer_seconds();
    delay.plain_seconds.push_back(seconds_of([&] { rank.take_steps(delay.steps); }));
    delay.saving_seconds.push_back(seconds_of([&] { rank.take_steps_while_saving(delay.steps); }));
    rank.finish_save();
    require(rank.saver().failures() == 0, ExitCode::io, "a checkpoint could not be saved");
    delay.writer_seconds.push_back(rank.saver().writer_seconds() - before);
    say_pair(pair, pairs, "steps", delay.plain_seconds.back(), "with a save",
             delay.saving_seconds.back());
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
    config.train.micro_batch_size = 1;  // nothing is trained, so any batch that fits will do
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

/// The progress line of a round. Rounds count from 0; round -1 is the warm-up.
std::string turn_of(const Candidate& layout, int turn, int turns) {
  const std::string count = formatted("{}/{}", turn + 1, turns);
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

/// Saves below `directory`, which must exist. The plan of `setup` has the memory for saves in the
/// background (checkpoint.every).
SavingResult measure_saving(const BenchSetup& setup, const fs::path& directory, int pairs) {
  SavingResult result;
  result.speed.bytes = saved_bytes(setup.plan, setup.config.optimizer);
  SavingRank rank(setup, directory);
  measure_speed(rank, directory, pairs, result.speed);
  result.peak_bytes = peak_resident_bytes();
  result.planned_bytes = setup.plan.max_memory().total();
  measure_delay(rank, result.speed.bytes, pairs, result.delay);
  return result;
}

/// Measures layouts of `ranks` threads: replicas with and without sharded masters, tensor and
/// pipeline parallel, as far as the model can be divided.
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
      for (int turn = -1; turn < turns; ++turn) {  // round -1 brings the files into memory
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

constexpr double min_rate = 0.8;     // least rate of saves relative to plain writes
constexpr double max_delay = 1.5;    // largest delay relative to copy and writer's processor time
constexpr double max_foreign = 1.5;  // largest cost relative to a load into the layout that saved

struct Limit {
  double value = 0;
  double bound = 0;
  bool kept = false;
};

/// The rate of saves relative to the rate of plain writes.
Limit saving_rate(const SavingSpeed& speed) {
  const double rate = median(ratios_of(speed.write_seconds, speed.save_seconds));
  return {rate, min_rate, rate >= min_rate};
}

double allowed_seconds(const SavingDelay& delay) {
  return median(delay.copy_seconds) + median(delay.writer_seconds) / delay.cores;
}
double delay_seconds(const SavingDelay& delay) {
  std::vector<double> differences;
  for (std::size_t i = 0; i < delay.plain_seconds.size(); ++i) {
    differences.push_back(delay.saving_seconds[i] - delay.plain_seconds[i]);
  }
  return median(std::move(differences));
}
Limit saving_delay(const SavingDelay& delay) {
  const double ratio = delay_seconds(delay) / allowed_seconds(delay);
  return {ratio, max_delay, ratio <= max_delay};
}

/// The time in which layout `into` loads a checkpoint of `from`, relative to its own checkpoint.
Limit loading_cost(const std::vector<LoadingSpeed>& loads, std::size_t from, std::size_t into) {
  const LoadingSpeed& speed = loads[into];
  const double cost = median(ratios_of(speed.seconds[from], speed.seconds[into]));
  return {cost, max_foreign, cost <= max_foreign};
}

std::string spread(const std::vector<double>& seconds) {
  return spread_of_pairs(seconds, format_seconds);
}

std::string against_limit(const Limit& limit) {
  return printed("%.2f", limit.value) + ", limit " + printed("%.2f", limit.bound) + ": " +
         verdict(limit.kept);
}

void print_saving(const SavingResult& saving, std::ostream& out) {
  const SavingSpeed& speed = saving.speed;
  const SavingDelay& delay = saving.delay;
  out << "saving " << format_bytes(speed.bytes) << " from one rank, " << speed.save_seconds.size()
      << " pairs\n"
      << "  a checkpoint       " << spread(speed.save_seconds) << '\n'
      << "  a plain write      " << spread(speed.write_seconds) << '\n'
      << "  rate               " << against_limit(saving_rate(speed)) << '\n'
      << "saving in background, windows of " << delay.steps << " steps\n"
      << "  steps alone        " << spread(delay.plain_seconds) << '\n'
      << "  steps and a save   " << spread(delay.saving_seconds) << '\n'
      << "  one copy           " << spread(delay.copy_seconds) << '\n'
      << "  writer's processor " << spread(delay.writer_seconds) << " on " << delay.cores
      << " cores\n"
      << "  delay              " << format_seconds(delay_seconds(delay)) << " / ("
      << format_seconds(median(delay.copy_seconds)) << " + "
      << format_seconds(median(delay.writer_seconds) / delay.cores)
      << "): " << against_limit(saving_delay(delay)) << '\n'
      << "  memory             " << format_bytes(saving.peak_bytes) << " at most, planned "
      << format_bytes(saving.planned_bytes) << '\n';
}

void print_loading(const std::vector<LoadingSpeed>& loads, std::ostream& out) {
  out << "loading into a layout (row), of a checkpoint of a layout (column)\n            ";
  for (const LoadingSpeed& speed : loads) out << formatted("  {:>20}", speed.layout);
  out << '\n';
  Limit worst;
  for (std::size_t into = 0; into < loads.size(); ++into) {
    out << formatted("  {:<10}", loads[into].layout);
    for (std::size_t from = 0; from < loads.size(); ++from) {
      const Limit cost = loading_cost(loads, from, into);
      if (from != into && cost.value > worst.value) worst = cost;
      out << formatted("  {:>12} x {:5.2f}", format_seconds(median(loads[into].seconds[from])),
                       cost.value);
    }
    out << '\n';
  }
  if (loads.size() > 1)
    out << "  most of a load from another layout: " << against_limit(worst) << '\n';
}

nlohmann::ordered_json document(const SavingResult& saving,
                                const std::vector<LoadingSpeed>& loads) {
  nlohmann::ordered_json loading = nlohmann::ordered_json::array();
  for (std::size_t into = 0; into < loads.size(); ++into) {
    for (std::size_t from = 0; from < loads.size(); ++from) {
      loading.push_back({{"into", loads[into].layout},
                         {"from", loads[from].layout},
                         {"seconds", loads[into].seconds[from]},
                         {"over_same_layout", loading_cost(loads, from, into).value}});
    }
  }
  return {{"bytes", saving.speed.bytes},
          {"save_seconds", saving.speed.save_seconds},
          {"write_seconds", saving.speed.write_seconds},
          {"rate_over_write", saving_rate(saving.speed).value},
          {"window_steps", saving.delay.steps},
          {"plain_seconds", saving.delay.plain_seconds},
          {"saving_seconds", saving.delay.saving_seconds},
          {"copy_seconds", saving.delay.copy_seconds},
          {"writer_seconds", saving.delay.writer_seconds},
          {"cores", saving.delay.cores},
          {"delay_over_copy_and_writer", saving_delay(saving.delay).value},
          {"peak_bytes", saving.peak_bytes},
          {"planned_bytes", saving.planned_bytes},
          {"loads", std::move(loading)}};
}

}  // namespace

void bench_checkpoint(const BenchRequest& request, const std::filesystem::path& directory,
                      std::int64_t ranks, std::ostream& out) {
  BenchRequest saving = request;
  for (const char* option :
       {"checkpoint.asynchronous=true", "checkpoint.every=1", "checkpoint.keep=0"}) {
    saving.set_options.emplace_back(option);
  }
  const BenchSetup setup = read_bench_setup(saving);
  const TemporaryFolder folder(directory / "trainctl-bench");
  const SavingResult saved = measure_saving(setup, folder.path() / "saves", request.pairs);
  const std::vector<LoadingSpeed> loads =
      measure_loading(setup, folder.path() / "loads", ranks, request.pairs);
  tell(request, document(saved, loads), out, [&] {
    print_saving(saved, out);
    print_loading(loads, out);
  });
}

}  // namespace trainctl
