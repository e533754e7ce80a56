// The rules across the fields of a configuration, which must hold before a plan can be made. Each
// broken rule gives one diagnostic with the values, the rule and valid alternatives.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/attention_part.h"
#include "config/report/diagnostics.h"
#include "config/schema/config.h"
#include "plan/rules/resolve.h"
#include "plan/tables/mesh.h"
#include "plan/tables/model.h"
#include "plan/tables/site.h"
#include "plan/tables/stage_map.h"

namespace trainctl {

/// Collects findings with their source positions. A rule is skipped if one of its fields already
/// has an error, so one mistake gives one message.
class Check {
 public:
  Check(const SourceMap& sources, Diagnostics& diagnostics)
      : sources_(sources), diagnostics_(diagnostics) {}

  /// Whether no error was reported at these paths and no value is missing there.
  bool clean(std::initializer_list<std::string_view> paths) const;
  /// Whether the user set this value in a file or with --set, not by a default or preset.
  bool given(const std::string& path) const;
  /// Whether the value was set with --set, or with an option that abbreviates it.
  bool on_command_line(const std::string& path) const;
  /// " (run.yaml:7:3)" for a value that the user set, else "".
  std::string place_of(const std::string& path) const;
  void error(const char* code, const std::string& path, const std::string& message,
             const std::string& help = "");
  void warning(const char* code, const std::string& path, const std::string& message,
               const std::string& help = "");
  /// Reports error "out-of-range" unless least <= value <= most.
  void range(const std::string& path, std::int64_t value, std::int64_t least, std::int64_t most);
  /// Reports error "out-of-range" unless `holds`; `rule` completes "must be ...".
  void rule(const std::string& path, bool holds, double value, const char* rule);
  /// Warns "no-effect" if the user set `path` and it `differs` from its default (so a dump of all
  /// values reads back without warnings). A path that has a finding gets no other.
  void no_effect(const std::string& path, bool differs, const std::string& reason);
  /// Adds the warnings of config/support/standing.h, except for values that have an error.
  void standing(const Config& config);

 private:
  const SourceMap& sources_;
  Diagnostics& diagnostics_;
};

/// Returns a function idle(key, differs) that calls no_effect() for a key of `section`, such as
/// "parallel.".
inline auto idle_in(Check& check, const std::string& section, const std::string& reason) {
  return [&check, section, reason](const std::string& key, bool differs) {
    check.no_effect(section + key, differs, reason);
  };
}

/// The limit of numbers without a limit of their own, such as steps and sequences.
inline constexpr std::int64_t max_count = std::int64_t{1} << 40;

/// Text with the `most` divisors of n that are nearest to `near`, ascending: "1, 2, 3 or 6".
std::string divisors_near(std::int64_t n, std::int64_t near, std::size_t most = 4);
/// Text with the multiples of `n` around `near`, ascending: "8 or 16".
std::string multiples_near(std::int64_t n, std::int64_t near);
/// Text with up to nine significant digits: "0.1", "1e-05".
std::string number(double value);

/// A key with its value for messages: "num_layers (4)".
std::string named(const std::string& key, std::int64_t value);
std::string named(const std::string& key, const std::string& value);
/// The rule as text: "num_layers (5) must be divisible by pipeline_stages (2)".
std::string indivisible(const std::string& whole, const std::string& parts);
/// A list as text: "a, b, or c"; `last` comes before the last of several.
std::string alternatives(const std::vector<std::string>& legal, const char* last = ", or ");
/// The product of positive factors, or the largest 64-bit number if it overflows.
std::int64_t product_of(std::initializer_list<std::int64_t> factors);
/// A number with its noun: "8 ranks", "1 rank".
std::string counted(std::int64_t count, const std::string& noun);

/// The configuration and the sizes that follow from it, as far as they are known before it is
/// checked. The plan uses these sizes.
struct Facts {
  const Config& config;
  const Site& site;
  ParallelMode mode = ParallelMode::stand_alone;
  bool splits = false;    // the mode uses the model-parallel sizes
  bool unsplit = false;   // the user chose stand_alone or data_parallel
  bool compiled = false;  // semi_auto_parallel or auto_parallel
  Mesh mesh;              // meaningless while mesh_is_clean() is false
  std::int64_t chunks = 1;
  BatchSizes batch;
  ModelShape model;
  OperatorSplits operators;  // how operators are split over tp

  Facts(const Config& config, const Site& site);
  const ParallelConfig& parallel() const { return config.parallel; }
  std::int64_t replicas() const { return mesh.dp * mesh.cp; }
  bool has_experts() const { return config.moe.num_experts > 1; }
  bool interleaved() const { return mesh.pp > 1 && chunks > 1; }
  bool mesh_is_clean(const Check& check) const;
};

/// Checks every rule. Returns the placement of layers (plan/rules/place_layers.h), which is empty
/// if an error prevents it.
StageMap check_rules(const Facts& facts, Check& check);

// One set of rules per subject.
void check_model(const ModelConfig& model, Check& check);
void check_forms(const ModelConfig& model, Check& check);
void check_mesh(const Facts& facts, Check& check);            // parallel degrees, rank order
void check_splits(const Facts& facts, Check& check);          // sizes that parallel degrees divide
void check_experts(const Facts& facts, Check& check);         // sizes of the expert axes, moe
void check_batch(const Facts& facts, Check& check);           // batches, threads, magnitudes
void check_ramp_schedules(const Facts& facts, Check& check);  // run after check_pipeline
void check_pipeline(const Facts& facts, Check& check);        // schedule and chunks
void check_messages(const Facts& facts, Check& check);        // messages between stages
void check_optimizer_shard(const Facts& facts, Check& check);
void check_fusion(const Facts& facts, Check& check);     // buckets and fused collectives
void check_overlap(const Facts& facts, Check& check);    // communication during computation
void check_recompute(const Facts& facts, Check& check);  // recomputation and offloading
void check_modes(const Facts& facts, Check& check);      // keys that the parallel mode ignores
void check_precision(const Config& config, Check& check);
void check_optimizer(const OptimizerConfig& optimizer, const PrecisionConfig& precision,
                     Check& check);
void check_groups(const Facts& facts, Check& check);  // groups of parameters; where muon is allowed
// `steps`: length of the whole schedule.
void check_schedule(const LrScheduleConfig& schedule, std::int64_t steps, Check& check);
void check_data(const Config& config, Check& check);
void check_cluster(const Facts& facts, Check& check);
void check_attention(const Facts& facts, Check& check);  // backend of attention

/// The reason why this configuration cannot use cuDNN's attention on any device, or empty.
std::string why_not_cudnn(const Facts& facts);
/// The attention of a micro-batch on one rank if cuDNN computes it; nullopt if the program's own
/// kernels do. All code asks this function.
std::optional<AttentionExtents> resolve_cudnn(const Facts& facts);

}  // namespace trainctl
