// The result of a search of layouts as text for people and as JSON.
#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

#include "base/json_text.h"
#include "base/text.h"
#include "base/units.h"
#include "formats/print/text.h"
#include "run/layouts/decisions.h"
#include "run/layouts/search_layouts.h"

namespace trainctl {

namespace {

struct Difference {
  const LedgerEntry* entry = nullptr;
  double seconds = 0;  // difference from the best layout
};

/// The kinds of cost in which a layout exceeds the best one most, the largest first.
std::vector<Difference> loses_by(const FoundArrangement& one, const FoundArrangement& best) {
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

std::string layout_line(const FoundArrangement& one, const SearchedArrangements& searched) {
  return "  " + padded_left(format_seconds(one.seconds), 10) +
         padded_left(format_bytes(one.bytes), 12) + "  " +
         layout_text(one.layout, one.repeats, searched.world);
}

std::string why_text(const FoundArrangement& one, const FoundArrangement& best) {
  return joined(loses_by(one, best), ", ", [](const Difference& more) {
    return std::string(more.entry->text) + " +" + format_seconds(more.seconds);
  });
}

void write_layout(JsonText& json, const FoundArrangement& one,
                  const SearchedArrangements& searched) {
  const RunArrangement& layout = one.layout;
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
  for (const ArrangementAxis& axis : layout_axes()) {
    json.member(axis.key, axis.word(layout));
  }
  json.member("recompute_auto", one.repeats);
  json.member("seconds", one.seconds);
  json.member("bytes", one.bytes);
  json.member("lower", one.bound);
  if (one.memory_limit > 0) json.member("memory_limit_gib", one.memory_limit);
}

/// The number of layouts with a ledger: the best one and those compared with it.
std::size_t compared(const SearchedArrangements& searched) {
  return static_cast<std::size_t>(std::ranges::count_if(
      searched.found, [](const FoundArrangement& one) { return one.ledger.has_value(); }));
}

/// The number of layouts that were also priced with other figures of the cluster.
std::size_t priced_again(const SearchedArrangements& searched) {
  return static_cast<std::size_t>(std::ranges::count_if(
      searched.found, [](const FoundArrangement& one) { return !one.changed.empty(); }));
}

/// The basis of the answer: "on NVIDIA H100 SXM 80 GB with trainctl; device table: ...".
std::string trust_text(const SearchedArrangements& searched) {
  const DeviceTime& time = *searched.on_device;
  return formatted("on {} with {}; {}: expect an error of {:.0f} %", time.device, time.software,
                   time.trust, 100 * time.expected_error);
}

std::string keys_lines(const FreeKeys& free, std::int64_t world) {
  const std::string searched = searched_text(free);
  return (searched.empty() ? "" : "searched: " + searched + "\n") +
         "not searched: " + unsearched_text(world) + "\n";
}

/// Lines about searches within parts of the memory that ended early.
std::string parts_text(const SearchedArrangements& searched) {
  std::string text;
  for (const PartOfMemory& one : searched.parts) {
    if (!one.ended_early) continue;
    text += formatted("  within {:.4g} GiB not all were looked at: {}\n", one.limit,
                      one.fits ? formatted("others are at most {:.1f} % faster", 100 * one.gap)
                               : "none was found that fits");
  }
  return text;
}

std::string sensitivity_text(const SearchedArrangements& searched) {
  const std::vector<Sensitivity> all = sensitivities_of(searched);
  if (all.empty()) return "";
  const std::size_t priced = priced_again(searched);
  const bool is_all = priced == searched.found.size();
  std::string text = formatted(
      "sensitivity: a figure of the cluster 20 % less or more, with the fastest of {}{}{} that "
      "were planned\n",
      is_all ? "" : "the fastest ", priced,
      is_all ? "" : formatted(" of {}", searched.found.size()));
  const auto change = [&](const std::optional<Sensitivity::Change>& one, const char* where,
                          const Sensitivity& about) {
    if (!one) return std::string();
    return formatted("; {} {} {}", where, figure_text(one->value, about.best.unit),
                     layout_text(searched.found[one->layout].layout, searched.world));
  };
  for (const Sensitivity& one : all) {
    const FoundArrangement& best = searched.found.front();
    text += formatted("  {:<36}{:>14}  {:>8}{:>10}{}{}\n", one.best.figure,
                      figure_text(one.best.value, one.best.unit),
                      more_text(one.seconds_less, best.seconds),
                      more_text(one.seconds_more, best.seconds), change(one.below, "below", one),
                      change(one.above, "above", one));
  }
  return text;
}

std::string explanation(const SearchedArrangements& searched) {
  const FoundArrangement& best = searched.found.front();
  std::string text = "seconds of the best, the mean of its stages\n";
  for (const LedgerEntry& entry : ledger_entries) {
    const double seconds = *best.ledger.*entry.seconds;
    if (seconds <= 0) continue;
    text += formatted("  {:<24}{:>10}{:>7.1f} %\n", entry.text, format_seconds(seconds),
                      100 * seconds / best.seconds);
  }
  text += "decisions, and the fastest layout that decides otherwise\n";
  for (const Decision& one : decisions_of(searched)) {
    text += formatted("  {:<36} -> {:<12}{}{}  {}\n", one.key + " " + one.taken, one.otherwise,
                      one.layout.planned ? "" : "at least ",
                      more_text(one.layout.seconds, best.seconds),
                      layout_text(one.layout.layout, one.layout.repeats, searched.world));
  }
  return text;
}

void write_ledger(JsonText& json, const FoundArrangement& one) {
  if (!one.ledger) return;
  json.key("ledger").open_object(JsonText::Form::one_line);
  for (const LedgerEntry& entry : ledger_entries)
    json.member(entry.key, *one.ledger.*entry.seconds);
  json.close();
}

void write_parts(JsonText& json, const SearchedArrangements& searched) {
  json.key("parts_of_memory").open_array();
  for (const PartOfMemory& one : searched.parts) {
    json.row("memory_limit_gib", one.limit, "fits", one.fits, "seconds", one.seconds, "gap",
             one.gap, "ended_early", one.ended_early);
  }
  json.close();
}

void write_empty(JsonText& json, const SearchedArrangements& searched) {
  json.key("empty");
  if (!searched.empty) return json.json("null");
  const EmptySpace& space = *searched.empty;
  json.open_object();
  json.member("message", empty_text(searched));
  if (space.leanest) {
    json.member("layout", layout_text(space.leanest->layout, searched.world));
    json.member("recompute_auto", space.leanest->repeats);
    json.member("stage", static_cast<std::int64_t>(space.stage));
    json.member("bytes", space.bytes);
    json.member("lacking", space.lacking);
  }
  if (space.limit) json.member("memory_limit_gib", *space.limit);
  if (space.world) json.member("world_size", *space.world);
  json.close();
}

void write_decisions(JsonText& json, const SearchedArrangements& searched) {
  json.key("decisions").open_array();
  for (const Decision& one : decisions_of(searched)) {
    const ArrangementOutcome& other = one.layout;
    json.row("key", one.key, "taken", one.taken, "otherwise", one.otherwise, "seconds",
             other.seconds, "planned", other.planned, "layout",
             layout_text(other.layout, other.repeats, searched.world));
  }
  json.close();
}

void write_sensitivity(JsonText& json, const SearchedArrangements& searched) {
  const auto text = [&](std::size_t layout) {
    return layout_text(searched.found[layout].layout, searched.world);
  };
  const auto change = [&](const char* name, const std::optional<Sensitivity::Change>& one) {
    json.key(name);
    if (!one) return json.json("null");
    json.row("value", one->value, "layout", text(one->layout));
  };
  json.key("sensitivity").open_array();
  for (const Sensitivity& one : sensitivities_of(searched)) {
    json.open_object();
    json.member("figure", one.best.figure);
    json.member("unit", one.best.unit);
    json.member("value", one.best.value);
    json.member("best_less", one.best.less);
    json.member("best_more", one.best.more);
    json.member("seconds_less", one.seconds_less);
    json.member("layout_less", text(one.fastest_less));
    json.member("seconds_more", one.seconds_more);
    json.member("layout_more", text(one.fastest_more));
    change("changes_below", one.below);
    change("changes_above", one.above);
    json.close();
  }
  json.close();
}

}  // namespace

std::string more_text(double seconds, double best) {
  const double more = 100 * (seconds / best - 1);
  return formatted("{:+.1f} %", std::abs(more) < 0.05 ? 0.0 : more);
}

std::string empty_text(const SearchedArrangements& searched) {
  const EmptySpace& space = *searched.empty;
  const std::string ranks = grouped_count(searched.world, "rank");
  std::string text, fits;
  if (space.leanest) {
    text = formatted(
        "no layout of {} fits in {:.4g} GiB: {} needs at least {} per rank on stage {}, {} more "
        "than the limit",
        ranks, searched.memory_limit,
        layout_text(space.leanest->layout, space.leanest->repeats, searched.world),
        format_bytes(space.bytes), space.stage, format_bytes(space.lacking));
  } else if (searched.space == 0) {
    text = "no layout of " + ranks + " divides the batch, the layers and the heads";
  } else {
    text = "rules refuse every layout of " + ranks;
  }
  if (space.limit) fits = formatted("it fits with --memory-limit {:.4f}", *space.limit);
  if (space.world) {
    fits +=
        formatted("{}a layout fits with --world-size {}", fits.empty() ? "" : "; ", *space.world);
  }
  return text + (fits.empty() ? "" : "\n  " + fits);
}

std::string layout_text(const RunArrangement& layout, bool repeats, std::int64_t world) {
  return layout_text(layout, world) + (repeats ? " recompute auto" : "");
}

std::string gap_text(const SearchedArrangements& searched) {
  if (searched.gap <= 0) return "no other layout is faster";
  return formatted("no other layout can be faster by more than {:.1f} %", 100 * searched.gap);
}

std::vector<Sensitivity> sensitivities_of(const SearchedArrangements& searched) {
  const auto first = searched.found.begin();
  return sensitivities({first, first + static_cast<std::ptrdiff_t>(priced_again(searched))});
}

namespace {

/// A comment for each key that a search chose, such as "searched; at least +3.1 % with 4". If one
/// word sets several keys, only the first key gets the full comment.
std::map<std::string, std::string, std::less<>> comments_of(const SearchedArrangements& searched) {
  const double best = searched.found.front().seconds;
  std::map<std::string, std::string, std::less<>> comments;
  const std::vector<Decision> decisions = decisions_of(searched);
  for (const SearchedKey& key : searched_keys()) {
    if (!(searched.free.*key.free)) continue;
    for (const std::string_view path : key.paths) comments[std::string(path)] = "searched";
    const auto one = std::ranges::find(decisions, key.word, &Decision::key);
    if (one == decisions.end()) continue;
    comments[std::string(key.paths.front())] +=
        formatted("; {}{} with {}", one->layout.planned ? "" : "at least ",
                  more_text(one->layout.seconds, best), one->otherwise);
  }
  return comments;
}

}  // namespace

std::string best_config(const ArrangementSearch& search, const SearchedArrangements& searched) {
  const FoundArrangement& best = searched.found.front();
  const auto comments = comments_of(searched);
  std::istringstream lines(dump_config(config_of(search, best), nullptr));
  std::string text = "# The best layout that trainctl plan --search found: " +
                     layout_text(best.layout, searched.world) + "\n";
  std::vector<std::string> paths;  // paths of the sections around a line, and of the line
  for (std::string line; std::getline(lines, line); text += line + "\n") {
    const std::size_t begin = line.find_first_not_of(' ');
    const std::size_t end = line.find(':');
    if (begin == std::string::npos || end == std::string::npos || line[begin] == '#') continue;
    paths.resize(std::min(paths.size(), begin / 2));
    paths.push_back((paths.empty() ? "" : paths.back() + ".") + line.substr(begin, end - begin));
    const auto comment = comments.find(paths.back());
    if (comment != comments.end() && end + 1 < line.size()) line += "  # " + comment->second;
  }
  return text;
}

std::string print_search(const SearchedArrangements& searched, bool explains) {
  std::string text = formatted("{} of {}, memory limit {:.4g} GiB: {} drafted, {} planned\n",
                               grouped_count(static_cast<std::int64_t>(searched.space), "layout"),
                               grouped_count(searched.world, "rank"), searched.memory_limit,
                               format_grouped(static_cast<std::int64_t>(searched.plays)),
                               format_grouped(static_cast<std::int64_t>(searched.opened)));
  if (searched.found.empty()) {
    text += searched.left > 0 ? "stopped before a layout that fits was found\n"
            : searched.empty  ? "search-space-empty: " + empty_text(searched) + "\n"
                              : "none fits\n";
  } else {
    const FoundArrangement& best = searched.found.front();
    text += "best\n" + layout_line(best, searched) + "\n  " + gap_text(searched) +
            (searched.on_device ? "\n  " + trust_text(searched) : "") + "\n";
    const std::size_t shown = compared(searched);
    if (shown > 1) text += "others, and what they spend more than the best\n";
    for (std::size_t i = 1; i < shown; ++i) {
      const FoundArrangement& one = searched.found[i];
      text += layout_line(one, searched) + "\n" + std::string(26, ' ') +
              more_text(one.seconds, best.seconds) + ": " + why_text(one, best) + "\n";
    }
    text += "frontier: less memory takes longer\n";
    for (const FoundArrangement& one : searched.frontier) text += layout_line(one, searched) + "\n";
    text += parts_text(searched);
    text += sensitivity_text(searched);
    if (explains) text += explanation(searched);
  }
  if (!searched.refused.empty()) text += "refused, and the one that came closest\n";
  for (const auto& [code, refused] : searched.refused) {
    text += "  " + padded(code, 20) + padded_left(format_grouped(refused.count), 8) + "  " +
            layout_text(refused.nearest.layout, searched.world) + ", at least " +
            format_seconds(refused.nearest.bound) + ": " + refused.message + "\n";
  }
  return text + keys_lines(searched.free, searched.world);
}

namespace {

void write_search(JsonText& json, const SearchedArrangements& searched) {
  json.member("world_size", searched.world);
  json.member("memory_limit_gib", searched.memory_limit);
  json.key("search").open_object();
  json.member("space", static_cast<std::int64_t>(searched.space));
  json.member("plays", static_cast<std::int64_t>(searched.plays));
  json.member("opened", static_cast<std::int64_t>(searched.opened));
  json.member("gap", searched.gap);
  json.member("repriced", static_cast<std::int64_t>(priced_again(searched)));
  json.key("best");
  if (searched.found.empty()) {
    json.json("null");
  } else {
    json.open_object();
    write_layout(json, searched.found.front(), searched);
    write_ledger(json, searched.found.front());
    json.close();
  }
  json.key("runners_up").open_array();
  for (std::size_t i = 1; i < compared(searched); ++i) {
    json.open_object();
    write_layout(json, searched.found[i], searched);
    write_ledger(json, searched.found[i]);
    json.key("loses_by").open_array();
    for (const Difference& more : loses_by(searched.found[i], searched.found.front())) {
      json.row("kind", more.entry->key, "seconds", more.seconds);
    }
    json.close();
    json.close();
  }
  json.close();
  json.key("frontier").open_array();
  for (const FoundArrangement& one : searched.frontier) {
    json.open_object();
    write_layout(json, one, searched);
    json.close();
  }
  json.close();
  write_parts(json, searched);
  write_empty(json, searched);
  write_decisions(json, searched);
  write_sensitivity(json, searched);
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
  json.key("searched").open_array(JsonText::Form::one_line);
  for (const SearchedKey& key : searched_keys()) {
    if (searched.free.*key.free) json.value(std::string(key.word));
  }
  json.close();
  json.key("not_searched").open_array(JsonText::Form::one_line);
  for (const std::string_view key : unsearched_keys(searched.world)) json.value(std::string(key));
  json.close();
  json.key("trust");
  if (!searched.on_device) {
    json.json("null");
  } else {
    const DeviceTime& time = *searched.on_device;
    json.row("device", time.device, "software", time.software, "rests_on", time.trust,
             "expected_error", time.expected_error);
  }
  json.close();
}

}  // namespace

std::string print_search_json(const SearchedArrangements& searched) {
  JsonText json;
  json.open_object();
  json.member("format_version", 2);
  write_search(json, searched);
  json.close();
  return json.take();
}

namespace {

/// Why no layout for this number of ranks was found.
std::string none_text(const SearchedArrangements& one) {
  if (one.left > 0) return "stopped before a layout that fits was found";
  const auto most = std::ranges::max_element(
      one.refused, {}, [](const auto& refused) { return refused.second.count; });
  if (most == one.refused.end()) return "no layout divides the batch, the layers and the heads";
  return "none fits: " + format_grouped(most->second.count) + " of " +
         grouped_count(static_cast<std::int64_t>(one.space), "layout") + " refused by " +
         most->first;
}

}  // namespace

std::string print_worlds(const std::vector<SearchedArrangements>& worlds) {
  std::string text = padded_left("ranks", 8) + padded_left("step", 11) +
                     padded_left("tokens/s", 11) + padded_left("of a rank", 11) +
                     padded_left("memory", 12) + "  layout\n";
  for (const SearchedArrangements& one : worlds) {
    text += padded_left(format_grouped(one.world), 8);
    if (one.found.empty()) {
      text += "  " + none_text(one) + "\n";
      continue;
    }
    const FoundArrangement& best = one.found.front();
    const double speed = static_cast<double>(one.tokens) / best.seconds;
    text += padded_left(format_seconds(best.seconds), 11) + padded_left(format_count(speed), 11) +
            padded_left(format_count(speed / static_cast<double>(one.world)), 11) +
            padded_left(format_bytes(best.bytes), 12) + "  " +
            layout_text(best.layout, best.repeats, one.world) + "\n";
  }
  std::int64_t most = 1;
  for (const SearchedArrangements& one : worlds) most = std::max(most, one.world);
  return text + (worlds.empty() ? "" : keys_lines(worlds.front().free, most));
}

std::string print_worlds_json(const std::vector<SearchedArrangements>& worlds) {
  JsonText json;
  json.open_object();
  json.member("format_version", 2);
  json.key("worlds").open_array();
  for (const SearchedArrangements& one : worlds) {
    json.open_object();
    write_search(json, one);
    json.close();
  }
  json.close();
  json.close();
  return json.take();
}

}  // namespace trainctl
