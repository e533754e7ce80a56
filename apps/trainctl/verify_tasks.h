// The comparisons of one `trainctl verify`: layouts, with the file's settings and with others, at a
// size that fits this machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "planned.h"
#include "verify/selection/cover.h"
#include "verify/selection/selection.h"
#include "verify/verify.h"

namespace trainctl {

inline constexpr const char* verify_name = "trainctl verify";

struct VerifyCommand {
  PlanRequest request;
  std::string layouts;           // "quick", "all", a list, or "" for the file's own
  std::string options = "none";  // none, quick, all
  std::string size = "auto";     // auto, whole, layer
  double memory_limit = 0;       // GiB; if 0, three quarters of the free memory
  std::int64_t steps = 0;        // 0 if not given
  bool exhaustive = false;
  bool through_checkpoint = false;
  bool every_pair = false;
  std::string format = "table";

  /// Whether the program selects the layouts, rather than the user.
  bool selects() const { return layouts == "quick" || layouts == "all"; }
};

/// A layout to run.
struct VerifyCandidate {
  std::string name;
  Config config;
  Plan plan;
  WordRow said;                        // words of the layout, then those of the settings
  std::optional<LayoutChoice> choice;  // unset for the file's own layout
  /// `job`: the ranks of mpirun, or null.
  VerifiedLayout layout(World* job) const {
    return {config, plan, config.parallel.deadline_seconds, job};
  }
};

/// The subject of one row of the output: a layout, or the pair that saves and loads a checkpoint.
struct VerifyTask {
  const VerifyCandidate* saves = nullptr;
  const VerifyCandidate* runs = nullptr;
  std::string name() const {
    return saves == nullptr ? runs->name : saves->name + "->" + runs->name;
  }
};

/// Tasks that are compared with the same single rank.
struct VerifyComparison {
  std::vector<Settings> words;  // settings in addition to the file's
  Config config;
  std::vector<VerifyCandidate> candidates;
  std::vector<VerifyTask> tasks;
};

struct VerifyComparisons {
  std::vector<VerifyComparison> list;
  LayoutSelection selection;  // the layouts and settings that were left out
  std::int64_t steps = 3;     // steps of each single rank
  bool freely = true;
  std::string note;  // how the model was cut; "" if it is whole
  std::size_t tasks() const;
};

class VerifyPlanner {
 public:
  /// Reads the file and shows its mistakes; ok() is false if there are errors. `free_bytes`: free
  /// memory of a host; `processes`: number of those on a host that each have a record. Both are
  /// equal on all processes of a job, so that they plan the same. Throws Error{missing_input}.
  VerifyPlanner(const VerifyCommand& command, std::int64_t free_bytes, std::int64_t processes);
  bool ok() const { return planned_.ok(); }

  /// Plans all comparisons. Throws Error{config} if a requested layout is not legal, Error{usage},
  /// and Error{unavailable} if this machine has too little memory or no such device.
  VerifyComparisons plan();

  /// The comparison of a layout with other words or settings, if the layout is legal.
  std::optional<VerifyComparison> with(const LayoutChoice& choice,
                                       const std::vector<Settings>& words);

 private:
  struct RequestedRun;  // a layout before its configuration is made
  std::vector<RequestedRun> layouts_to_run(LayoutSelection& selection);
  RequestedRun own_layout() const;
  static RequestedRun layout_of(const LayoutChoice& choice);
  ReadResult read_with(const Settings& settings) const;
  std::int64_t replicas_of_layer() const;
  Config config_in(const Config& config, const RequestedRun& layout) const;
  bool is_legal(const Config& config, const RequestedRun& layout) const;
  VerifyCandidate candidate(const Config& config, const RequestedRun& layout,
                            const std::vector<Settings>& words) const;
  VerifyComparison comparison(const Config& config, const std::vector<Settings>& words,
                              const std::vector<RequestedRun>& layouts) const;
  void add_options(const std::vector<RequestedRun>& layouts, VerifyComparisons& all) const;
  /// The number of parts of a run, which a checkpoint divides in half.
  std::int64_t pieces() const { return command_.through_checkpoint ? 2 : 1; }
  std::pair<std::int64_t, std::string> bytes_of(const VerifyComparison& comparison,
                                                std::int64_t steps, bool freely) const;
  std::string too_large(const VerifyComparisons& all) const;
  void fit_layer(VerifyComparisons& all) const;
  void check_memory(const VerifyComparisons& all) const;

  const VerifyCommand& command_;
  const std::int64_t free_bytes_, processes_;
  Planned planned_;
  std::int64_t limit_ = 0;           // bytes
  std::int64_t layer_replicas_ = 0;  // 0 if the model is whole
};

}  // namespace trainctl
