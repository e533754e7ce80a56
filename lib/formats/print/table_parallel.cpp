#include <algorithm>

#include "base/at.h"
#include "base/units.h"
#include "config/schema/words.h"
#include "formats/print/table_parts.h"
#include "formats/print/text.h"
#include "plan/cost/kind_costs.h"
#include "plan/tables/mesh.h"

namespace trainctl {

namespace {

std::string product(const Mesh& mesh, const std::vector<Axis>& axes) {
  std::string text;
  for (const Axis axis : axes) {
    text += (text.empty() ? "" : " x ") + std::string(name_of(axis)) + " " +
            std::to_string(mesh.size(axis));
  }
  return text;
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

/// "2 groups of 4 ranks, the first 0-3"
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

/// Words wrapped at 100 columns under their label.
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
    text += (chunk == 0 ? "" : " | ") + held_text(plan.map.at(stage, chunk));
  }
  return text;
}

/// How rows get to experts and back, where that is not all of them at once; else "".
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
    add("in " + std::to_string(rule.chunks) + " chunks, each beside the products of another");
  }
  if (rule.beside_passes) add("on their way beside passes of other micro-batches");
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
    if (kind.rope < 0 && plan.model.position_kind == PositionKind::rotary) form += ", no RoPE";
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

}  // namespace trainctl
