#include <algorithm>

#include "base/units.h"
#include "formats/print/recompute_table.h"
#include "formats/print/table_parts.h"
#include "formats/print/text.h"
#include "plan/cost/forms.h"

namespace trainctl {

namespace {

/// "2.1 GFLOP, 12 ms"; times where rates are given.
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

/// The last of the units that follow units[first] without a gap and are `alike`.
template <class Alike>
std::size_t end_of_run(const std::vector<int>& units, std::size_t first, const Alike& alike) {
  std::size_t last = first;
  while (last + 1 < units.size() && units[last + 1] == units[last] + 1 && alike(units[last + 1])) {
    ++last;
  }
  return last;
}

/// "layers 0-3 full, layer 4 norms": of the micro-batches that keep more, or of the others.
std::string layers_text(const Plan& plan, const StagePlan& rows, bool partial) {
  std::string text;
  const std::vector<int> blocks = first_blocks(rows.units, plan.model.layers, plan.model.layers);
  for (std::size_t first = 0; first < blocks.size();) {
    const BlockForm form = rows.forms.of(blocks[first], partial);
    const std::size_t last = end_of_run(
        blocks, first, [&](int unit) { return rows.forms.of(unit, partial).again == form.again; });
    text += std::string(text.empty() ? "" : ", ") + (first == last ? "layer " : "layers ") +
            span_text(blocks[first] - 1, blocks[last] - 1) + " " + form_text(form.again);
    first = last + 1;
  }
  return text;
}

/// "layers 0..3, 6": of their units, ascending.
std::string layer_list(const std::vector<int>& units) {
  std::string layers;
  for (std::size_t first = 0; first < units.size();) {
    const std::size_t last = end_of_run(units, first, [](int) { return true; });
    layers += (layers.empty() ? "" : ", ") + span_text(units[first] - 1, units[last] - 1);
    first = last + 1;
  }
  return (units.size() == 1 ? "layer " : "layers ") + layers;
}

/// "layers 0..3, 64.1 MiB of a layer and micro-batch, 769.2 MiB of a rank".
std::string host_text(const Plan& plan, int stage, const StagePlan& rows) {
  std::vector<int> units = first_blocks(rows.units, plan.model.layers, plan.model.layers);
  std::erase_if(units, [&](int unit) { return !rows.forms.on_host(unit); });
  if (units.empty()) return "";
  std::int64_t most = 0;
  for (const int unit : units) {
    most = std::max(most, form_bytes(plan, stage, unit, rows.forms.of(unit, false)).on_host);
  }
  return layer_list(units) + ", " + format_bytes(most) + " of a layer and micro-batch, " +
         format_bytes(rows.activation_slots.host_bytes) + " of a rank";
}

/// The same of weights: "weights of layers 0..2, 48.2 MiB".
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
  const RecomputeCost* most = &costs.front();  // of its kind
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

}  // namespace trainctl
