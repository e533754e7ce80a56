#include "verify_tasks.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "arguments.h"
#include "base/error.h"
#include "base/text.h"
#include "base/units.h"
#include "config/schema/optimizers.h"
#include "device/cuda_device.h"
#include "output.h"
#include "plan/rules/resolve.h"
#include "run/agreement.h"
#include "verify/record.h"
#include "verify/selection/selection.h"

namespace trainctl {

namespace {

/// The most operations of a step for which the model is compared as a whole, unless requested: a
/// minute of one core.
constexpr double max_operations = 2e12;

/// Checks first, so a missing device does not count as a difference. Throws Error{unavailable}.
void require_devices(const Plan& plan) {
  if (plan.device != DeviceKind::cuda) return;
  const std::int64_t last = plan.mesh.world_size() - 1;
  const int device = cuda_device_of(last, shares(plan.share_devices));
  require(device >= 0, ExitCode::unavailable, no_device_text(last, cuda_module().device_count()));
  cuda_multiprocessors_beside(device, plan.product_sm_margin);
}

/// Multiplications and additions of a step's passes.
double operations_of(const Plan& plan) {
  return 6 * static_cast<double>(plan.active_parameter_count()) *
         static_cast<double>(plan.tokens_per_step());
}

/// The tasks of a comparison. With checkpoints, each layout saves for itself and for the next one
/// (the last for the first), or with every_pair for all layouts.
std::vector<VerifyTask> tasks_of(const VerifyCommand& command,
                                 const std::vector<VerifyCandidate>& candidates) {
  std::vector<VerifyTask> tasks;
  const std::size_t count = candidates.size();
  for (std::size_t i = 0; i < count; ++i) {
    const VerifyCandidate& own = candidates[i];
    if (!command.through_checkpoint) {
      tasks.push_back({nullptr, &own});
      continue;
    }
    tasks.push_back({&own, &own});
    const std::size_t others = command.every_pair ? count - 1 : std::min<std::size_t>(count - 1, 1);
    for (std::size_t k = 1; k <= others; ++k) {
      tasks.push_back({&own, &candidates[(i + k) % count]});
    }
  }
  return tasks;
}

/// The axes along which layouts divide the work; other settings are compared along each axis.
/// Tensor-parallel ranks make other calls with sequence parallelism than without.
constexpr std::string_view whole_streams = "tp without sp";
constexpr std::string_view axes[] = {whole_streams, "sp", "pp", "dp", "cp", "ep"};

WordRow with_axes(WordRow said) {
  const auto has = [&](const char* word) { return std::ranges::find(said, word) != said.end(); };
  if (has("tp") && !has("sp")) said.emplace_back(whole_streams);
  return said;
}

LayoutSelection select(const VerifyCommand& command, const Config& config, std::int64_t ranks) {
  if (ranks > max_layout_ranks) {
    refuse(verify_name, formatted("--world-size {}: layouts of at most {} ranks are run", ranks,
                                  max_layout_ranks));
  }
  LayoutSelection selection = command.layouts == "quick"
                                  ? select_few_layouts(config, {}, ranks)
                                  : select_layouts(config, {}, ranks, command.exhaustive);
  if (!selection.chosen.empty()) return selection;
  std::string why;
  for (const auto& [code, rule] : selection.rules) why += "\n  " + code + ": " + rule;
  throw Error(ExitCode::config, formatted("no layout of {} ranks is legal:{}", ranks, why));
}

}  // namespace

std::size_t VerifyComparisons::tasks() const {
  return std::accumulate(list.begin(), list.end(), std::size_t{0},
                         [](std::size_t sum, const auto& one) { return sum + one.tasks.size(); });
}

struct VerifyPlanner::RequestedRun {
  std::string name;
  std::int64_t ranks = 1;
  WordRow said;
  std::optional<LayoutChoice> choice;
};

VerifyPlanner::VerifyPlanner(const VerifyCommand& command, std::int64_t free_bytes,
                             std::int64_t processes)
    : command_(command), free_bytes_(free_bytes), processes_(processes) {
  // Other layouts than the file's own need not be legal there: their rules are checked one by one.
  if (command.layouts.empty()) {
    planned_ = plan_config(command.request, Purpose::verify);
  } else {
    planned_.read = read_config(command.request.config, command.request.set_options);
    forgive_missing(Purpose::verify, planned_.read.diagnostics);
    planned_.site.world_size = command.request.world_size > 0
                                   ? command.request.world_size
                                   : world_size_of(planned_.read.config.parallel);
  }
  print_message(render_text(planned_.read.diagnostics, color_on_stderr()));
  limit_ = command.memory_limit > 0 ? static_cast<std::int64_t>(command.memory_limit * 0x1p30)
                                    : free_bytes / 4 * 3;
}

VerifyComparisons VerifyPlanner::plan() {
  VerifyComparisons all;
  all.steps = command_.steps > 0 ? command_.steps : 3;
  std::vector<RequestedRun> layouts;
  const auto take_layouts = [&] {
    all.selection = {};
    layouts = layouts_to_run(all.selection);
    all.list = {};
    all.list.push_back(comparison(read_with({}).config, {}, layouts));
  };
  if (command_.size == "layer") {
    layer_replicas_ = replicas_of_layer();
    all.note = "--size layer";
  }
  take_layouts();
  if (command_.size == "auto") {
    all.note = too_large(all);
    if (!all.note.empty()) {
      layer_replicas_ = replicas_of_layer();
      take_layouts();
    }
  }
  if (layer_replicas_ > 0) fit_layer(all);
  check_memory(all);
  if (command_.options != "none") add_options(layouts, all);
  all.steps *= pieces();
  return all;
}

std::optional<VerifyComparison> VerifyPlanner::with(const LayoutChoice& choice,
                                                    const std::vector<Settings>& words) {
  const ReadResult read = read_with(settings_of(words));
  const RequestedRun layout = layout_of(choice);
  if (read.diagnostics.has_errors() || !is_legal(read.config, layout)) return std::nullopt;
  return comparison(read.config, words, {layout});
}

VerifyPlanner::RequestedRun VerifyPlanner::layout_of(const LayoutChoice& choice) {
  return {choice.name(), choice.ranks(), choice.said(), choice};
}

/// The file's own layout; for a model of one layer without its stages and with few replicas.
VerifyPlanner::RequestedRun VerifyPlanner::own_layout() const {
  Mesh mesh = planned_.plan.mesh;
  RequestedRun own;
  LayoutChoice named;
  if (layer_replicas_ > 0) {
    const ParallelConfig parallel = read_with({}).config.parallel;
    mesh = resolve_mesh(parallel, world_size_of(parallel));
  }
  named.sizes = {mesh.tp, mesh.pp, mesh.dp, planned_.plan.sequence_parallel, mesh.cp};
  const std::string experts = mesh.ep == 1 ? "" : formatted("ep{}", mesh.ep);
  own.name = name_of(named.sizes) + (experts.empty() ? "" : "+" + experts);
  own.ranks = mesh.world_size();
  own.said = named.said();
  if (!experts.empty()) own.said.push_back(experts);
  return own;
}

std::vector<VerifyPlanner::RequestedRun> VerifyPlanner::layouts_to_run(LayoutSelection& selection) {
  if (command_.layouts.empty() && !command_.through_checkpoint) return {own_layout()};
  std::vector<RequestedRun> layouts;
  const auto add = [&](RequestedRun layout) {
    const bool known = command_.through_checkpoint &&
                       std::any_of(layouts.begin(), layouts.end(),
                                   [&](const auto& one) { return one.name == layout.name; });
    if (!known) layouts.push_back(std::move(layout));
  };
  // Checkpoints also pass from and to the single rank.
  if (command_.through_checkpoint) add(layout_of({}));
  if (command_.layouts.empty()) add(own_layout());
  if (command_.selects()) {
    selection = select(command_, read_with({}).config, planned_.site.world_size);
  } else if (!command_.layouts.empty()) {
    selection.chosen = parse_layouts(command_.layouts, command_.request.world_size);
  }
  for (const LayoutChoice& choice : selection.chosen) add(layout_of(choice));
  return layouts;
}

/// The number of replicas among which a batch of the one-layer model must be divisible.
std::int64_t VerifyPlanner::replicas_of_layer() const {
  if (command_.layouts.empty()) return std::min(planned_.plan.mesh.dp, max_layer_replicas);
  if (command_.selects()) return planned_.site.world_size;
  std::int64_t replicas = 1;
  for (const LayoutChoice& choice : parse_layouts(command_.layouts, command_.request.world_size)) {
    replicas = std::lcm(replicas, choice.sizes.dp);
  }
  return replicas;
}

ReadResult VerifyPlanner::read_with(const Settings& settings) const {
  Settings all = command_.request.set_options;
  all.insert(all.end(), settings.begin(), settings.end());
  ReadResult read = read_config(command_.request.config, all);
  forgive_missing(Purpose::verify, read.diagnostics);
  // Uses the layout that a search has found, and lengths converted to steps.
  if (command_.layouts.empty()) read.config.parallel = planned_.read.config.parallel;
  if (settings.empty() && command_.layouts.empty()) read.config = planned_.read.config;
  if (layer_replicas_ == 0) return read;
  if (command_.layouts.empty()) read.config.parallel.data_parallel = planned_.plan.mesh.dp;
  read.config = one_layer(std::move(read.config), layer_replicas_);
  return read;
}

Config VerifyPlanner::config_in(const Config& config, const RequestedRun& layout) const {
  Config own = layout.choice ? with_layout(config, *layout.choice) : config;
  own.parallel.threads_per_rank = 1;
  // The single rank is on the CPU, so it takes fp32. On a device auto may be bf16.
  MuonProducts& products = own.optimizer.muon.ns_dtype;
  const bool has_muon = uses(own.optimizer, OptimizerType::muon);
  if (has_muon && products == "auto") products = "fp32";
  return own;
}

bool VerifyPlanner::is_legal(const Config& config, const RequestedRun& layout) const {
  Diagnostics diagnostics;
  prepare(
      config_in(config, layout), {},
      {.world_size = layout.ranks, .ranks_per_host = layout.ranks, .cores_per_host = layout.ranks},
      Purpose::verify, diagnostics);
  return !diagnostics.has_errors();
}

/// Throws Error{config} if a requested layout is not legal. The error has no place in the file,
/// which has other sizes.
VerifyCandidate VerifyPlanner::candidate(const Config& config, const RequestedRun& layout,
                                         const std::vector<Settings>& words) const {
  Diagnostics diagnostics;
  const Site site{.world_size = layout.ranks,
                  .ranks_per_host = layout.ranks,
                  .cores_per_host = layout.ranks,
                  .device = device_here(config.parallel, layout.ranks).device};
  VerifyCandidate made{.name = layout.name,
                       .config = config_in(config, layout),
                       .plan = {},
                       .said = layout.said,
                       .choice = layout.choice};
  made.plan = prepare(made.config, {}, site, Purpose::verify, diagnostics);
  for (const Settings& word : words) made.said.push_back(word_text(word));
  diagnostics.drop_if([](const Diagnostic& one) { return one.severity != Severity::error; });
  if (!diagnostics.has_errors()) {
    require_devices(made.plan);
    return made;
  }
  print_message(render_text(diagnostics, color_on_stderr()));
  throw Error(ExitCode::config,
              "layout " + layout.name + " is not legal with this configuration" +
                  (layer_replicas_ > 0 ? " and one layer of its model (--size layer)" : ""));
}

VerifyComparison VerifyPlanner::comparison(const Config& config, const std::vector<Settings>& words,
                                           const std::vector<RequestedRun>& layouts) const {
  VerifyComparison made{.words = words, .config = config, .candidates = {}, .tasks = {}};
  for (const RequestedRun& layout : layouts) {
    made.candidates.push_back(candidate(config, layout, words));
  }
  made.tasks = tasks_of(command_, made.candidates);
  return made;
}

/// Adds each layout once more with other settings than the file's, and as often as each setting
/// needs to meet each axis along which layouts divide the work, or each word.
void VerifyPlanner::add_options(const std::vector<RequestedRun>& layouts,
                                VerifyComparisons& all) const {
  const bool pairs = command_.options == "all";
  const ReadWith read = [this](const Settings& settings) { return read_with(settings); };
  const OptionSelection options = select_options(read, pairs);
  for (const auto& [code, words] : options.skipped) {
    auto& skipped = all.selection.skipped[code];
    skipped.insert(skipped.end(), words.begin(), words.end());
    all.selection.rules.emplace(code, options.rules.at(code));
  }
  std::vector<Config> configs;
  std::vector<WordRow> said;
  for (const std::vector<Settings>& words : options.chosen) {
    configs.push_back(read_with(settings_of(words)).config);
    WordRow& row = said.emplace_back();
    for (const Settings& word : words) row.push_back(word_text(word));
  }
  // If there are fewer layouts than combinations, layouts are used several times.
  std::vector<WordRow> rows;
  while (!layouts.empty() && rows.size() < std::max(layouts.size(), configs.size())) {
    rows.push_back(with_axes(layouts[rows.size() % layouts.size()].said));
  }
  const Config file = read_with({}).config;
  const auto can_be = [&](const RowPair& pair) {
    const RequestedRun& layout = layouts[pair.first % layouts.size()];
    const Config& config = configs[pair.second];
    if (layout.choice && !is_worth_trying(*layout.choice, config, file)) return false;
    return is_legal(config, layout);
  };
  const auto met = [&](const std::string& word) {
    return pairs || std::ranges::find(axes, word) != std::end(axes);
  };
  std::vector<std::vector<RequestedRun>> taken(configs.size());
  for (const auto& [row, other] : paired_rows(rows, said, can_be, met)) {
    taken[other].push_back(layouts[row % layouts.size()]);
  }
  for (std::size_t i = 0; i < configs.size(); ++i) {
    if (!taken[i].empty()) {
      all.list.push_back(comparison(configs[i], options.chosen[i], taken[i]));
    }
  }
}

/// The memory of a comparison, and the name of the layout that needs most.
std::pair<std::int64_t, std::string> VerifyPlanner::bytes_of(const VerifyComparison& comparison,
                                                             std::int64_t steps,
                                                             bool freely) const {
  std::set<MessageRounding> records{{}};  // kept for the layouts that follow
  std::pair<std::int64_t, std::string> most;
  for (const VerifyCandidate& one : comparison.candidates) {
    records.insert(message_rounding(one.plan));
    std::int64_t bytes =
        verification_bytes(one.config, one.plan, steps, std::ssize(records) * processes_, freely);
    // Adds the final state of the uninterrupted run.
    if (command_.through_checkpoint) bytes += verification_bytes(one.config, one.plan, 0, 0);
    most = std::max(most, {bytes, one.name});
  }
  return most;
}

/// Why a comparison of the whole model needs too much memory or time; "" if it does not.
std::string VerifyPlanner::too_large(const VerifyComparisons& all) const {
  const std::int64_t bytes = bytes_of(all.list.front(), pieces() * all.steps, true).first;
  if (bytes > limit_ && limit_ > 0) {
    return "the whole model needs about " + format_bytes(bytes) + " of memory, and " +
           format_bytes(limit_) + " may be used (--memory-limit)";
  }
  const double operations = operations_of(all.list.front().candidates.back().plan);
  if (operations <= max_operations) return "";
  return "a step of the whole model has " + format_count(operations) + " operations, more than " +
         format_count(max_operations) + " (--size whole takes it all the same)";
}

/// Makes the comparison of one layer fit into the memory that it may use: leaves out the free run,
/// then takes fewer steps unless the user gave their number.
void VerifyPlanner::fit_layer(VerifyComparisons& all) const {
  const auto fits = [&] {
    return bytes_of(all.list.front(), pieces() * all.steps, all.freely).first <= limit_;
  };
  if (!fits()) all.freely = false;
  while (!fits() && command_.steps == 0 && all.steps > 1) --all.steps;
  all.note += "; compared are " + what_is_left(planned_.read.config, all.list.front().config);
  if (!all.freely) all.note += ", without the free run, whose record does not fit";
}

void VerifyPlanner::check_memory(const VerifyComparisons& all) const {
  const auto [bytes, layout] = bytes_of(all.list.front(), pieces() * all.steps, all.freely);
  const std::int64_t most = command_.memory_limit > 0 ? limit_ : free_bytes_;
  if (most == 0 || bytes <= most) return;
  throw Error(ExitCode::unavailable,
              "layout " + layout + " needs about " + format_bytes(bytes) +
                  " of memory for all its ranks and the record of a single rank, but only " +
                  format_bytes(most) +
                  (command_.memory_limit > 0 ? " may be used (--memory-limit)" : " is free") +
                  "; use " + (layer_replicas_ > 0 ? "" : "--size layer, ") +
                  "fewer ranks, or fewer --steps");
}

}  // namespace trainctl
