// Saves checkpoints of a run: copies what this rank owns, writes it on a thread of its own, and
// publishes the directory once the files of all ranks are on disk. One save is in flight at most.
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
  std::string product_algorithms{};  // product_algorithms.json; empty: none
  SavedData data{};                  // of rank 0
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
    Fence fence{};                  // of the session; asked on rank 0 alone
  };
  /// On rank 0, brings to disk what must be there before a checkpoint is complete. Where it throws,
  /// the save has failed.
  using BeforeComplete = std::function<void()>;
  explicit Saver(Input input, BeforeComplete before_complete = {});
  /// Waits for this rank's thread; a save that is not complete then stays without a manifest.
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  /// Begins to save the state after a step. Waits for the save before it. `in_background`: the
  /// values are copied and the call returns; otherwise they are written from where they are, and
  /// the save is complete, or has failed, when this returns. Collective.
  void save(const SaveMoment& moment, bool in_background);
  /// Between two steps: publishes the save in flight if all ranks have written it. Collective.
  void poll();
  /// Waits for the save in flight. Collective. Throws Error{io} if a rank makes no progress.
  void finish();
  /// The step of the newest checkpoint that this run has completed or loaded; 0: none.
  std::int64_t saved_step() const { return saved_step_; }
  /// On rank 0: its directory, if this run has completed it.
  const std::filesystem::path& saved_path() const { return saved_path_; }
  void set_saved_step(std::int64_t step) { saved_step_ = step; }
  /// Saves that failed; their files were removed.
  std::int64_t failures() const { return failures_; }
  /// The processor time of this rank's threads that have written files or deleted older ones.
  double writer_seconds() const { return writer_seconds_; }

 private:
  struct Flight;
  /// The state of every rank's writing: processor time so far, or less than 0 once it has ended.
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
  /// Copies all regions to the staging memory, and points them there.
  void stage();

  Input input_;
  BeforeComplete before_complete_;
  CheckpointFolder folder_;
  Slab staging_;  // the copy of a save in background
  std::unique_ptr<Flight> flight_;
  std::vector<double> progress_;  // of every rank, at the last look
  std::int64_t saved_step_ = 0;
  std::filesystem::path saved_path_;
  std::int64_t failures_ = 0;
  double writer_seconds_ = 0;
  // On rank 0: deletes the files of older checkpoints, which can take as long as a step.
  std::thread removal_;
  std::vector<std::string> not_removed_;  // of that thread
  double removal_seconds_ = 0;            // of that thread
};

}  // namespace trainctl
