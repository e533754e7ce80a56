#include "run/prepare.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "config/support/standing.h"
#include "engine/engine.h"
#include "formats/strategy/requested_files.h"
#include "ops/kernels.h"
#include "plan/prepare/lengths.h"
#include "plan/prepare/make_plan.h"
#include "plan/prepare/search_by_seconds.h"
#include "plan/prices/machine.h"
#include "plan/remedies/remedies.h"
#include "plan/rules/check.h"
#include "run/data/corpus.h"

namespace trainctl {

namespace {

constexpr std::string_view made_up_data[] = {"data.train"};
constexpr std::string_view only_shown[] = {"data.train", "train.steps", "lr_schedule.max_lr"};

struct PurposeRules {
  Severity not_built = Severity::error;  // severity of features that the engine cannot run
  bool strategy_file = false;            // whether the file that load_file names is compared
  std::span<const std::string_view> unneeded{};
  bool any_batch = false;  // a missing batch size gets a default
};

/// How strict each purpose is; decided only here.
PurposeRules rules_of(Purpose purpose) {
  switch (purpose) {
    case Purpose::train: return {.strategy_file = true};
    case Purpose::plan: return {Severity::warning, true, only_shown, true};
    case Purpose::rates: return {Severity::warning, true, made_up_data, true};
    case Purpose::verify:
    case Purpose::bench: return {.unneeded = made_up_data};
    case Purpose::generate: break;
  }
  return {};
}

/// Sets a missing batch size to whole micro-batches, enough of them for every schedule.
void fill_batch(ReadResult& read, const Site& site) {
  const auto is_missing = [](const Diagnostic& one) {
    return one.code == "missing-key" && one.path == "train.global_batch_size";
  };
  const auto& list = read.diagnostics.list();
  if (std::none_of(list.begin(), list.end(), is_missing)) return;
  read.diagnostics.drop_if(is_missing);
  TrainConfig& train = read.config.train;
  const Mesh mesh = resolve_mesh(read.config.parallel, site.world_size);
  const std::int64_t count = train.micro_batch_num.value_or(mesh.pp > 1 ? 2 * mesh.pp : 1);
  train.global_batch_size = product_of({mesh.dp, count, train.micro_batch_size.value_or(1)});
}

/// Sequences in one pass over the training data if train.epochs is set. Generated data has any
/// length.
std::optional<std::int64_t> windows_of(const ReadResult& read, Purpose purpose,
                                       bool counts_epochs) {
  const Config& config = read.config;
  const bool on_data =
      purpose == Purpose::train || purpose == Purpose::plan || purpose == Purpose::rates;
  if (!config.train.epochs || read.diagnostics.has_errors()) return std::nullopt;
  if (!on_data) return 1;
  if (!counts_epochs) return std::nullopt;
  try {
    return open_train_data(config.data, config.model.seq_length, config.train.seed).windows();
  } catch (const Error& error) {
    const std::string place = read.sources.find("data.train").to_string();
    throw Error(error.code(), place + ": data.train: " + error.what());
  }
}

/// Writes expert groups as large as a micro-batch with their size in tokens, since another layout,
/// or an evaluation, has other micro-batches.
void settle_groups(const Plan& plan, MoeConfig& moe) {
  if (moe.expert_group == "sequence" || moe.expert_group_size) return;
  moe.expert_group_size = plan.model.routing_group;
  moe.expert_group = "sequence";  // what is written reads back without a remark
}

std::optional<SearchReport> search_layout(const SearchInput& input, Check& check) {
  const bool seconds = input.config.parallel.search_mode == "dynamic_programming";
  return seconds ? search_by_seconds(input, check) : search_by_rule(input, check);
}

/// Reports operations without a kernel on this CPU. Kernels of a CUDA device are checked when it is
/// opened, so that its configurations can be checked on machines without one.
void check_kernels(const Plan& plan, const SourceMap& sources, Diagnostics& diagnostics) {
  if (plan.device != DeviceKind::cpu) return;
  const std::string path = "parallel.device";
  const Kernels& kernels = cpu_kernels();
  for (const std::string& name : missing_for(plan, kernels)) {
    diagnostics.add({Severity::error, "not-built", path,
                     "not built yet: op " + name + " on " + std::string(kernels.name) +
                         ", which this model needs",
                     "", sources.find(path)});
  }
}

}  // namespace

Plan prepare(const Config& config, const SourceMap& sources, const Site& site, Purpose purpose,
             Diagnostics& diagnostics) {
  const PurposeRules rules = rules_of(purpose);
  Site used = site;
  used.trains = purpose != Purpose::generate;
  Plan plan = make_plan(config, used, sources, diagnostics);
  check_built(config, sources, rules.not_built, diagnostics);
  if (diagnostics.has_errors()) return plan;
  if (rules.strategy_file) check_layout_file(config, plan, sources, diagnostics);
  if (rules.not_built == Severity::error && compares_software(config.cluster)) {
    diagnostics.add({Severity::error, "cluster-software", "cluster.software",
                     "only plans compare other software (" + config.cluster.software +
                         "): a run is this program's",
                     "remove it, or set it to trainctl", sources.find("cluster.software")});
  }
  // A plan that is only printed may be for another machine.
  if (rules.not_built == Severity::error) check_kernels(plan, sources, diagnostics);
  const auto& missing = diagnostics.forgiven();
  if (std::count(missing.begin(), missing.end(), "lr_schedule.max_lr") > 0) plan.rates.clear();
  return plan;
}

Plan prepare_draft(const Config& config, const SourceMap& sources, const Site& site,
                   Diagnostics& diagnostics) {
  return draft_plan(config, site, sources, diagnostics);
}

Plan prepare(ReadResult& read, const Site& site, Purpose purpose, const ArrangementRequest& layout,
             bool counts_epochs) {
  Plan plan;
  if (read.complete) {
    if (rules_of(purpose).any_batch) fill_batch(read, site);
    forgive_missing(purpose, read.diagnostics);
    if (rules_of(purpose).strategy_file) {
      settle_splits(read.config, read.sources, site, read.diagnostics);
    }
    ChosenArrangement choice = choose_layout(read, site, search_layout, layout);
    if (layout.choice != nullptr) *layout.choice = std::move(choice);
    read.given = read.config;
    const auto windows = windows_of(read, purpose, counts_epochs);
    const bool unknown = read.config.train.epochs && !windows && purpose != Purpose::rates;
    Site settled = site;
    settled.length = settle_lengths(read.config, read.sources, site, windows, read.diagnostics);
    forgive_missing(purpose, read.diagnostics);
    if (unknown) {
      read.diagnostics.forgive_if([](const Diagnostic& one) {
        return one.code == "missing-key" && one.path == "train.steps";
      });
    }
    plan = prepare(read.config, read.sources, settled, purpose, read.diagnostics);
    if (!read.diagnostics.has_errors()) settle_groups(plan, read.config.moe);
  }
  read.diagnostics.sort();
  if (read.complete) {
    keep_proven_values(read.config, read.sources, site, read.diagnostics);
    suggest_joint_layout(read.config, site, read.diagnostics);
  }
  return plan;
}

void forgive_missing(Purpose purpose, Diagnostics& diagnostics) {
  const auto unneeded = rules_of(purpose).unneeded;
  diagnostics.forgive_if([&](const Diagnostic& one) {
    return one.code == "missing-key" &&
           std::find(unneeded.begin(), unneeded.end(), one.path) != unneeded.end();
  });
}

std::vector<std::string> not_prepared(const Config& config) {
  std::vector<std::string> names{"data", "disk", "memory"};
  if (config.parallel.device != "cpu") names.emplace_back("devices");
  if (config.model.from) names.emplace_back("weights");
  return names;
}

}  // namespace trainctl
