#include "formats/web/plan_page.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>

#include "base/json_text.h"
#include "base/text.h"
#include "base/units.h"
#include "config/schema/words.h"
#include "formats/print/rows.h"
#include "formats/print/text.h"
#include "plan/rules/learning_rate.h"
#include "plan/tables/mesh.h"

namespace trainctl {

// Files of this folder, embedded by lib/embed.cmake.
std::string_view embedded_plan_css();
std::string_view embedded_plan_js();
std::string_view embedded_schedule_js();

// The sections of the plan's page.

namespace {

std::string factors_text(const Mesh& mesh) {
  std::string text =
      joined(std::array{Axis::tp, Axis::cp, Axis::dp, Axis::pp}, " × ",
             [&](Axis axis) { return formatted("{} {}", name_of(axis), mesh.size(axis)); });
  if (mesh.ep > 1 || mesh.etp != mesh.tp) {
    text += ", experts: etp " + std::to_string(mesh.etp) + " × ep " + std::to_string(mesh.ep) +
            " × edp " + std::to_string(mesh.edp);
  }
  return text;
}

std::int64_t sequences_of(const Plan& plan) {
  return plan.micro_batch_size * plan.microbatches * plan.mesh.dp;
}

std::string memory_fact(const PrintInput& input) {
  const Plan& plan = input.plan;
  const MemoryFit fit = memory_fit(input);
  const std::string where = plan.map.stages > 1 ? "rank of the fullest stage: " : "rank: ";
  return fact("Memory", format_bytes(plan.max_memory().device()), where + fit_text(fit));
}

class Sizes {
 public:
  void add(const std::string& name, std::int64_t whole, std::int64_t of_rank = -1) {
    rows_ += "<tr>" + cell(name) + cell(format_grouped(whole), "n") +
             cell(of_rank < 0 ? "" : format_grouped(of_rank), "n") + "</tr>\n";
  }
  std::string table(const std::string& title) {
    return "<div><h3>" + title + "</h3>\n<table class=\"wide\">" +
           head_row({"", "#whole", "#one rank"}) + "<tbody>\n" + rows_ + "</tbody></table></div>\n";
  }

