#include <algorithm>
#include <functional>

#include "base/scratch.h"
#include "base/units.h"
#include "formats/print/memory_fit.h"
#include "formats/print/memory_models.h"
#include "formats/print/table_parts.h"
#include "formats/print/text.h"
#include "plan/cost/ledger.h"

namespace trainctl {

namespace {

/// Rows of the parameter table that differ only in their layer.
struct FoldedParameter {
  std::string key;
  const ParamSpec* row = nullptr;
  std::string suffix;  // behind "layers.N."; empty outside of layers
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
  std::string text;
  for (const auto& [name, dim] : splits_of(row)) {
    text += (text.empty() ? "" : " ") + std::string(name) + ":" + std::to_string(dim);
  }
  return text;
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

int shown_stage(const PrintInput& input) {
  const Plan& plan = input.plan;
  if (input.rank >= 0) return static_cast<int>(plan.mesh.coordinate(input.rank, Axis::pp));
  int fullest = 0;
  for (int stage = 1; stage < plan.map.stages; ++stage) {
    const auto total_of = [&plan](int one) {
      return plan.stages[static_cast<std::size_t>(one)].memory.device();
    };
    if (total_of(stage) > total_of(fullest)) fullest = stage;
  }
  return fullest;
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
  int same = 0;  // stages whose lines equal those of the stage before
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

/// Four digits, and more where the whole number has more.
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

/// The kinds of seconds of a rank, on average over the stages, largest first: those of at least a
/// hundredth of the step.
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
              ? labelled("beside products",
                         format_seconds(time.hidden) + " of the collectives in layers")
              : "") +
         labelled("optimizer", format_seconds(time.optimizer)) +
         labelled("total", format_seconds(time.step()) + ", " + format_count(tokens) +
                               " tokens per second") +
         (time.on_device && config != nullptr ? kinds_line(plan, *config) : "") +
         (time.on_device ? run_lines(*time.on_device) : "");
}

}  // namespace trainctl
