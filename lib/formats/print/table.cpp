// The table of a plan: mesh, groups, stages, schedule, search. table_costs.cpp has the rest.

#include <algorithm>
#include <cmath>

#include "base/at.h"
#include "base/text.h"
#include "base/units.h"
#include "config/schema/words.h"
#include "formats/print/table_parts.h"
#include "formats/print/text.h"
#include "plan/cost/estimate.h"
#include "plan/search/words.h"
#include "plan/tables/mesh.h"

namespace trainctl {

namespace {

std::string product(const Mesh& mesh, const std::vector<Axis>& axes) {
  return joined(axes, " x ",
                [&](Axis axis) { return formatted("{} {}", name_of(axis), mesh.size(axis)); });
}

std::string place_of(const Mesh& mesh, std::int64_t rank) {
  std::string text;
  for (const auto& [name, axis] : public_axes()) {
    const bool experts = axis == Axis::etp || axis == Axis::ep || axis == Axis::edp;
    if (experts && mesh.ep == 1 && mesh.etp == mesh.tp) continue;
    text += (text.empty() ? "" : ", ") + std::string(name) + " " +
            std::to_string(mesh.coordinate(rank, axis));
  }
  return text;
}

/// Text such as "2 groups of 4 ranks, the first 0-3".
std::string summary_of(const RankLists& lists) {
  std::size_t least = lists.front().size();
  std::size_t most = least;
  for (const std::vector<int>& ranks : lists) {
    least = std::min(least, ranks.size());
    most = std::max(most, ranks.size());
  }
  const auto count = static_cast<std::int64_t>(lists.size());
  const std::string size = least == most
                               ? grouped_count(static_cast<std::int64_t>(most), "rank")
                               : std::to_string(least) + " to " + std::to_string(most) + " ranks";
  return grouped_count(count, "group") + " of " + size + (count == 1 ? ": " : ", the first ") +
         fold_ranks(lists.front());
}

std::string kind_lines(const PrintInput& input, const std::string& kind, std::string& single) {
  const Mesh& mesh = input.plan.mesh;
  if (kind == "hierarchical_cp") {
    std::string text;
    int level = 0;
    for (const RankLists& lists : hierarchical_lists(input)) {
      const std::string name = "cp level " + std::to_string(level++);
      if (!lists.empty()) text += "  " + padded(name, 20) + summary_of(lists) + "\n";
    }
    return text;
  }
  const RankLists lists =
      input.rank >= 0 ? groups_with(mesh, kind, input.rank) : list_groups(mesh, kind);
  const bool alone = std::all_of(lists.begin(), lists.end(),
                                 [](const std::vector<int>& ranks) { return ranks.size() == 1; });
  if (lists.empty() || alone) {
    single += (single.empty() ? "" : ", ") + kind;
    return "";
  }
  return "  " + padded(kind, 20) +
         (input.rank >= 0 ? "ranks " + fold_ranks(lists.front()) : summary_of(lists)) + "\n";
}

/// A label and words after it, wrapped at 100 columns.
std::string wrapped(const std::string& label, const std::string& words) {
  std::string text;
  std::string line = "  " + padded(label, 20);
  for (std::size_t begin = 0; begin < words.size();) {
    std::size_t end = words.find(' ', begin);
    if (end == std::string::npos) end = words.size() - 1;
    const std::string word = words.substr(begin, end - begin + 1);
    if (line.size() + word.size() > 100) {
      line.erase(line.find_last_not_of(' ') + 1);
      text += line + "\n";
      line = std::string(22, ' ');
    }
    line += word;
    begin = end + 1;
  }
  return text + line + "\n";
}

std::string chunks_text(const Plan& plan, int stage) {
  std::string text;
  for (int chunk = 0; chunk < plan.map.chunks; ++chunk) {
    text += (chunk == 0 ? "" : " | ") + held_text(plan.map.at(stage, chunk), plan.model.layers);
  }
  return text;
}

/// How rows of tokens reach their experts and return; "" if by one exchange of all rows.
std::string exchange_text(const ExchangeRule& rule, const Mesh& mesh) {
  std::string text;
  const auto add = [&text](const std::string& more) { text += (text.empty() ? "" : ", ") + more; };
  if (rule.takes_share()) {
    add("1/" + std::to_string(mesh.tp) + " of the tokens from each tensor-parallel rank");
  }
  if (rule.parts > 1) {
    add("gathered by the " + std::to_string(rule.parts) + " ranks with parts of the same experts");
  }
  if (rule.chunks > 1) {
    add("in " + std::to_string(rule.chunks) + " chunks, each overlapping the products of another");
  }
  if (rule.beside_passes) add("on their way during passes of other micro-batches");
  return text;
}

}  // namespace

std::string mesh_section(const Plan& plan) {
  const Mesh& mesh = plan.mesh;
  const std::int64_t sequences = plan.micro_batch_size * plan.microbatches * mesh.dp;
  std::string text = device_text(plan) + "\n\nmesh\n" +
                     labelled("world", grouped_count(mesh.world_size(), "rank") + " = " +
                                           product(mesh, {Axis::tp, Axis::cp, Axis::dp, Axis::pp}));
  if (mesh.ep > 1 || mesh.etp != mesh.tp) {
    text += labelled("experts", product(mesh, {Axis::etp, Axis::ep, Axis::edp}) + " in each stage");
  }
  if (const int unit = first_block_with(plan.model, true); unit > 0) {
    const LocalShape local = plan.local_of(unit);
    text += labelled("routing", "at most " + format_grouped(local.routed_rows) +
                                    " rows of a rank's micro-batch go to experts, at most " +
                                    format_grouped(local.expert_rows) + " come to its own");
  }
  if (mesh.tp > 1 && plan.mode == ParallelMode::semi_auto_parallel) {
    const OperatorSplits& splits = plan.splits;
    text += labelled("splits", "embedding " + std::string(word_of(splits.embedding)) +
                                   "; attention " + splits.attention_text() + "; feed-forward " +
                                   splits.feed_forward_text() + "; head " +
                                   std::string(word_of(splits.head)));
  }
  const std::string exchange = exchange_text(plan.exchange, mesh);
  if (!exchange.empty()) text += labelled("exchange", exchange);
  text += labelled(
      "mode", std::string(word_of(plan.mode)) + ", ranks in the order " + order_text(mesh.order));
  text += labelled("batch", grouped_count(sequences, "sequence") + " = micro " +
                                std::to_string(plan.micro_batch_size) + " x " +
                                grouped_count(plan.microbatches, "micro-batch") + " x dp " +
                                std::to_string(mesh.dp) + ", " +
                                grouped_count(plan.tokens_per_step(), "token") + " per step");
  if (plan.length_step > 0) {
    text += labelled("lengths", "a micro-batch is as long as its longest document, in steps of " +
                                    std::to_string(plan.length_step) + " up to " +
                                    grouped_count(plan.model.seq_length, "token") +
                                    ", of which all below is");
  }
  return text + labelled("compute", std::string(name_of(plan.compute)) +
                                        (plan.sequence_parallel ? ", sequence parallel" : ""));
}

std::string kinds_section(const Plan& plan) {
  if (!plan.model.names_kinds()) return "";
  std::string text =
      "kinds of layers  (of one layer: parameters; work of a step over all ranks; "
      "what a rank keeps of a micro-batch)\n";
  for (const KindCost& cost : kind_costs(plan)) {
    const LayerKind& kind = cost.kind;
    const std::vector<int> layers(cost.layers.begin(), cost.layers.end());
    std::string form = kind.experts ? "experts" : "MLP " + format_grouped(kind.ffn);
    form += ", " + grouped_count(kind.kv_heads, "key head");
    if (kind.qk_norm) form += ", q/k norms";
    if (kind.rope < 0 && !plan.model.learned_positions) form += ", no RoPE";
    if (kind.rope >= 0) form += ", RoPE " + printed("%.9g", at(plan.model.ropes, kind.rope).base);
    if (kind.temperature >= 0) {
      form +=
          ", temperature " + printed("%.9g", at(plan.model.temperatures, kind.temperature).beta);
    }
    if (kind.sinks) form += ", sinks";
    text += labelled(kind.name, grouped_count(std::ssize(layers), "layer") + " (" +
                                    fold_ranks(layers) + "): " + form + "; " +
                                    format_count(static_cast<double>(cost.parameters)) + ", " +
                                    operations_text(cost.flops) + ", " + format_bytes(cost.kept));
  }
  return text + "\n";
}

std::string groups_section(const PrintInput& input) {
  std::string text = "groups\n";
  if (input.rank >= 0) {
    text += "  " + padded("rank " + std::to_string(input.rank), 20) +
            place_of(input.plan.mesh, input.rank) + "\n";
  }
  std::string single;
  for (const std::string& kind : printable_kinds(input)) text += kind_lines(input, kind, single);
  return single.empty() ? text : text + wrapped("of one rank", single);
}

std::string stages_section(const Plan& plan, const Timeline& timeline) {
  std::size_t ranks_width = 5;
  std::size_t held_width = 5;
  for (int stage = 0; stage < plan.map.stages; ++stage) {
    ranks_width = std::max(ranks_width, fold_ranks(ranks_of_stage(plan.mesh, stage)).size());
    held_width = std::max(held_width, chunks_text(plan, stage).size());
  }
  std::string text = "stages  (" + grouped_count(plan.map.chunks, "chunk") + " each)\n" + "  " +
                     padded("stage", 7) + padded("ranks", ranks_width + 2) +
                     padded("holds", held_width + 2) + "warm-up  slots  bubble      memory\n";
  for (int stage = 0; stage < plan.map.stages; ++stage) {
    const StagePlan& held = plan.stages[static_cast<std::size_t>(stage)];
    const double idle = timeline.idle_fraction[static_cast<std::size_t>(stage)];
    text += "  " + padded(std::to_string(stage), 7) +
            padded(fold_ranks(ranks_of_stage(plan.mesh, stage)), ranks_width + 2) +
            padded(chunks_text(plan, stage), held_width + 2) +
            padded_left(std::to_string(held.warmup), 7) +
            padded_left(std::to_string(held.slots), 7) + padded_left(percent(idle), 8) +
            padded_left(format_bytes(held.memory.total()), 12) + "\n";
  }
  return text;
}

std::string print_groups_table(const PrintInput& input, const std::string& kind) {
  check_rank(input);
  check_kind(input, kind);
  if (kind == "hierarchical_cp") {
    std::string text;
    int level = 0;
    for (const RankLists& lists : hierarchical_lists(input)) {
      text += "level " + std::to_string(level++) + "\n";
      for (const std::vector<int>& ranks : lists) text += "  " + fold_ranks(ranks) + "\n";
    }
    return text;
  }
  const Mesh& mesh = input.plan.mesh;
  std::string text;
  for (const std::vector<int>& ranks :
       input.rank >= 0 ? groups_with(mesh, kind, input.rank) : list_groups(mesh, kind)) {
    text += fold_ranks(ranks) + "\n";
  }
  return text;
}

namespace {

constexpr int max_stages_drawn = 8;
constexpr double max_columns = 108;  // columns of the drawing without labels

char letter_of(BlockKind kind) {
  switch (kind) {
    case BlockKind::forward: return 'F';
    case BlockKind::weight_gradient: return 'W';
    default: return 'B';
  }
}

/// The label of a block: "F0", or "F0.1" if stages have several chunks.
std::string label_of(const TimeBlock& block, int chunks) {
  std::string text = letter_of(block.kind) + std::to_string(block.microbatch);
  if (chunks > 1) text += "." + std::to_string(block.chunk);
  return text;
}

/// Columns per unit of time at which the label of every block fits, or 0 if that is too wide.
double scale_of(const Timeline& timeline, int chunks) {
  double scale = 0;
  for (const TimeBlock& block : timeline.blocks) {
    const double room = static_cast<double>(label_of(block, chunks).size()) + 1;
    if (block.length() > 0) scale = std::max(scale, room / block.length());
  }
  return timeline.length * scale <= max_columns ? scale : 0;
}

/// A block as one character, by the last digit of its micro-batch: 0-9 for F, a-j for B, A-J for W.
char narrow_letter(const TimeBlock& block) {
  const char first = block.kind == BlockKind::forward           ? '0'
                     : block.kind == BlockKind::weight_gradient ? 'A'
                                                                : 'a';
  return static_cast<char>(first + block.microbatch % 10);
}

std::string drawing(const Plan& plan, const Timeline& timeline) {
  if (plan.map.stages > max_stages_drawn || timeline.length <= 0) return "";
  double scale = scale_of(timeline, plan.map.chunks);
  const bool labels = scale > 0;
  if (!labels) {
    double shortest = timeline.length;
    for (const TimeBlock& block : timeline.blocks) shortest = std::min(shortest, block.length());
    if (shortest <= 0 || timeline.length / shortest > max_columns) return "";
    scale = 1 / shortest;
  }
  std::vector<std::string> lines(
      static_cast<std::size_t>(plan.map.stages),
      std::string(static_cast<std::size_t>(std::ceil(timeline.length * scale)) + 1, '.'));
  for (const TimeBlock& block : timeline.blocks) {
    const auto begin = static_cast<std::size_t>(std::lround(block.start * scale));
    const auto end = static_cast<std::size_t>(std::lround(block.finish * scale));
    std::string cell(end - begin, labels ? '-' : narrow_letter(block));
    if (labels) {
      const std::string label = label_of(block, plan.map.chunks);
      cell.replace(0, std::min(label.size(), cell.size()), label);
      cell.back() = ' ';
    }
    lines[static_cast<std::size_t>(block.stage)].replace(begin, cell.size(), cell);
  }
  std::string text;
  for (std::size_t stage = 0; stage < lines.size(); ++stage) {
    lines[stage].resize(static_cast<std::size_t>(std::lround(timeline.length * scale)));
    text += labelled("stage " + std::to_string(stage), "|" + lines[stage] + "|");
  }
  const char* legend = labels ? "'.' idle; B with its W where nothing separates them"
                              : "micro-batch (last digit): 0-9 F, a-j B, A-J W apart; '.' idle";
  return text + labelled("", legend);
}

/// The refined rows of a rank's stage; the middle of a long list is left out.
std::string rows_of_rank(const Plan& plan, std::int64_t rank) {
  constexpr std::size_t most = 40;
  const StagePlan& held = plan.stage_of(rank);
  std::string text = labelled("rank " + std::to_string(rank),
                              grouped_count(static_cast<std::int64_t>(held.actions.size()), "row"));
  const std::size_t count = held.actions.size();
  for (std::size_t i = 0; i < count; ++i) {
    if (count > most && i == most / 2) {
      const std::size_t left_out = count - most;
      text += "    ... " + std::to_string(left_out) + " more rows (--format json has them) ...\n";
      i += left_out;
    }
    text += "    " + to_string(held.actions[i]) + "\n";
  }
  return text;
}

}  // namespace

std::string schedule_section(const PrintInput& input, const Timeline& timeline) {
  const Plan& plan = input.plan;
  std::string text = "schedule  " + plan.schedule + ", " +
                     grouped_count(plan.microbatches, "micro-batch") + ", bubble " +
                     percent(plan.bubble_fraction) + "\n";
  if (plan.map.chunks > 1) {
    const bool turns = plan.map.route == "down_and_up";
    text += labelled("chunks", std::to_string(plan.map.chunks) +
                                   (turns ? " per stage, down the stages and back up"
                                          : " per stage, taken in groups of " +
                                                grouped_count(plan.group_size, "micro-batch")));
  }
  const std::string drawn = drawing(plan, timeline);
  if (!drawn.empty()) {
    text += drawn;
  } else {
    int same = 0;  // number of stages with the same order as the stage before
    std::string before;
    for (int stage = 0; stage <= plan.map.stages; ++stage) {
      const std::string order =
          stage < plan.map.stages ? folded_order(plan.stages[static_cast<std::size_t>(stage)]) : "";
      if (stage > 0 && order != before) {
        text += labelled("stage " + span_text(stage - 1 - same, stage - 1), before);
        same = 0;
      } else if (stage > 0) {
        ++same;
      }
      before = order;
    }
  }
  return input.rank >= 0 ? text + rows_of_rank(plan, input.rank) : text;
}

namespace {

std::string name_of(ProductCut cut) { return std::string(word_of(cut)); }

std::string elements(double cost) { return format_grouped(std::llround(cost)); }

std::string last_name(const std::string& name) { return name.substr(name.rfind('.') + 1); }

const std::optional<double>& cost_of(const CutChoice& choice, ProductCut cut) {
  return at(choice.costs, cut);
}

/// The choice for a product: "j 262,144 before i 288,358", or "given" if it was fixed.
std::string choice_text(const CutChoice& choice) {
  const auto& taken = cost_of(choice, choice.taken);
  if (!taken) return "given";
  std::optional<ProductCut> next;
  for (const ProductCut cut : all_cuts) {
    const auto& cost = cost_of(choice, cut);
    if (cut == choice.taken || !cost) continue;
    if (!next || *cost < *cost_of(choice, *next)) next = cut;
  }
  const std::string text = name_of(choice.taken) + " " + elements(*taken);
  return next ? text + " before " + name_of(*next) + " " + elements(*cost_of(choice, *next)) : text;
}

/// The decision about one operator, with neighbouring layers of equal decisions merged.
struct SearchDecision {
  SearchOperator of = "head";
  std::int64_t first = 0, last = 0;
  std::string what;     // split in words, with the number of parts
  std::string costs{};  // costs of the first layer in the last round
};

void add(std::vector<SearchDecision>& decisions, const SearchDecision& one) {
  const auto same = std::find_if(decisions.rbegin(), decisions.rend(),
                                 [&](const SearchDecision& other) { return other.of == one.of; });
  if (same != decisions.rend() && same->what == one.what && same->last + 1 == one.first) {
    same->last = one.first;
  } else {
    decisions.push_back(one);
  }
}

std::string word_text(const SearchReport& report, SearchOperator of, std::int64_t layer) {
  const auto& word = report.splits.of(of, layer);
  const std::string text = word ? std::string(word_of(*word)) : "none";
  return report.tensor_parallel == 1 ? "one rank" : text;
}

/// Adds a decision for each operator, whose products are neighbours in the net.
void add_stage(std::vector<SearchDecision>& decisions, const SearchReport& report,
               const StageSearch& stage) {
  const auto& products = stage.net.products;
  for (std::size_t product = 0; product < products.size();) {
    const SearchProduct& first = products[product];
    SearchDecision one{first.of, first.layer, first.layer,
                       word_text(report, first.of, first.layer) + ":"};
    for (; product < products.size() && products[product].of == first.of &&
           products[product].layer == first.layer;
         ++product) {
      const std::string name = last_name(products[product].name);
      one.what += " " + name + " " + parts_text(at(stage.parts, product));
      if (stage.rounds.empty()) continue;
      one.costs += (one.costs.empty() ? "" : "; ") + name + " " +
                   choice_text(at(stage.rounds.back(), product));
    }
    add(decisions, one);
  }
}

std::vector<SearchDecision> decisions_of(const SearchReport& report) {
  std::vector<SearchDecision> decisions;
  for (const StageSearch& stage : report.stages) add_stage(decisions, report, stage);
  if (!report.stages.empty()) return decisions;
  const auto spread = [&](SearchOperator of, std::int64_t layer) {
    if (!report.splits.of(of, layer)) return;
    const bool given = report.given.of(of, layer).has_value();
    add(decisions, {of, layer, layer, word_text(report, of, layer) + (given ? "; given" : "")});
  };
  for (std::int64_t layer = 0; layer < std::ssize(report.splits.attention); ++layer) {
    spread("attention", layer);
    spread("feed_forward", layer);
  }
  spread("head", 0);
  return decisions;
}

std::string costs_text(const StageSearch& stage) {
  std::string text;
  for (std::size_t round = 0; round < stage.rounds.size(); ++round) {
    text += labelled("stage " + std::to_string(stage.stage),
                     "round " + std::to_string(round + 1) + ", parts x " +
                         std::to_string(at(stage.factors, round)) + "; elements of each cut");
    for (const int node : stage.net.order) {
      if (node == data_node) continue;
      const CutChoice& choice = at(at(stage.rounds, round), node);
      std::string row = padded(at(stage.net.products, node).name, 28);
      for (const ProductCut cut : all_cuts) {
        const auto& cost = cost_of(choice, cut);
        const std::string mark = cut == choice.taken ? "*" : " ";
        row += padded_left(cost ? name_of(cut) + " " + elements(*cost) : name_of(cut) + " -", 26) +
               mark;
      }
      text += labelled("", row);
    }
  }
  return text;
}

/// The prices used by a search for the least seconds, and the value of each decision.
std::string seconds_text(const SecondsSearch& found, bool explains) {
  std::string text =
      labelled("step", format_seconds(found.seconds) + " on " + found.device + ", " +
                           format_bytes(found.bytes) + " of " + printed("%.4g", found.limit_gib) +
                           " GiB per rank; " +
                           (found.gap > 0 ? "no other layout can be faster by more than " +
                                                printed("%.1f", 100 * found.gap) + " %"
                                          : std::string("no other layout is faster")));
  if (!explains) return text;
  text += labelled("looked at",
                   grouped_count(static_cast<std::int64_t>(found.bounded), "layout") + ", " +
                       format_grouped(static_cast<std::int64_t>(found.drafted)) + " drafted, " +
                       format_grouped(static_cast<std::int64_t>(found.planned)) + " planned");
  for (const OtherDecision& one : found.others) {
    const std::string seconds = (one.at_least ? "at least " : "") + format_seconds(one.seconds) +
                                ", " + printed("%+.1f", 100 * (one.seconds / found.seconds - 1)) +
                                " %";
    text += labelled("otherwise", one.of + " " + one.otherwise + " instead of " + one.taken + ": " +
                                      (one.fits ? seconds : "does not fit"));
  }
  return text;
}

}  // namespace

std::string search_line(const SearchReport& report) {
  const OperatorSplitsConfig splits = splits_config(report.splits);
  std::string text = std::string(word_of(report.mode)) + " over " +
                     grouped_count(report.ranks, "rank") + ": tensor_parallel " +
                     std::to_string(report.tensor_parallel) + ", data_parallel " +
                     std::to_string(report.data_parallel);
  if (report.tensor_parallel == 1) return text;
  const auto word = [](const std::optional<SplitBy>& split) {
    return split ? std::string(word_of(*split)) : "none";
  };
  return text + "; embedding " + word(splits.embedding) + ", attention " +
         splits.attention.value_or("none") + ", feed_forward " +
         splits.feed_forward.value_or("none") + ", head " + word(splits.head);
}

std::string search_section(const PrintInput& input) {
  if (input.search == nullptr) return "";
  const SearchReport& report = *input.search;
  std::string text = "search  " + search_line(report) + "\n";
  for (const SearchDecision& one : decisions_of(report)) {
    const std::string layers = one.first == one.last ? "layer " : "layers ";
    const std::string where = one.of == "head" ? "" : layers + span_text(one.first, one.last) + " ";
    text += labelled(std::string(word_of(one.of)), where + one.what);
    if (!one.costs.empty()) text += labelled("", "the last cut, in elements: " + one.costs);
  }
  for (const std::string& note : report.notes) text += labelled("note", note);
  if (report.by_seconds) text += seconds_text(*report.by_seconds, input.explain_search);
  if (!input.explain_search) return text + "\n";
  for (const StageSearch& stage : report.stages) text += costs_text(stage);
  return text + "\n";
}

std::string rates_section(const std::string& title, const std::vector<RatePoint>& points) {
  std::string text = title + "\n";
  for (const RatePoint& point : points) {
    text += labelled("step " + std::to_string(point.step),
                     "lr " + printed("%.4g", point.learning_rate) + ", weight decay " +
                         printed("%.4g", point.weight_decay));
  }
  return text;
}

std::string print_table(const PrintInput& input) {
  check_rank(input);
  const Plan& plan = input.plan;
  const Timeline timeline = make_timeline(plan);
  std::string text = mesh_section(plan) + "\n" + kinds_section(plan) + search_section(input) +
                     groups_section(input) + "\n" + stages_section(plan, timeline) + "\n" +
                     schedule_section(input, timeline) + "\n" + parameters_section(input) + "\n" +
                     optimizer_section(input) + memory_section(input) + "\n" +
                     (input.config == nullptr ? "" : recompute_section(input) + "\n") +
                     communication_section(input) + "\n" + work_section(plan) + "\n" +
                     time_section(plan, input.config) + ramp_section(plan);
  if (!plan.rates.empty()) {
    const std::string title = "learning rate  (" + grouped_count(plan.steps, "step") + ")";
    text += "\n" + rates_section(title, plan.rates);
  }
  if (!input.lr_at.empty()) text += "\n" + rates_section("asked for", rates_asked(input));
  return text + "\nplan hash " + hex_text(plan.hash) + "\n";
}

}  // namespace trainctl