 private:
  std::string rows_;
};

/// Sizes of the model; of its first layer if layers have different splits.
std::string model_sizes(const Plan& plan) {
  const ModelShape& model = plan.model;
  const LocalShape local = plan.local_of(1);
  Sizes sizes;
  sizes.add("layers", model.layers);
  sizes.add("hidden size", model.hidden);
  if (const int plain = first_block_with(model, false); plain > 0) {
    sizes.add("MLP width", plan.form_of(plain).ffn, plan.local_of(plain).ffn);
  }
  sizes.add("attention heads", model.heads, local.heads);
  sizes.add("heads of keys and values", model.kind(0).kv_heads, local.kv_heads);
  sizes.add("size of a head", model.head_dim);
  if (const int routed = first_block_with(model, true); routed > 0) {
    sizes.add("experts of a layer", model.experts, plan.local_of(routed).experts);
    sizes.add("experts of a token", model.topk);
  }
  sizes.add("vocabulary", model.vocab);
  if (model.padded_vocab != model.vocab || plan.local.vocabulary != model.vocab) {
    sizes.add("rows of the head", model.padded_vocab, plan.local.vocabulary);
  }
  return sizes.table("Model");
}

std::string batch_sizes(const Plan& plan) {
  Sizes sizes;
  const std::int64_t rows = plan.micro_batch_size * plan.microbatches;
  sizes.add("sequence length", plan.model.seq_length, plan.model.seq_length / plan.mesh.cp);
  sizes.add("sequences of a step", sequences_of(plan), rows);
  if (plan.ramp.size() > 1) sizes.add("sequences of the first step", plan.ramp.front().batch);
  sizes.add("micro-batches of a step", plan.microbatches * plan.mesh.dp, plan.microbatches);
  sizes.add("sequences of a micro-batch", plan.micro_batch_size);
  sizes.add("tokens of a step", plan.tokens_per_step());
  sizes.add("steps", plan.steps);
  return sizes.table("Batch");
}

}  // namespace

std::string fact(const std::string& name, const std::string& value, const std::string& more) {
  return "<div><span>" + escaped(name) + "</span><b>" + escaped(value) + "</b><small>" +
         escaped(more) + "</small></div>\n";
}

namespace {

/// The short facts at the top, outside of sections.
std::string facts_html(const PrintInput& input) {
  const Plan& plan = input.plan;
  return "<div class=\"facts\">\n" +
         fact("World", grouped_count(plan.mesh.world_size(), "rank"),
              factors_text(plan.mesh) + ", " + device_text(plan)) +
         fact("Parameters", format_count(static_cast<double>(plan.parameter_count())),
              std::string(word_of(plan.model.family)) + ", " +
                  grouped_count(plan.model.layers, "layer") + ", " +
                  std::string(name_of(plan.compute))) +
         fact("Step", grouped_count(sequences_of(plan), "sequence"),
              grouped_count(plan.microbatches, "micro-batch") + " of " +
                  std::to_string(plan.micro_batch_size) + " per rank, " +
                  format_count(static_cast<double>(plan.tokens_per_step())) + " tokens") +
         memory_fact(input) +
         fact("Schedule", plan.schedule, "bubble " + percent(plan.bubble_fraction)) +
         fact("Work", operations_text(plan.flops.total()), "per step over all ranks") +
         (plan.time ? fact("Time", format_seconds(plan.time->step()),
                           plan.time->on_device ? "per step on " + plan.time->on_device->device
                                                : "per step at the rates of section cluster")
                    : "") +
         "</div>\n";
}

/// A section with the sizes of model, batch and rank.
std::string sizes_html(const Plan& plan) {
  return "<section id=\"sizes\">\n<h2>Sizes</h2>\n<div class=\"columns\">\n" + model_sizes(plan) +
         batch_sizes(plan) + "</div>\n</section>\n";
}

constexpr std::size_t max_blocks = 20000;

/// The end of the drawing: the last block, or an earlier time that limits the number of blocks.
double end_of(const Timeline& timeline) {
  if (timeline.blocks.size() <= max_blocks) return timeline.length;
  std::vector<double> finishes;
  for (const TimeBlock& block : timeline.blocks) finishes.push_back(block.finish);
  const auto cut = finishes.begin() + static_cast<std::ptrdiff_t>(max_blocks);
  std::nth_element(finishes.begin(), cut, finishes.end());
  return *cut;
}

/// A time rounded to the precision that is visible.
double rounded(double time) { return std::round(time * 1000) / 1000; }

/// Writes [start, length, kind as enumerator, micro-batch, chunk] for each block of a stage.
void write_blocks(JsonText& json, const Timeline& timeline, int stage, double end) {
  json.open_array();
  for (const TimeBlock& block : timeline.blocks) {
    if (block.stage != stage || block.start >= end || block.length() <= 0) continue;
    json.open_array(JsonText::Form::one_line);
    json.value(rounded(block.start));
    json.value(rounded(std::min(block.finish, end) - block.start));
    json.value(static_cast<int>(block.kind));
    json.value(block.microbatch);
    json.value(block.chunk);
    json.close();
  }
  json.close();
}

std::string blocks_data(const Plan& plan, const Timeline& timeline, double end) {
  JsonText json;
  json.open_object(JsonText::Form::one_line);
  json.member("end", rounded(end));
  json.member("unit", timeline.in_milliseconds ? " ms" : "");
  json.member("chunks", plan.map.chunks);
  json.key("stages").open_array();
  for (int stage = 0; stage < plan.map.stages; ++stage) write_blocks(json, timeline, stage, end);
  json.close();
  json.close();
  return page_data("schedule-data", json.take());
}

std::string idle_table(const Plan& plan, const Timeline& timeline) {
  std::string text =
      "<table>" +
      head_row({"stage", "#warm-up forwards", "#micro-batches kept", "#idle", "order"}) +
      "<tbody>\n";
  for (int stage = 0; stage < plan.map.stages; ++stage) {
    const StagePlan& held = plan.stages[static_cast<std::size_t>(stage)];
    const double idle = timeline.idle_fraction[static_cast<std::size_t>(stage)];
    text += "<tr>" + cell(std::to_string(stage)) + cell(std::to_string(held.warmup), "n") +
            cell(std::to_string(held.slots), "n") + cell(percent(idle), "n") +
            cell(folded_order(held), "mono") + "</tr>\n";
  }
  return scroll_region("Order of work by stage", text + "</tbody></table>\n");
}

std::string stage_row(const Plan& plan, int stage) {
  std::string bars;
  std::string words;
  for (int chunk = 0; chunk < plan.map.chunks; ++chunk) {
    const UnitRange& held = plan.map.at(stage, chunk);
    const double width = static_cast<double>(held.end - held.begin) / plan.units();
    if (width <= 0) continue;
    bars += "<i class=\"c" + std::to_string(stage % 2 == 0 ? 0 : 2) +
            "\" style=\"left:" + css_percent(static_cast<double>(held.begin) / plan.units()) +
            ";width:" + css_percent(width) + "\"></i>";
    words += (words.empty() ? "" : "; ") + held_text(held, plan.model.layers);
  }
  return "<li><b>stage " + std::to_string(stage) + "</b><span>" + escaped(words) +
         "</span><div class=\"idle\">" + bars + "</div></li>\n";
}

}  // namespace

std::string stages_html(const Plan& plan) {
  const std::string note = grouped_count(plan.map.stages, "stage") + " of " +
                           grouped_count(plan.map.chunks, "chunk") +
                           ". Bars: the model from the embedding (left) to the head (right).";
  std::string text = "<section id=\"stages\">\n<h2>Stages</h2>\n<p>" + escaped(note) +
                     "</p>\n<ul class=\"stages\">\n";
  for (int stage = 0; stage < plan.map.stages; ++stage) text += stage_row(plan, stage);
  return text + "</ul>\n</section>\n";
}

std::string schedule_html(const Plan& plan, const Timeline& timeline) {
  const double end = end_of(timeline);
  std::string note =
      plan.schedule + ", " + grouped_count(plan.microbatches, "micro-batch") + ", bubble " +
      percent(plan.bubble_fraction) +
      (timeline.in_milliseconds
           ? ". Passes take their time at the prices of the device."
           : ". F, B and W of one layer take one unit of time each, all else none.") +
      " Blocks have the number of their micro-batch";
  note += plan.map.chunks > 1 ? " and chunk." : ".";
  if (end < timeline.length) {
    note += " The first " + printed("%.4g", end) + " of " + printed("%.4g", timeline.length) +
            (timeline.in_milliseconds ? " ms are drawn." : " units are drawn.");
  }
  return "<section id=\"schedule\">\n<h2>Schedule</h2>\n<p>" + escaped(note) +
         "</p>\n<div id=\"gantt\"></div>\n" + blocks_data(plan, timeline, end) +
         idle_table(plan, timeline) + "</section>\n";
}

namespace {

/// A short number of bytes for a narrow segment: "2.38G", "512M".
std::string figure(std::int64_t bytes) {
  constexpr const char* letters = "BKMGTP";
  auto value = static_cast<double>(bytes);
  int unit = 0;
  for (; value >= 999.5 && unit < 5; ++unit) value /= 1024;
  const char* format = value >= 99.95 || unit == 0 ? "%.0f" : value >= 9.995 ? "%.1f" : "%.2f";
  return printed(format, value) + letters[unit];
}

std::string segments(const MemoryEstimate& memory) {
  std::string text;
  int category = 0;
  for (const auto& [name, bytes] : memory_rows(memory)) {
    const std::string css = "c" + std::to_string(category++);
    if (bytes <= 0) continue;
    const double share = static_cast<double>(bytes) / static_cast<double>(memory.total());
    text += "<span class=\"" + css + "\" style=\"flex-grow:" + printed("%.4f", 100 * share) +
            "\" title=\"" + std::string(name) + ": " + format_bytes(bytes) + "\">" + figure(bytes) +
            "</span>";
  }
  return text;
}

/// The bytes of a full bar: the limit, or more if a rank needs more.
double axis_of(const Plan& plan, const MemoryFit& fit) {
  const auto most = static_cast<double>(plan.max_memory().device());
  return std::max(std::min(fit.gibibytes * gibibyte, most * 50), most) * 1.02;
}

std::string stage_memory(const Plan& plan, int first, int last, const MemoryFit& fit) {
  const std::int64_t total = plan.stages[static_cast<std::size_t>(first)].memory.device();
  const double axis = axis_of(plan, fit);
  const double limit = std::min(1.0, fit.gibibytes * gibibyte / axis);
  const std::string name = (first == last ? "stage " : "stages ") + span_text(first, last);
  const bool over = static_cast<double>(total) > fit.gibibytes * gibibyte;
  return "<div class=\"held\"><div class=\"of\"><b>" + name + "</b><span>" + format_bytes(total) +
         (over ? ", over the limit" : "") + "</span></div>\n<div class=\"segments\">" +
         segments(plan.stages[static_cast<std::size_t>(first)].memory) +
         "</div>\n<div class=\"scale\" role=\"img\" aria-label=\"" + name + ": " +
         format_bytes(total) + " of " + printed("%.4g", fit.gibibytes) + " GiB\"><i class=\"part" +
         (over ? " over" : "") +
         "\" style=\"width:" + css_percent(static_cast<double>(total) / axis) +
         "\"></i><i class=\"limit\" style=\"left:" + css_percent(limit) + "\"></i></div></div>\n";
}

std::string bars(const Plan& plan, const MemoryFit& fit) {
  const auto figures = [&plan](int stage) {
    std::vector<std::int64_t> values;
    for (const auto& row : memory_rows(plan.stages[static_cast<std::size_t>(stage)].memory)) {
      values.push_back(row.second);
    }
    return values;
  };
  std::string text;
  for (int first = 0; first < plan.map.stages;) {
    int last = first;
    while (last + 1 < plan.map.stages && figures(last + 1) == figures(first)) ++last;
    text += stage_memory(plan, first, last, fit);
    first = last + 1;
  }
  return text;
}

std::string legend_of(const Plan& plan) {
  std::string text = "<ul class=\"legend\">";
  int category = 0;
  for (const auto& [name, bytes] : memory_rows(plan.stages.front().memory)) {
    text +=
        "<li><i class=\"c" + std::to_string(category++) + "\"></i>" + std::string(name) + "</li>";
  }
  return text + "</ul>\n";
}

std::string models_table(const PrintInput& input) {
  const std::vector<MemoryModelRows> models = memory_models(input);
  if (models.empty()) return "";
  std::string text = "<table>" + head_row({"published model", "of", "numbers"}) + "<tbody>\n";
  for (const MemoryModelRows& model : models) {
    text += "<tr>" + cell(model.name) + cell(model.about) + cell(numbers_text(model)) + "</tr>\n";
  }
  return "<details><summary>Published memory models</summary>\n" +
         scroll_region("Published memory models", text + "</tbody></table>\n") + "</details>\n";
}

}  // namespace

std::string memory_html(const PrintInput& input) {
  const MemoryFit fit = memory_fit(input);
  return "<section id=\"memory\">\n<h2>Memory</h2>\n<p>Of one rank of each stage: <b class=\"" +
         std::string(fit.fits() ? "fits" : "over") + "\">" + escaped(fit_text(fit)) +
         "</b>. The wide bars are shares of the rank's memory, with segments no narrower than "
         "their figures (B, K, M, G are bytes, KiB, MiB, GiB); the thin bars below them are to "
         "scale, with a line at " +
         printed("%.4g", fit.gibibytes) + " GiB.</p>\n" + legend_of(input.plan) +
         bars(input.plan, fit) + models_table(input) + "</section>\n";
}

namespace {

/// The forms of recomputation; empty if no part of a layer could be recomputed.
std::string recompute_html(const PrintInput& input) {
  const RecomputeTable table = recompute_table(input);
  if (table.rows.empty()) return "";
  std::string text = "<table>" +
                     head_row({"form", "#a layer", "#saves", "to make it again", "#a rank",
                               "#saves", "in a step"}) +
                     "<tbody>\n";
  for (const RecomputeTable::Row& row : table.rows) {
    const bool used = row[0].starts_with('*');
    text += "<tr>" + cell(row[0].substr(2) + (used ? " (in use)" : "")) + cell(row[1], "n") +
            cell(row[2], "n") + cell(row[3]) + cell(row[4], "n") + cell(row[5], "n") +
            cell(row[6]) + "</tr>\n";
  }
  std::string note = "Memory of activations if every layer";
  if (input.plan.map.stages > 1) note += " of stage " + std::to_string(table.stage);
  note += " had the same form. In use: " + table.in_use;
  if (!table.in_use_by_more.empty()) {
    note += "; by micro-batches that keep more: " + table.in_use_by_more;
  }
  if (!table.on_host.empty()) note += ". On the host: " + table.on_host;
  return "<section id=\"recompute\">\n<h2>Recomputation</h2>\n<p>" + escaped(note) + ".</p>\n" +
         scroll_region("Recomputation", text + "</tbody></table>\n") + "</section>\n";
}

struct Sum {
  std::int64_t count = 0;
  std::int64_t bytes = 0;
};

using Uses = std::vector<CollectiveUse>;

/// The calls and bytes of one purpose, or of all purposes.
Sum sum_of(const Uses& uses, std::optional<TrafficPurpose> purpose) {
  Sum sum;
  for (const CollectiveUse& use : uses) {
    if (purpose && use.purpose != *purpose) continue;
    sum.count += use.count;
    sum.bytes += use.bytes;
  }
  return sum;
}

std::string sum_cell(const Sum& sum) {
  if (sum.count == 0) return cell("-", "n");
  return "<td class=\"n\">" + format_bytes(sum.bytes) + "<small>" +
         grouped_count(sum.count, "call") + "</small></td>";
}

bool same_uses(const Uses& left, const Uses& right) {
  return std::equal(left.begin(), left.end(), right.begin(), right.end(),
                    [](const CollectiveUse& a, const CollectiveUse& b) {
                      return a.operation == b.operation && a.cargo == b.cargo &&
                             a.purpose == b.purpose && a.group == b.group && a.count == b.count &&
                             a.bytes == b.bytes;
                    });
}

/// Successive stages with the same calls.
struct CallSpan {
  int first = 0;
  int last = 0;
  const Uses* uses = nullptr;
  std::string name() const {
    return (first == last ? "stage " : "stages ") + span_text(first, last);
  }
};

std::vector<CallSpan> spans_of(const Plan& plan) {
  std::vector<CallSpan> spans;
  for (int stage = 0; stage < plan.map.stages; ++stage) {
    const Uses& uses = plan.stages[static_cast<std::size_t>(stage)].communication;
    if (!spans.empty() && same_uses(*spans.back().uses, uses)) {
      spans.back().last = stage;
    } else {
      spans.push_back({stage, stage, &uses});
    }
  }
  return spans;
}

std::string totals_table(const std::vector<CallSpan>& spans,
                         const std::vector<TrafficPurpose>& used) {
  std::vector<std::string> columns{"kind"};
  for (const CallSpan& span : spans) columns.push_back("#" + span.name());
  std::string text = "<table>" + head_row(columns) + "<tbody>\n";
  for (const TrafficPurpose purpose : used) {
    text += "<tr>" + cell(std::string(purpose_text(purpose)));
    for (const CallSpan& span : spans) text += sum_cell(sum_of(*span.uses, purpose));
    text += "</tr>\n";
  }
  text += "<tr class=\"sum\">" + cell("all");
  for (const CallSpan& span : spans) text += sum_cell(sum_of(*span.uses, std::nullopt));
  return scroll_region("Totals of communication", text + "</tr>\n</tbody></table>\n");
}

std::string rows_of(const CallSpan& span) {
  std::string text = "<table>" +
                     head_row({"operation", "kind", "group", "#ranks", "#calls", "#payload"}) +
                     "<tbody>\n";
  for (const CollectiveUse& use : *span.uses) {
    text += "<tr>" + cell(use.name()) + cell(std::string(purpose_text(use.purpose))) +
            cell(name_of(use.group)) + cell(format_grouped(use.ranks), "n") +
            cell(format_grouped(use.count), "n") + cell(format_bytes(use.bytes), "n") + "</tr>\n";
  }
  const auto count = static_cast<std::int64_t>(span.uses->size());
  return "<details><summary>" + span.name() + ": " + grouped_count(count, "row") + "</summary>\n" +
         scroll_region("Communication of " + span.name(), text + "</tbody></table>\n") +
         "</details>\n";
}

}  // namespace

std::string communication_html(const Plan& plan) {
  const std::vector<CallSpan> spans = spans_of(plan);
  std::vector<TrafficPurpose> used;
  for (const TrafficPurpose purpose : all_purposes) {
    const bool any = std::any_of(spans.begin(), spans.end(), [purpose](const CallSpan& span) {
      return sum_of(*span.uses, purpose).count > 0;
    });
    if (any) used.push_back(purpose);
  }
  std::string text =
      "<section id=\"communication\">\n<h2>Communication</h2>\n<p>Of one rank in one step. ";
  if (used.empty()) return text + "None: this plan has one rank.</p>\n</section>\n";
  text +=
      "The payload is that of whole tensors: the result of an all-gather, the input of a "
      "reduce-scatter.</p>\n" +
      totals_table(spans, used);
  for (const CallSpan& span : spans) {
    if (!span.uses->empty()) text += rows_of(span);
  }
  return text + "</section>\n";
}

namespace {

constexpr std::int64_t max_cells = 512;

/// The ranks to draw, by stage: all, or the first ones of each stage.
std::vector<std::vector<int>> shown_ranks(const Mesh& mesh) {
  std::vector<std::vector<int>> stages;
  const std::int64_t each = std::max<std::int64_t>(1, max_cells / mesh.pp);
  for (int stage = 0; stage < static_cast<int>(std::min(mesh.pp, max_cells)); ++stage) {
    std::vector<int> ranks = ranks_of_stage(mesh, stage);
    if (static_cast<std::int64_t>(ranks.size()) > each) {
      ranks.resize(static_cast<std::size_t>(each));
    }
    stages.push_back(std::move(ranks));
  }
  return stages;
}

std::string place_of(const Mesh& mesh, int rank) {
  std::string text;
  for (const auto& [name, axis] : public_axes()) {
    if (mesh.size(axis) == 1) continue;
    text += (text.empty() ? "" : ", ") + std::string(name) + " " +
            std::to_string(mesh.coordinate(rank, axis));
  }
  return text.empty() ? "the only one" : text;
}

/// One kind of groups: their number and sizes, and the group of each drawn rank (-1: none).
void write_kind(JsonText& json, const std::string& name, const RankLists& lists,
                const std::vector<int>& shown, std::int64_t world) {
  std::vector<int> group_of(static_cast<std::size_t>(world), -1);
  std::size_t least = lists.front().size();
  std::size_t most = least;
  for (std::size_t i = 0; i < lists.size(); ++i) {
    least = std::min(least, lists[i].size());
    most = std::max(most, lists[i].size());
    for (const int rank : lists[i]) group_of[static_cast<std::size_t>(rank)] = static_cast<int>(i);
  }
  std::vector<int> of;
  for (const int rank : shown) of.push_back(group_of[static_cast<std::size_t>(rank)]);
  json.open_object(JsonText::Form::one_line);
  json.member("name", name);
  json.member("count", static_cast<std::int64_t>(lists.size()));
  json.member("least", static_cast<std::int64_t>(least));
  json.member("most", static_cast<std::int64_t>(most));
  json.member("first", fold_ranks(lists.front()));
  json.member("of", of);
  json.close();
}

std::string groups_data(const PrintInput& input, const std::vector<std::vector<int>>& stages,
                        const std::vector<int>& shown) {
  const Mesh& mesh = input.plan.mesh;
  JsonText json;
  json.open_object();
  json.member("world", mesh.world_size());
  json.member("ranks", shown);
  std::vector<int> lengths;
  for (const std::vector<int>& ranks : stages) lengths.push_back(static_cast<int>(ranks.size()));
  json.member("lengths", lengths);
  std::vector<std::string> places;
  for (const int rank : shown) places.push_back(place_of(mesh, rank));
  json.member("places", places);
  json.key("kinds").open_array();
  for (const std::string& kind : printable_kinds(input)) {
    if (kind == "hierarchical_cp") continue;
    write_kind(json, kind, list_groups(mesh, kind), shown, mesh.world_size());
  }
  const auto* config = input.config;
  if (config != nullptr && config->parallel.hierarchical_context_parallel_sizes) {
    int level = 0;
    for (const RankLists& lists :
         hierarchical_groups(mesh, *config->parallel.hierarchical_context_parallel_sizes)) {
      write_kind(json, "cp level " + std::to_string(level++), lists, shown, mesh.world_size());
    }
  }
  json.close();
  json.close();
  return page_data("groups", json.take());
}

/// A map of the ranks, coloured by group, and the groups as data for the script.
std::string mesh_html(const PrintInput& input) {
  const Mesh& mesh = input.plan.mesh;
  const std::vector<std::vector<int>> stages = shown_ranks(mesh);
  std::vector<int> shown;
  for (const std::vector<int>& ranks : stages)
    shown.insert(shown.end(), ranks.begin(), ranks.end());
  std::string note =
      "Ranks of one group share a colour (there are eight). Choose a rank to see its group. "
      "Order " +
      order_text(mesh.order) + ".";
  if (static_cast<std::int64_t>(shown.size()) < mesh.world_size()) {
    note += " The first " + format_grouped(static_cast<std::int64_t>(stages.front().size())) +
            " ranks of each stage are drawn, " +
            format_grouped(static_cast<std::int64_t>(shown.size())) + " of " +
            format_grouped(mesh.world_size()) + ".";
  }
  return "<section id=\"mesh\">\n<h2>Mesh</h2>\n<p>" + escaped(note) +
         "</p>\n<div id=\"kinds\" class=\"tools\" role=\"group\" aria-label=\"kind of "
         "group\"></div>\n<div class=\"tools\"><label for=\"rank\">rank</label>"
         "<input id=\"rank\" type=\"number\" min=\"0\" max=\"" +
         std::to_string(mesh.world_size() - 1) +
         "\"></div>\n<div id=\"cells\"></div>\n"
         "<div id=\"about-group\" class=\"value\" aria-live=\"polite\"></div>\n" +
         groups_data(input, stages, shown) + "</section>\n";
}

/// The split of a parameter in words: "tp cuts dim 0".
std::string cuts_text(const ParamSpec& row) {
  const std::string text = joined(splits_of(row), ", ", [](const auto& split) {
    return formatted("{} cuts dim {}", split.first, split.second);
  });
  return text.empty() ? "whole" : text;
}

std::string parameter_rows(const Plan& plan, int stage) {
  const StagePlan& held = plan.stages[static_cast<std::size_t>(stage)];
  const std::vector<int> buckets = bucket_of_each(held);
  std::string text;
  for (std::size_t i = 0; i < held.parameters.size(); ++i) {
    const ParamSpec& row = held.parameters[i];
    text += "<tr>" + cell(std::to_string(stage), "n") + cell(row.name, "mono") +
            cell(row.global_shape.to_string()) + cell(row.shape.to_string()) +
            cell(cuts_text(row)) + cell(joined(owner_groups(plan, stage, row), ", ")) +
            cell(std::to_string(buckets[i]), "n") + cell(init_text(row)) +
            cell(row.decay ? "yes" : "no") + "</tr>\n";
  }
  return text;
}

/// The learning rates over the whole run if there is a config, else the points in the plan.
std::vector<RatePoint> rates_over_run(const PrintInput& input) {
  constexpr std::int64_t most = 240;
  const bool known = input.plan.steps > 0 && !input.plan.rates.empty();
  if (input.config == nullptr || !known) return input.plan.rates;
  std::vector<std::int64_t> steps;
  const std::int64_t count = std::min(input.plan.steps, most);
  for (std::int64_t i = 0; i < count; ++i) {
    steps.push_back(count == 1 ? 0
                               : (input.plan.steps - 1) / (count - 1) * i +
                                     (input.plan.steps - 1) % (count - 1) * i / (count - 1));
  }
  for (const RatePoint& point : input.plan.rates) steps.push_back(point.step);
  std::sort(steps.begin(), steps.end());
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  PrintInput asked = input;
  asked.lr_at = std::move(steps);
  return rates_asked(asked);
}

/// The chart of learning rates; empty if the plan has none.
std::string rates_html(const PrintInput& input) {
  const std::vector<RatePoint> points = rates_over_run(input);
  if (points.empty()) return "";
  JsonText json;
  json.open_array(JsonText::Form::one_line);
  for (const RatePoint& point : points) {
    json.open_array(JsonText::Form::one_line);
    json.value(point.step);
    json.value(point.learning_rate);
    json.close();
  }
  json.close();
  const std::string decay = printed("%.4g", points.front().weight_decay);
  const std::string last = printed("%.4g", points.back().weight_decay);
  return "<section id=\"rates\">\n<h2>Learning rate</h2>\n<p>" +
         escaped("Over " + grouped_count(input.plan.steps, "step") + "; weight decay " + decay +
                 (decay == last ? "" : " to " + last) + ".") +
         "</p>\n" + page_data("rates-data", json.take()) + "</section>\n";
}

std::string parameters_html(const PrintInput& input) {
  const Plan& plan = input.plan;
  std::size_t count = 0;
  std::string rows;
  for (int stage = 0; stage < plan.map.stages; ++stage) {
    count += plan.stages[static_cast<std::size_t>(stage)].parameters.size();
    rows += parameter_rows(plan, stage);
  }
  const std::string table = "<table>" +
                            head_row({"#stage", "name", "whole", "of a rank", "layout",
                                      "gradient summed over", "#bucket", "starts as", "decays"}) +
                            "<tbody>\n" + rows + "</tbody></table>\n";
  return "<section id=\"parameters\">\n<h2>Parameters</h2>\n<details><summary>" +
         grouped_count(static_cast<std::int64_t>(count), "row") + "</summary>\n" +
         scroll_region("Parameters", table) + "</details>\n</section>\n";
}

std::string header_html(const PrintInput& input, const PageHead& head) {
  return "<p>Plan of <b>" + escaped(head.file) + "</b> for <b>" +
         grouped_count(input.plan.mesh.world_size(), "rank") + "</b>, hash <code>" +
         hex_text(input.plan.hash) + "</code></p>\n" + command_html(head);
}

}  // namespace

std::string plan_style() { return below_each_other({embedded_plan_css()}); }

std::string schedule_script() { return below_each_other({embedded_schedule_js()}); }

std::string command_html(const PageHead& head) {
  std::string text;
  if (!head.command.empty()) text += "<pre>" + escaped(head.command) + "</pre>\n";
  if (head.sets.empty()) return text;
  text += "<ul class=\"sets\" aria-label=\"values set on the command line\">";
  for (const std::string& set : head.sets) text += "<li><code>" + escaped(set) + "</code></li>";
  return text + "</ul>\n";
}

std::string cell(const std::string& text, std::string_view css) {
  const std::string of_class = css.empty() ? "" : " class=\"" + std::string(css) + "\"";
  return "<td" + of_class + ">" + escaped(text) + "</td>";
}

std::string head_row(const std::vector<std::string>& columns) {
  std::string text = "<thead><tr>";
  for (const std::string& column : columns) {
    const bool number = column.starts_with('#');
    text += std::string("<th scope=\"col\"") + (number ? " class=\"n\">" : ">") +
            escaped(std::string_view(column).substr(number ? 1 : 0)) + "</th>";
  }
  return text + "</tr></thead>\n";
}

std::string css_percent(double share) {
  std::string text = printed("%.3f", 100 * share);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text + "%";
}

std::string print_html(const PrintInput& input, const PageHead& head) {
  check_rank(input);
  const Plan& plan = input.plan;
  const Timeline timeline = make_timeline(plan);
  PageContent page;
  page.title = head.title;
  page.kind = "plan";
  page.header = header_html(input, head);
  page.body = facts_html(input) + sizes_html(plan) + stages_html(plan) +
              schedule_html(plan, timeline) + memory_html(input) + recompute_html(input) +
              communication_html(plan) + mesh_html(input) + rates_html(input) +
              parameters_html(input);
  page.style = plan_style();
  page.script = below_each_other({embedded_schedule_js(), embedded_plan_js()});
  return html_page(page);
}

}  // namespace trainctl
