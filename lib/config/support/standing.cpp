#include "config/support/standing.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>

#include "base/text.h"
#include "config/schema/known_paths.h"
#include "config/schema/values.h"

namespace trainctl {
namespace {

constexpr bool not_built = false, no_effect = true;  // values of Standing::built below

constexpr Standing standing_rows[] = {
    {"model.use_cpu_initialization", no_effect, "false",
     "initial weights are the same on every device"},
    {"model.use_te_rng_tracker", no_effect, "false",
     "random numbers depend only on global indices"},
    {"model.cross_entropy_fusion_impl", no_effect, "native",
     "the one fused loss is trainctl's own"},
    {"parallel.pipeline.comm_backend", not_built, "null|nccl", "nccl"},
    {"parallel.pipeline.overlap_p2p_comm_warmup_flush", no_effect, "false",
     "overlap always includes warm-up and cool-down"},
    {"parallel.pipeline.batch_p2p_sync", no_effect, "true",
     "it works around a fault in another library"},
    {"parallel.tp_comm_overlap.bootstrap_backend", no_effect, "nccl",
     "no buffers are registered, so that there are no handles to exchange"},
    {"parallel.tp_comm_overlap.split_ag", no_effect, "true", "deprecated: use ag"},
    {"parallel.tp_comm_overlap.atomic_ag", no_effect, "false", "deprecated: use ag"},
    {"parallel.tp_comm_overlap.split_rs", no_effect, "true", "deprecated: use rs"},
    {"parallel.tp_comm_overlap.atomic_rs", no_effect, "false", "deprecated: use rs"},
    {"parallel.tp_comm_overlap.async_allreduce", no_effect, "false", "deprecated: use enable"},
    {"moe.extended_tp", no_effect, "false", "deprecated: use parallel.expert_tensor_parallel"},
};

/// A feature that one key switches on; without it, the other keys under `prefix` have no effect.
struct Feature {
  std::string_view prefix;
  std::string_view switched_by;
  std::string_view off;  // value that switches it off
};
constexpr Feature features[] = {
    {"recompute.", "recompute.enable", "false"},
    {"offload.", "offload.enable", "false"},
    {"moe.comp_comm_parallel_degree", "moe.comp_comm_parallel", "false"},
    {"moe.", "moe.num_experts", "1"},
    {"parallel.tp_comm_overlap.", "parallel.tp_comm_overlap.enable", "false"},
    {"parallel.parallel_optimizer.", "parallel.parallel_optimizer.enable", "false"},
    {"hooks.param_sync", "parallel.parallel_optimizer.enable", "false"},
    {"parallel.pipeline.wgrad_deferral_limit", "parallel.pipeline.defer_embedding_wgrad_compute",
     "false"},
    {"precision.autocast_dtype", "precision.enable_autocast", "false"},
    {"precision.loss_scale", "hooks.grad_scale", "none"},
    {"precision.dynamic_loss_scale", "hooks.grad_scale", "none"},
    {"precision.initial_loss_scale", "hooks.grad_scale", "none"},
    {"precision.min_loss_scale", "hooks.grad_scale", "none"},
    {"log.timer_level", "hooks.timers", "false"},
    {"log.barrier_with_timers", "hooks.timers", "false"},
};

using Values = std::map<std::string, std::string, std::less<>>;  // path -> YAML; without unset ones
/// Whether the key belongs to the feature, apart from its switch.
bool belongs(std::string_view path, const Feature& feature) {
  return path.starts_with(feature.prefix) && path != feature.switched_by;
}

bool switches(std::string_view path) {
  return std::ranges::any_of(features, [&](const Feature& one) { return path == one.switched_by; });
}

bool has_standing(std::string_view path, bool built) {
  const Standing* standing = find_standing(path);
  return standing != nullptr && standing->built == built;
}

/// Whether some value of the key may have no effect.
bool may_be_idle(std::string_view path) {
  return has_standing(path, no_effect) ||
         std::ranges::any_of(features, [&](const Feature& one) { return belongs(path, one); });
}

bool is_plain(const Standing& standing, const std::string& value) {
  const auto plain = split_words(standing.plain);
  return standing.plain == "*" || std::find(plain.begin(), plain.end(), value) != plain.end();
}

/// Why the feature of a key is off: "KEY is VALUE"; "" if it is on.
std::string switched_off(const std::string& path, const Values& values) {
  for (const Feature& feature : features) {
    if (!belongs(path, feature)) continue;
    const auto found = values.find(feature.switched_by);
    if (found == values.end() || found->second != feature.off) continue;
    return formatted("{} is {}", feature.switched_by, feature.off);
  }
  return "";
}

/// Why a given value has no effect; "" if it has one.
std::string why_no_effect(const std::string& path, const std::string& value, const Values& values) {
  std::string off = switched_off(path, values);
  if (!off.empty()) return off;
  const Standing* standing = find_standing(path);
  if (standing == nullptr || standing->built != no_effect) return "";
  return is_plain(*standing, value) ? "" : std::string(standing->note);
}

/// Whether a rule has already reported this for the key or its section, or an error there.
bool is_said(const std::string& path, const Diagnostics& diagnostics) {
  const auto& list = diagnostics.list();
  return std::any_of(list.begin(), list.end(), [&](const Diagnostic& diagnostic) {
    return (diagnostic.code == "no-effect" || diagnostic.severity == Severity::error) &&
           (path == diagnostic.path || path.starts_with(diagnostic.path + "."));
  });
}

}  // namespace

std::span<const Standing> standings() { return standing_rows; }

const Standing* find_standing(std::string_view path) {
  const Standing* best = nullptr;
  for (const Standing& row : standing_rows) {
    const bool covers = path.starts_with(row.path) &&
                        (path.size() == row.path.size() || path[row.path.size()] == '.');
    if (covers && (best == nullptr || row.path.size() > best->path.size())) best = &row;
  }
  return best;
}

std::string_view status_of(std::string_view path) {
  const Standing* standing = find_standing(path);
  if (standing == nullptr) return "supported";
  if (standing->built == no_effect) return "no effect";
  const bool several = standing->plain.find('|') != std::string_view::npos;
  return several ? "partly built" : "not built yet";
}

std::string today(std::string_view path) {
  const Standing* standing = find_standing(path);
  if (standing == nullptr || standing->note.empty()) return "";
  const std::string note(standing->note);
  return "today: " + (note.find('.') == std::string::npos ? last_key(path) + ": " : "") + note;
}

void check_built(const Config& config, const SourceMap& sources, Severity severity,
                 Diagnostics& diagnostics) {
  const Values values = written_values(config, [](std::string_view path) {
    return switches(path) || has_standing(path, not_built);
  });
  for (const auto& [path, value] : values) {
    const Standing* standing = find_standing(path);
    if (standing == nullptr || standing->built != not_built) continue;
    if (is_plain(*standing, value) || is_said(path, diagnostics)) continue;
    if (!switched_off(path, values).empty()) continue;
    diagnostics.add({severity, "not-built", path,
                     "not built yet: " + last_key(path) + ": " + shown(value), today(path),
                     sources.find(path)});
  }
}

void check_effect(const Config& config, const SourceMap& sources, Diagnostics& diagnostics) {
  std::map<std::string_view, const Place*> given;  // given keys that may have no effect
  for (const auto& [path, place] : sources.places()) {
    if (may_be_idle(path)) given[path] = &place;
  }
  if (given.empty()) return;
  const Values defaults =
      written_values(Config{}, [&](std::string_view path) { return given.contains(path); });
  const Values values = written_values(
      config, [&](std::string_view path) { return switches(path) || given.contains(path); });
  for (const auto& [path, value] : values) {
    const auto place = given.find(path);
    const auto fallback = defaults.find(path);
    if (place == given.end() || (fallback != defaults.end() && fallback->second == value)) continue;
    const std::string why = why_no_effect(path, value, values);
    if (why.empty() || is_said(path, diagnostics)) continue;
    diagnostics.add(
        {Severity::warning, "no-effect", path,
         last_key(diagnostics.written(path)) + ": " + shown(value) + " has no effect: " + why, "",
         *place->second});
  }
}

}  // namespace trainctl
