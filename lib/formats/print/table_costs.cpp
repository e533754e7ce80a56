#include <algorithm>
#include <functional>

#include "base/scratch.h"
#include "base/text.h"
#include "base/units.h"
#include "formats/print/rows.h"
#include "formats/print/table_parts.h"
#include "formats/print/text.h"
#include "plan/cost/forms.h"
#include "plan/cost/ledger.h"

namespace trainctl {

namespace {

/// Rows of the parameter table that differ only in their layers.
struct FoldedParameter {
  std::string key;
  const ParamSpec* row = nullptr;
  std::string suffix;  // text after "layers.N."; empty outside of layers
  std::int64_t first = 0;
  std::int64_t last = 0;
  std::int64_t copies = 0;
  std::string sums;
};

std::string sums_text(const Plan& plan, int stage, const ParamSpec& row) {
  std::string text;
  for (const std::string& kind : owner_groups(plan, stage, row)) {
    text += (text.empty() ? "sum over " : ", ") + kind;
  }
  return text;
}

std::string split_text(const ParamSpec& row) {
  return joined(splits_of(row), " ",
                [](const auto& split) { return formatted("{}:{}", split.first, split.second); });
}

void add_folded(std::vector<FoldedParameter>& rows, const Plan& plan, int stage,
                const ParamSpec& row) {
  FoldedParameter added;
  added.row = &row;
  added.sums = sums_text(plan, stage, row);
  added.copies = 1;
  added.key = row.name;
  if (kind_of_unit(row.unit, plan.model.layers) == UnitKind::block) {
    added.first = added.last = row.unit - 1;
    added.suffix = row.name.substr(block_prefix(row.unit).size());
    added.key = added.suffix;
  }
  added.key += row.shape.to_string() + init_text(row) + added.sums + (row.decay ? "d" : "");
  const auto same = std::find_if(rows.begin(), rows.end(), [&added](const FoldedParameter& other) {
    return other.key == added.key && !added.suffix.empty();
  });
  if (same == rows.end()) {
    rows.push_back(std::move(added));
  } else {
    same->first = std::min(same->first, added.first);
    same->last = std::max(same->last, added.last);
    ++same->copies;
  }
}

std::string parameter_line(const FoldedParameter& folded) {
  const ParamSpec& row = *folded.row;
  std::string name = row.name;
  if (!folded.suffix.empty()) {
    name = "layers." + span_text(folded.first, folded.last) + "." + folded.suffix;
  }
  std::string line = "  " + padded(name, 34) + " " + padded(row.shape.to_string(), 14) + " " +
                     padded(split_text(row), 6) +
                     padded_left(format_grouped(row.shape.numel() * folded.copies), 15) + "  " +
                     padded(init_text(row), 15) + " " + (row.decay ? "decay" : "     ") + " " +
                     folded.sums;
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

std::string bar_of(std::int64_t bytes, std::int64_t most) {
  constexpr double columns = 40;
  const double share =
      static_cast<double>(bytes) / static_cast<double>(std::max<std::int64_t>(1, most));
  const auto length = static_cast<std::size_t>(columns * share + 0.5);
  return length == 0 ? "" : "  " + std::string(length, '#');
}

}  // namespace

std::string parameters_section(const PrintInput& input) {
  const Plan& plan = input.plan;
  std::vector<FoldedParameter> rows;
  std::int64_t total = 0;
  std::int64_t tensors = 0;
  std::int64_t buckets = 0;
  for (int stage = 0; stage < plan.map.stages; ++stage) {
    const StagePlan& held = plan.stages[static_cast<std::size_t>(stage)];
    for (const ParamSpec& row : held.parameters) {
      if (!row.second_home) total += row.global_shape.numel();
      tensors += row.second_home ? 0 : 1;
      if (input.rank < 0 || plan.mesh.coordinate(input.rank, Axis::pp) == stage) {
        add_folded(rows, plan, stage, row);
      }
    }
    buckets += static_cast<std::int64_t>(held.flat.buckets.size());
  }
  const std::string active =
      plan.model.experts > 1
          ? ", " + format_grouped(plan.active_parameter_count()) + " of them per token"
          : "";
  std::string text = "parameters  (" + format_grouped(total) + active +
                     (active.empty() ? " in " : ", in ") + grouped_count(tensors, "tensor") + ", " +
                     grouped_count(buckets, "bucket") + "; shapes and counts are one rank's)\n";
  for (const FoldedParameter& row : rows) text += parameter_line(row);
  return text;
}

std::string memory_section(const PrintInput& input) {
  const Plan& plan = input.plan;
  const int fullest = shown_stage(input);
  const MemoryEstimate& memory = plan.stages[static_cast<std::size_t>(fullest)].memory;
  std::string text = "memory per rank";
  if (plan.map.stages > 1) {
    text += "  (stage " + std::to_string(fullest) + (input.rank < 0 ? ", the fullest)" : ")");
  }
  text += "\n";
  for (const auto& [name, bytes] : memory_rows(memory)) {
    text += labelled(std::string(name),
                     padded_left(format_bytes(bytes), 12) + bar_of(bytes, memory.total()));
  }
  text += labelled("total", padded_left(format_bytes(memory.total()), 12));
  if (memory.on_cuda) {
    text += labelled("", "on the device " + format_bytes(memory.device()) + " (scratch " +
                             format_bytes(input.plan.scratch_bytes()) + " of its activations, " +
                             format_bytes(cuda_product_bytes) + " for cuBLASLt), on the host " +
                             format_bytes(memory.host()));
  }
  text += labelled("", fit_text(memory_fit(input)));
  for (const MemoryModelRows& model : memory_models(input)) {
    text += labelled(model.name, numbers_text(model));
    text += labelled("", "(" + model.about + ")");
  }
  return text;
}

std::string communication_section(const PrintInput& input) {
  const Plan& plan = input.plan;
  std::string text = "communication  (one rank, one step)\n";
  const std::size_t empty = text.size();
  std::string before;
  int same = 0;  // number of stages with the same lines as the stage before
  for (int stage = 0; stage <= plan.map.stages; ++stage) {
    std::string lines;
    if (stage < plan.map.stages) {
      for (const CollectiveUse& use : plan.stages[static_cast<std::size_t>(stage)].communication) {
        lines += "    " + padded(use.name(), 36) + " " + padded(name_of(use.group), 14) +
                 padded_left(grouped_count(use.count, "call"), 16) +
                 padded_left(format_bytes(use.bytes), 14) + "\n";
      }
    }
    if (stage > 0 && lines == before && stage < plan.map.stages) {
      ++same;
      continue;
    }
    const std::int64_t here = input.rank < 0 ? -1 : plan.mesh.coordinate(input.rank, Axis::pp);
    if (stage > 0 && !before.empty() && (here < 0 || (here >= stage - 1 - same && here < stage))) {
      if (plan.map.stages > 1) text += "  stage " + span_text(stage - 1 - same, stage - 1) + "\n";
      text += before;
    }
    same = 0;
    before = lines;
  }
  return text.size() == empty ? text + "  none\n" : text;
}

std::string work_section(const Plan& plan) {
  const FlopsEstimate& flops = plan.flops;
  std::string text = "work per step\n";
  text += labelled("products", operations_text(flops.matmul));
  text +=
      labelled("attention", operations_text(flops.attention_causal) + " causal, " +
                                operations_text(flops.attention_full) + " if all pairs counted");
  const double tokens = static_cast<double>(std::max<std::int64_t>(1, plan.tokens_per_step()));
  return text + labelled("total", operations_text(flops.total()) + ", " +
                                      operations_text(flops.total() / tokens) + " per token");
}

namespace {

/// A number with four digits, or more if its integer part is longer.
std::string amount_text(double amount) { return printed(amount < 1000 ? "%.4g" : "%.0f", amount); }

std::string days_text(double days) {
  if (days < 1) return format_seconds(days * 86400);
  return printed(days < 100 ? "%.3g" : "%.0f", days) + " days";
}

std::string run_lines(const DeviceTime& time) {
  std::string text =
      labelled("over days", format_count(time.tokens_per_day) + " tokens a day at a goodput of " +
                                percent(time.goodput) +
                                (time.best_checkpoint_steps > 0
                                     ? ", best with a checkpoint every " +
                                           printed("%.0f", time.best_checkpoint_steps) + " steps"
                                     : "") +
                                (time.days ? "; " + days_text(*time.days) + " for all steps" : ""));
  text += labelled(
      "a billion tokens",
      amount_text(time.device_hours_per_billion_tokens) + " device hours" +
          (time.cost_per_billion_tokens ? ", cost " + amount_text(*time.cost_per_billion_tokens)
                                        : "") +
          (time.cost ? "; all steps cost " + amount_text(*time.cost) : ""));
  return text;
}

/// The kinds of time of a rank, as means over the stages, the largest first; only kinds of at least
/// a hundredth of the step.
std::string kinds_line(const Plan& plan, const Config& config) {
  Ledger sum;
  for (const Ledger& one : estimate_ledgers(plan, config.cluster)) {
    for (const LedgerEntry& entry : ledger_entries) sum.*entry.seconds += one.*entry.seconds;
  }
  auto kinds = ledger_entries;
  std::ranges::stable_sort(kinds, std::ranges::greater{},
                           [&](const LedgerEntry& entry) { return sum.*entry.seconds; });
  std::string text;
  for (const LedgerEntry& entry : kinds) {
    const double share = sum.*entry.seconds / sum.total();
    if (share < 0.01) break;
    text += (text.empty() ? "" : ", ") + std::string(entry.text) + " " + percent(share);
  }
  return labelled("goes to", text);
}

std::string basis_of(const TimeEstimate& time) {
  if (!time.on_device) return "at the rates of section cluster";
  const DeviceTime& on = *time.on_device;
  return "on " + on.device + " with " + on.software + "; " + on.trust + ": expect an error of " +
         printed("%.0f", on.expected_error * 100) + " %";
}

}  // namespace

std::string time_section(const Plan& plan, const Config* config) {
  if (!plan.time) return "time per step  not estimated: the config has no section cluster\n";
  const TimeEstimate& time = *plan.time;
  const double tokens = static_cast<double>(plan.tokens_per_step()) / time.step();
  return "time per step  (" + basis_of(time) + ")\n" +
         labelled("forward, backward", format_seconds(time.forward_backward) + ", of which " +
                                           format_seconds(time.exposed) +
                                           " exposed communication, bubble " +
                                           percent(time.bubble_fraction)) +
         (plan.overlap.any || plan.exchange.overlaps()
              ? labelled("overlapped",
                         format_seconds(time.hidden) + " of the collectives in layers")
              : "") +
         labelled("optimizer", format_seconds(time.optimizer)) +
         labelled("total", format_seconds(time.step()) + ", " + format_count(tokens) +
                               " tokens per second") +
         (time.on_device && config != nullptr ? kinds_line(plan, *config) : "") +
         (time.on_device ? run_lines(*time.on_device) : "");
}

namespace {

/// Work to recompute: "2.1 GFLOP, 12 ms", with seconds if rates are given.
std::string work_text(const RecomputeCost& cost, double times) {
  if (cost.form == "none") return "-";
  std::string text = cost.flops > 0 ? operations_text(cost.flops * times) : "no products";
  if (cost.seconds) text += ", " + format_seconds(*cost.seconds * times);
  return text;
}

std::string saved_text(std::int64_t bytes, std::int64_t most) {
  if (most == bytes) return "-";
  return percent(1 - static_cast<double>(bytes) / static_cast<double>(most));
}

/// The end of the run of successive units from units[first] that are `alike`.
template <class Alike>
std::size_t end_of_run(const std::vector<int>& units, std::size_t first, const Alike& alike) {
  std::size_t last = first;
  while (last + 1 < units.size() && units[last + 1] == units[last] + 1 && alike(units[last + 1])) {
    ++last;
  }
  return last;
}

/// "layers 0-3 full, layer 4 norms"; `partial`: for the micro-batches that keep more.
std::string layers_text(const Plan& plan, const StagePlan& rows, bool partial) {
  std::string text;
  const std::vector<int> blocks = blocks_of(rows.units, plan.model.layers);
  for (std::size_t first = 0; first < blocks.size();) {
    const BlockForm form = rows.forms.of(blocks[first], partial);
    const std::size_t last = end_of_run(blocks, first, [&](int unit) {
      return rows.forms.of(unit, partial).repeated == form.repeated;
    });
    text += std::string(text.empty() ? "" : ", ") + (first == last ? "layer " : "layers ") +
            span_text(blocks[first] - 1, blocks[last] - 1) + " " + form_text(form.repeated);
    first = last + 1;
  }
  return text;
}

/// The layers of ascending units: "layers 0..3, 6".
std::string layer_list(const std::vector<int>& units) {
  std::string layers;
  for (std::size_t first = 0; first < units.size();) {
    const std::size_t last = end_of_run(units, first, [](int) { return true; });
    layers += (layers.empty() ? "" : ", ") + span_text(units[first] - 1, units[last] - 1);
    first = last + 1;
  }
  return (units.size() == 1 ? "layer " : "layers ") + layers;
}

/// "layers 0..3, 64.1 MiB of a layer and micro-batch, 769.2 MiB of a rank", kept on the host.
std::string host_text(const Plan& plan, int stage, const StagePlan& rows) {
  std::vector<int> units = blocks_of(rows.units, plan.model.layers);
  std::erase_if(units, [&](int unit) { return !rows.forms.on_host(unit); });
  if (units.empty()) return "";
  std::int64_t most = 0;
  for (const int unit : units) {
    most = std::max(most, form_bytes(plan, stage, unit, rows.forms.of(unit, false)).on_host);
  }
  return layer_list(units) + ", " + format_bytes(most) + " of a layer and micro-batch, " +
         format_bytes(rows.activation_slots.host_bytes) + " of a rank";
}

/// Weights on the host: "weights of layers 0..2, 48.2 MiB".
std::string host_weights_text(const StagePlan& rows, DType compute) {
  std::vector<int> units;
  std::int64_t bytes = 0;
  for (const GatherBlock& block : rows.gathers) {
    if (!block.from_host) continue;
    units.push_back(block.units.begin);
    for (const int index : block.parameters) {
      bytes += rows.parameters[static_cast<std::size_t>(index)].shape.numel() * size_of(compute);
    }
  }
  return units.empty() ? "" : "weights of " + layer_list(units) + ", " + format_bytes(bytes);
}

}  // namespace

RecomputeTable recompute_table(const PrintInput& input) {
  const Plan& plan = input.plan;
  RecomputeTable table;
  table.stage = shown_stage(input);
  if (input.config == nullptr) return table;
  const StagePlan& rows = plan.stages[static_cast<std::size_t>(table.stage)];
  const std::vector<RecomputeCost> costs =
      compare_forms(plan, table.stage, move_config(*input.config), input.config->cluster);
  if (costs.empty()) return table;
  const bool mixed = costs.front().experts != costs.back().experts;
  const RecomputeCost* most = &costs.front();  // first form of this kind of layers
  for (const RecomputeCost& cost : costs) {
    if (cost.experts != most->experts) most = &cost;
    const std::string kind = !mixed ? "" : cost.experts ? ", experts" : ", dense";
    const auto passes = static_cast<double>(cost.layers * plan.microbatches);
    table.rows.push_back({(cost.in_use ? "* " : "  ") + cost.form + kind, format_bytes(cost.kept),
                          saved_text(cost.kept, most->kept), work_text(cost, 1),
                          format_bytes(cost.rank), saved_text(cost.rank, most->rank),
                          work_text(cost, passes)});
  }
  table.in_use = layers_text(plan, rows, false);
  table.on_host = host_text(plan, table.stage, rows);
  const std::string weights = host_weights_text(rows, plan.compute);
  if (!weights.empty()) table.on_host += (table.on_host.empty() ? "" : "; ") + weights;
  if (!rows.forms.is_partial.empty()) table.in_use_by_more = layers_text(plan, rows, true);
  return table;
}

std::string recompute_section(const PrintInput& input) {
  const RecomputeTable table = recompute_table(input);
  if (table.rows.empty()) return "";
  std::string text = "memory by recompute form  (every layer";
  if (input.plan.map.stages > 1) text += " of stage " + std::to_string(table.stage);
  text += " in the same form; * in use)\n";
  std::size_t width = 30;
  for (const RecomputeTable::Row& row : table.rows) width = std::max(width, row[0].size() + 1);
  const auto line = [&text, width](const RecomputeTable::Row& cells) {
    text += "  " + padded(cells[0], width) + padded_left(cells[1], 12) + padded_left(cells[2], 9) +
            "  " + padded(cells[3], 24) + padded_left(cells[4], 12) + padded_left(cells[5], 9) +
            "  " + cells[6] + "\n";
  };
  line(recompute_columns());
  for (const RecomputeTable::Row& row : table.rows) line(row);
  text += "  in use: " + table.in_use + "\n";
  if (!table.in_use_by_more.empty()) {
    text += "  in use by micro-batches that keep more: " + table.in_use_by_more + "\n";
  }
  if (!table.on_host.empty()) text += "  on the host: " + table.on_host + "\n";
  return text;
}

std::vector<RampRow> ramp_rows(const Plan& plan) {
  std::vector<RampRow> rows;
  for (std::size_t i = 0; i < plan.ramp.size(); ++i) {
    const RampPart& part = plan.ramp[i];
    const bool last = i + 1 == plan.ramp.size();
    if (plan.steps > 0 && part.first_step >= plan.steps) break;  // the run ends earlier
    std::int64_t end = last ? plan.steps : plan.ramp[i + 1].first_step;
    if (plan.steps > 0) end = std::min(end, plan.steps);
    const Plan& with = plan.after(part.first_step);
    RampRow& row = rows.emplace_back();
    row.first_step = part.first_step + 1;
    row.steps = std::max<std::int64_t>(0, end - part.first_step);
    row.batch = part.batch;
    row.microbatches = with.microbatches;
    row.tokens = with.tokens_per_step();
    if (with.time) row.step_seconds = with.time->step();
  }
  return rows;
}

std::string ramp_section(const Plan& plan) {
  if (plan.ramp.size() == 1) return "";
  constexpr std::size_t most = 24;
  const auto line = [](const std::string& steps, const std::string& batch,
                       const std::string& microbatches, const std::string& tokens,
                       const std::string& time) {
    return "  " + padded(steps, 20) + padded_left(batch, 10) + padded_left(microbatches, 16) +
           padded_left(tokens, 16) + (time.empty() ? "" : padded_left(time, 12)) + "\n";
  };
  std::string text = "\nbatch-size ramp\n";
  text += line("steps", "batch", "micro-batches", "tokens a step", plan.time ? "a step" : "");
  const std::vector<RampRow> rows = ramp_rows(plan);
  std::int64_t tokens = 0;
  double seconds = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const RampRow& row = rows[i];
    tokens += row.steps * row.tokens;
    seconds += static_cast<double>(row.steps) * row.step_seconds.value_or(0);
    const bool hidden = rows.size() > most && i >= most / 2 && i + most / 2 < rows.size();
    if (hidden && i == most / 2) text += "  ...\n";
    if (hidden) continue;
    const std::string begin = format_grouped(row.first_step);
    const std::string end = ".." + format_grouped(row.first_step + row.steps - 1);
    text +=
        line(row.steps == 0 ? "from " + begin : begin + (row.steps == 1 ? "" : end),
             format_grouped(row.batch), format_grouped(row.microbatches),
             format_grouped(row.tokens), row.step_seconds ? format_seconds(*row.step_seconds) : "");
  }
  if (plan.steps == 0) return text;
  return text + labelled("in all", grouped_count(plan.steps, "step") + " with " +
                                       grouped_count(tokens, "token") +
                                       (seconds > 0 ? ", " + format_seconds(seconds) : ""));
}

}  // namespace trainctl
