// What a search of layouts found, for people and programs.
#include <algorithm>
#include <cmath>

#include "base/units.h"
#include "formats/json_text.h"
#include "formats/print/text.h"
#include "run/layouts/search_layouts.h"

namespace trainctl {

namespace {

struct Difference {
  const LedgerEntry* entry = nullptr;
  double seconds = 0;  // more than the best spends
};

/// The largest differences from the best, those that cost time first.
std::vector<Difference> loses_by(const FoundLayout& one, const FoundLayout& best) {
  constexpr std::size_t most = 3;
  const double least = 1e-4 * best.seconds;
  std::vector<Difference> all;
  if (!one.ledger || !best.ledger) return all;
  for (const LedgerEntry& entry : ledger_entries) {
    const double more = *one.ledger.*entry.seconds - *best.ledger.*entry.seconds;
    if (more > least) all.push_back({&entry, more});
  }
  std::ranges::stable_sort(all, std::ranges::greater{}, &Difference::seconds);
  all.resize(std::min(all.size(), most));
  return all;
}

std::string layout_line(const FoundLayout& one, const SearchedLayouts& searched) {
  return "  " + padded_left(format_seconds(one.seconds), 10) +
         padded_left(format_bytes(one.bytes), 12) + "  " + layout_text(one.layout, searched.world) +
         (one.repeats ? " recompute auto" : "");
}

std::string why_text(const FoundLayout& one, const FoundLayout& best) {
  std::string text;
  for (const Difference& more : loses_by(one, best)) {
    text += (text.empty() ? "" : ", ") + std::string(more.entry->text) + " +" +
            format_seconds(more.seconds);
  }
  return text;
}

void write_layout(JsonText& json, const FoundLayout& one, const SearchedLayouts& searched) {
  const RankLayout& layout = one.layout;
  json.member("layout", layout_text(layout, searched.world));
  json.member("tensor_parallel", layout.tensor_parallel);
  json.member("context_parallel", layout.context_parallel);
  json.member("expert_parallel", layout.expert_parallel);
  json.member("pipeline_stages", layout.stages);
  json.member("virtual_pipeline_stages", layout.chunks);
  json.member("micro_batch_size", layout.micro_batch_size);
  json.member("optimizer_level", layout.optimizer_level);
  json.member("account_for_embedding", layout.counts_embedding);
  json.member("account_for_loss", layout.counts_loss);
  json.member("first_stage_layers", layout.first_layers);
  json.member("last_stage_layers", layout.last_layers);
  json.member("recompute_auto", one.repeats);
  json.member("seconds", one.seconds);
  json.member("bytes", one.bytes);
  json.member("lower", one.bound);
}

/// The best and those that are compared with it.
std::size_t compared(const SearchedLayouts& searched) {
  return static_cast<std::size_t>(std::ranges::count_if(
      searched.found, [](const FoundLayout& one) { return one.ledger.has_value(); }));
}

}  // namespace

std::string print_search(const SearchedLayouts& searched) {
  std::string text = grouped_count(static_cast<std::int64_t>(searched.space), "layout") + " of " +
                     grouped_count(searched.world, "rank") + ", memory limit " +
                     printed("%.4g", searched.memory_limit) +
                     " GiB: " + format_grouped(static_cast<std::int64_t>(searched.plays)) +
                     " drafted, " + format_grouped(static_cast<std::int64_t>(searched.opened)) +
                     " planned\n";
  if (searched.found.empty()) {
    text += searched.left > 0 ? "stopped before a layout that fits was found\n" : "none fits\n";
  } else {
    const FoundLayout& best = searched.found.front();
    text += "best\n" + layout_line(best, searched) + "\n  " +
            (searched.gap > 0 ? "no other layout can be faster by more than " +
                                    printed("%.1f", 100 * searched.gap) + " %"
                              : std::string("no other layout is faster")) +
            "\n";
    const std::size_t shown = compared(searched);
    if (shown > 1) text += "others, and what they spend more than the best\n";
    for (std::size_t i = 1; i < shown; ++i) {
      const FoundLayout& one = searched.found[i];
      text += layout_line(one, searched) + "\n" + std::string(26, ' ') +
              printed("%+.1f", 100 * (one.seconds / best.seconds - 1)) +
              " %: " + why_text(one, best) + "\n";
    }
    text += "frontier: less memory takes longer\n";
    for (const FoundLayout& one : searched.frontier) text += layout_line(one, searched) + "\n";
  }
  if (!searched.refused.empty()) text += "refused, and the one that came closest\n";
  for (const auto& [code, refused] : searched.refused) {
    text += "  " + padded(code, 20) + padded_left(format_grouped(refused.count), 8) + "  " +
            layout_text(refused.nearest.layout, searched.world) + ", at least " +
            format_seconds(refused.nearest.bound) + ": " + refused.message + "\n";
  }
  return text;
}

std::string print_search_json(const SearchedLayouts& searched) {
  JsonText json;
  json.open_object();
  json.member("format_version", 2);
  json.member("world_size", searched.world);
  json.member("memory_limit_gib", searched.memory_limit);
  json.key("search").open_object();
  json.member("space", static_cast<std::int64_t>(searched.space));
  json.member("plays", static_cast<std::int64_t>(searched.plays));
  json.member("opened", static_cast<std::int64_t>(searched.opened));
  json.member("gap", searched.gap);
  json.key("best");
  if (searched.found.empty()) {
    json.json("null");
  } else {
    json.open_object();
    write_layout(json, searched.found.front(), searched);
    json.close();
  }
  json.key("runners_up").open_array();
  for (std::size_t i = 1; i < compared(searched); ++i) {
    json.open_object();
    write_layout(json, searched.found[i], searched);
    json.key("loses_by").open_array();
    for (const Difference& more : loses_by(searched.found[i], searched.found.front())) {
      json.open_object(JsonText::Form::one_line);
      json.member("kind", more.entry->key);
      json.member("seconds", more.seconds);
      json.close();
    }
    json.close();
    json.close();
  }
  json.close();
  json.key("frontier").open_array();
  for (const FoundLayout& one : searched.frontier) {
    json.open_object();
    write_layout(json, one, searched);
    json.close();
  }
  json.close();
  json.key("refused").open_array();
  for (const auto& [code, refused] : searched.refused) {
    json.open_object();
    json.member("code", code);
    json.member("count", refused.count);
    json.member("nearest", layout_text(refused.nearest.layout, searched.world));
    json.member("nearest_lower", refused.nearest.bound);
    json.member("message", refused.message);
    json.close();
  }
  json.close();
  json.close();
  json.close();
  return json.take();
}

}  // namespace trainctl
