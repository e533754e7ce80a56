#include "plan/rules/check.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <limits>

#include "base/text.h"
#include "config/support/standing.h"
#include "plan/rules/place_layers.h"

namespace trainctl {

namespace {

/// A list as text: "1, 2 or 4".
std::string one_of(const std::vector<std::int64_t>& values) {
  std::vector<std::string> texts;
  for (const std::int64_t value : values) texts.push_back(formatted("{}", value));
  return alternatives(texts, " or ");
}

}  // namespace

bool Check::clean(std::initializer_list<std::string_view> paths) const {
  for (const std::string& missing : diagnostics_.forgiven()) {
    if (std::find(paths.begin(), paths.end(), missing) != paths.end()) return false;
  }
  for (const Diagnostic& found : diagnostics_.list()) {
    if (found.severity != Severity::error) continue;
    for (const std::string_view path : paths) {
      if (path == found.path || path.starts_with(found.path + ".")) return false;
    }
  }
  return true;
}

bool Check::on_command_line(const std::string& path) const {
  return sources_.find(path).origin == Place::Origin::set_option;
}

bool Check::given(const std::string& path) const {
  for (auto at = sources_.places().lower_bound(path); at != sources_.places().end(); ++at) {
    const bool same = at->first == path || at->first.starts_with(path + ".");
    if (!same) return false;
    const Place::Origin origin = at->second.origin;
    if (origin == Place::Origin::file || origin == Place::Origin::set_option) return true;
  }
  return false;
}

std::string Check::place_of(const std::string& path) const {
  return given(path) ? formatted(" ({})", sources_.find(path).position()) : "";
}

void Check::error(const char* code, const std::string& path, const std::string& message,
                  const std::string& help) {
  diagnostics_.add({Severity::error, code, path, message, help, sources_.find(path)});
}

void Check::warning(const char* code, const std::string& path, const std::string& message,
                    const std::string& help) {
  diagnostics_.add({Severity::warning, code, path, message, help, sources_.find(path)});
}

void Check::range(const std::string& path, std::int64_t value, std::int64_t least,
                  std::int64_t most) {
  if ((value >= least && value <= most) || !clean({path})) return;
  error("out-of-range", path, formatted("must be from {} to {}, found {}", least, most, value));
}

void Check::rule(const std::string& path, bool holds, double value, const char* rule) {
  if (holds || !clean({path})) return;
  error("out-of-range", path, formatted("must be {}, found {}", rule, number(value)));
}

void Check::no_effect(const std::string& path, bool differs, const std::string& reason) {
  if (!differs || !given(path)) return;
  for (const Diagnostic& found : diagnostics_.list()) {
    const bool same = path == found.path || path.starts_with(found.path + ".") ||
                      found.path.starts_with(path + ".");
    if (same && found.code != "deprecated") return;
  }
  warning("no-effect", path, "has no effect: " + reason);
}

void Check::standing(const Config& config) { check_effect(config, sources_, diagnostics_); }

std::string divisors_near(std::int64_t n, std::int64_t near, std::size_t most) {
  std::vector<std::int64_t> found;
  for (std::int64_t low = 1; low * low <= n; ++low) {
    if (n % low != 0) continue;
    found.push_back(low);
    if (low != n / low) found.push_back(n / low);
  }
  const auto nearer = [near](std::int64_t a, std::int64_t b) {
    const std::int64_t da = std::abs(a - near);
    const std::int64_t db = std::abs(b - near);
    return da != db ? da < db : a < b;
  };
  std::sort(found.begin(), found.end(), nearer);
  found.resize(std::min(found.size(), most));
  std::sort(found.begin(), found.end());
  return one_of(found);
}

std::string multiples_near(std::int64_t n, std::int64_t near) {
  const std::int64_t below = near / n * n;
  return below > 0 ? one_of({below, below + n}) : one_of({below + n});
}

std::string named(const std::string& key, std::int64_t value) {
  return named(key, formatted("{}", value));
}

std::string named(const std::string& key, const std::string& value) {
  return formatted("{} ({})", key, value);
}

std::string indivisible(const std::string& whole, const std::string& parts) {
  return formatted("{} must be divisible by {}", whole, parts);
}

std::string alternatives(const std::vector<std::string>& legal, const char* last) {
  std::string text;
  for (std::size_t i = 0; i < legal.size(); ++i) {
    if (i > 0) text += i + 1 == legal.size() ? last : ", ";
    text += legal[i];
  }
  return text;
}

std::int64_t product_of(std::initializer_list<std::int64_t> factors) {
  std::int64_t product = 1;
  for (const std::int64_t factor : factors) {
    if (product > std::numeric_limits<std::int64_t>::max() / factor) {
      return std::numeric_limits<std::int64_t>::max();
    }
    product *= factor;
  }
  return product;
}

std::string counted(std::int64_t count, const std::string& noun) {
  return formatted("{} {}{}", count, noun, count == 1 ? "" : "s");
}

Facts::Facts(const Config& all, const Site& around) : config(all), site(around) {
  mode = resolve_mode(all.parallel, around.world_size);
  splits = mode_splits_model(mode);
  unsplit = all.parallel.parallel_mode.has_value() && !splits;
  compiled = mode == ParallelMode::semi_auto_parallel || mode == ParallelMode::auto_parallel;
  mesh = resolve_mesh(all.parallel, around.world_size);
  chunks = resolve_chunks(all.parallel, mode);
  TrainConfig train = all.train;  // resolve_batch divides by micro_batch_num
  if (train.micro_batch_num && *train.micro_batch_num < 1) train.micro_batch_num.reset();
  batch = resolve_batch(train, mesh, around.done.steps, around.done.samples);
  model = with_groups(model_shape(all.model, all.moe),
                      product_of({std::max<std::int64_t>(1, batch.micro_batch_size),
                                  std::max<std::int64_t>(1, all.model.seq_length)}));
  operators = resolve_splits(all, mode, mesh);
}

bool Facts::mesh_is_clean(const Check& check) const {
  return check.clean({"parallel.parallel_mode", "parallel.device_num", "parallel.data_parallel",
                      "parallel.tensor_parallel", "parallel.context_parallel",
                      "parallel.pipeline_stages", "parallel.expert_parallel",
                      "parallel.expert_tensor_parallel"});
}

StageMap check_rules(const Facts& facts, Check& check) {
  const Config& config = facts.config;
  StageMap map;
  check_model(config.model, check);
  check_mesh(facts, check);
  check_splits(facts, check);
  check_experts(facts, check);
  check_batch(facts, check);
  check_attention(facts, check);
  const bool countable =
      facts.mesh_is_clean(check) &&
      check.clean({"model.num_layers", "parallel.virtual_pipeline_stages", "parallel.pipeline"});
  if (countable) map = make_stage_map(config, check);
  check_pipeline(facts, check);
  check_ramp_schedules(facts, check);
  check_messages(facts, check);
  check_optimizer_shard(facts, check);
  check_fusion(facts, check);
  check_overlap(facts, check);
  check_recompute(facts, check);
  check_modes(facts, check);
  check_precision(config, check);
  check_optimizer(config.optimizer, config.precision, check);
  check_groups(facts, check);
  const std::int64_t end = facts.site.length.pace.end;
  check_schedule(config.lr_schedule, end > 0 ? end : config.train.steps, check);
  check_data(config, check);
  check_cluster(facts, check);
  check.standing(config);
  return map;
}

std::string number(double value) {
  std::array<char, 40> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.9g", value);
  return buffer.data();
}

}  // namespace trainctl
