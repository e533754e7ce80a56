// Saves checkpoints of a run: copies this rank's values, writes them on a separate thread, and
// publishes the directory once the files of all ranks are on disk. At most one save is in flight.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"
#include "config/schema/config.h"
#include "device/slab.h"
#include "engine/parameters/param_store.h"
#include "engine/report.h"
#include "plan/plan.h"

namespace trainctl {

class Group;

/// The values that are saved with the tensors.
struct SaveMoment {
  TrainState state;
  std::optional<double> loss;
  std::optional<double> val_loss;
  std::string product_algorithms{};  // text of product_algorithms.json; no file if empty
  SavedData data{};                  // used on rank 0 only
};

class Saver {
 public:
  struct Input {
    const Plan& plan;
    const Config& config;
    std::string config_text;  // the resolved config.yaml
    const ParamStore& store;
    Group& everyone;                // all ranks; no other thread may use it
    std::filesystem::path run;      // the directory of the run, the same on every rank
    double deadline_seconds = 300;  // longest time in which a rank may write nothing
    Fence fence{};                  // the session's, called on rank 0 only
  };
  /// Called on rank 0 to bring files to disk that must be there before a checkpoint is complete. If
  /// it throws, the save has failed.
  using BeforeComplete = std::function<void()>;
  explicit Saver(Input input, BeforeComplete before_complete = {});
  /// Waits for this rank's thread; a save that is not complete then stays without a manifest.
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  /// Begins to save the state after a step, once the save before has ended. `in_background`: copies
  /// the values and returns; otherwise the values are written from their own memory, and the save
  /// is complete, or has failed, when this returns. Collective.
  void save(const SaveMoment& moment, bool in_background);
  /// Call between two steps: publishes the save in flight if all ranks have written it. Collective.
  void poll();
  /// Waits for the save in flight. Collective. Throws Error{io} if a rank makes no progress.
  void finish();
  /// The step of the newest checkpoint that this run has completed or loaded; 0 if none.
  std::int64_t saved_step() const { return saved_step_; }
  /// On rank 0: the directory of that checkpoint, if this run has completed it.
  const std::filesystem::path& saved_path() const { return saved_path_; }
  void set_saved_step(std::int64_t step) { saved_step_ = step; }
  /// The number of saves that failed; their files were removed.
  std::int64_t failures() const { return failures_; }
  /// The processor time of this rank's threads that have written files or deleted older ones.
  double writer_seconds() const { return writer_seconds_; }

 private:
  struct Flight;
  /// Gathers the states: processor time so far, below 0 once ended. True if all ranks have ended.
  bool all_ended();
  [[noreturn]] void give_up(const std::string& ranks, double idle) const;
  void end_flight();
  bool try_to_publish(const std::vector<std::string>& pieces);
  void publish(const std::vector<std::string>& pieces);
  void prune();
  bool is_comparable(const Manifest& earlier) const;
  void retire_old();
  void end_removal();
  void make_staging(std::int64_t bytes);
  /// Copies all regions to the staging memory, and lets them point there.
  void stage();

  Input input_;
  BeforeComplete before_complete_;
  CheckpointFolder folder_;
  Slab staging_;  // the copy of a save in background
  std::unique_ptr<Flight> flight_;
  std::vector<double> progress_;  // states of all ranks at the last check
  std::int64_t saved_step_ = 0;
  std::filesystem::path saved_path_;
  std::int64_t failures_ = 0;
  double writer_seconds_ = 0;
  // On rank 0: deletes the files of older checkpoints, which can take as long as a step.
  std::thread removal_;
  std::vector<std::string> not_removed_;  // processor time of the thread removal_
  double removal_seconds_ = 0;            // processor time of the thread removal_
};

}  // namespace trainctl
