#include "run/layouts/decisions.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

namespace trainctl {

namespace {

using State = StrategyOutcome::State;

std::string cut_text(const RunStrategy& layout) {
  if (layout.first_layers > 0) {
    return std::to_string(layout.first_layers) + " first, " + std::to_string(layout.last_layers) +
           " last";
  }
  if (layout.counts_embedding && layout.counts_loss) return "even with embedding and loss";
  if (layout.counts_embedding) return "even with the embedding";
  return layout.counts_loss ? "even with the loss" : "even";
}

struct StrategyKey {
  std::string name;
  std::function<std::string(const SearchedStrategies&, const StrategyOutcome&)> text;
  bool (*applies)(const RunStrategy&) = [](const RunStrategy&) { return true; };
};

template <std::int64_t RunStrategy::*value>
std::string number_text(const SearchedStrategies&, const StrategyOutcome& one) {
  return std::to_string(one.layout.*value);
}

const std::vector<StrategyKey> keys_of_sizes{
    {"tensor_parallel", number_text<&RunStrategy::tensor_parallel>},
    {"pipeline_stages", number_text<&RunStrategy::stages>},
    {"micro_batch_size", number_text<&RunStrategy::micro_batch_size>},
    {"recompute",
     [](const SearchedStrategies& searched, const StrategyOutcome& one) -> std::string {
       if (!searched.free.recompute) return searched.recompute;
       return one.repeats ? "auto" : "none";
     }},
    {"context_parallel", number_text<&RunStrategy::context_parallel>},
    {"expert_parallel", number_text<&RunStrategy::expert_parallel>},
    {"virtual_pipeline_stages", number_text<&RunStrategy::chunks>},
    {"parallel_optimizer",
     [](const SearchedStrategies&, const StrategyOutcome& one) -> std::string {
       const int level = one.layout.optimizer_level;
       return level == 0 ? "off" : "level" + std::to_string(level);
     }},
    {"stage_layers",
     [](const SearchedStrategies&, const StrategyOutcome& one) { return cut_text(one.layout); }},
};

/// Keys of sizes, then those of axes.
std::vector<StrategyKey> layout_keys() {
  std::vector<StrategyKey> keys = keys_of_sizes;
  for (const StrategyAxis& axis : layout_axes()) {
    keys.push_back({std::string(axis.key),
                    [&axis](const SearchedStrategies&, const StrategyOutcome& one) {
                      return axis.word(one.layout);
                    },
                    axis.applies});
  }
  return keys;
}

/// Orders outcomes: planned before bounded before refused ones, then by seconds.
bool is_better(const StrategyOutcome& a, const StrategyOutcome& b) {
  return std::tuple(a.state, a.seconds, a.layout) < std::tuple(b.state, b.seconds, b.layout);
}

/// Before planning, a layout's use of recomputation is open: a bound or refusal covers both cases.
bool is_known(const SearchedStrategies& searched, const StrategyKey& key,
              const StrategyOutcome& one) {
  return one.state == State::planned || !searched.free.recompute || key.name != "recompute";
}

/// Orders numbers in texts: "2" before "16".
bool comes_before(const std::string& a, const std::string& b) {
  return std::pair(a.size(), a) < std::pair(b.size(), b);
}

std::vector<std::string> values_of(const SearchedStrategies& searched, const StrategyKey& key) {
  std::set<std::string> values;
  for (const StrategyOutcome& one : searched.outcomes) values.insert(key.text(searched, one));
  std::vector<std::string> sorted(values.begin(), values.end());
  std::ranges::stable_sort(sorted, comes_before);
  return sorted;
}

/// The outcomes in one cell of a map.
struct Cell {
  const StrategyOutcome* best = nullptr;
  std::map<std::string, std::pair<std::int64_t, const StrategyOutcome*>> refused;  // by code

  void add(const StrategyOutcome& one) {
    if (one.state == State::refused) {
      auto& [count, example] = refused[one.code];
      ++count;
      if (example == nullptr) example = &one;
    } else if (best == nullptr || is_better(one, *best)) {
      best = &one;
    }
  }
  const StrategyOutcome* shown() const {
    if (best != nullptr || refused.empty()) return best;
    return std::ranges::max_element(refused, {}, [](const auto& one) { return one.second.first; })
        ->second.second;
  }
};

StrategyMap map_of(const SearchedStrategies& searched, const StrategyKey& row,
                   const StrategyKey& column) {
  StrategyMap map{row.name, column.name, values_of(searched, row), values_of(searched, column), {}};
  std::map<std::pair<std::string, std::string>, Cell> cells;
  const auto has = [&](const StrategyKey& key, const StrategyOutcome& one,
                       const std::string& value) {
    return !is_known(searched, key, one) || key.text(searched, one) == value;
  };
  for (const StrategyOutcome& one : searched.outcomes) {
    for (const std::string& y : map.rows) {
      if (!has(row, one, y)) continue;
      for (const std::string& x : map.columns) {
        if (has(column, one, x)) cells[{y, x}].add(one);
      }
    }
  }
  for (const std::string& y : map.rows) {
    auto& line = map.cells.emplace_back();
    for (const std::string& x : map.columns) line.push_back(cells[{y, x}].shown());
  }
  return map;
}

}  // namespace

std::vector<Decision> decisions_of(const SearchedStrategies& searched) {
  std::vector<Decision> decisions;
  if (searched.found.empty()) return decisions;
  const FoundStrategy& front = searched.found.front();
  const StrategyOutcome best{front.layout, front.repeats, State::planned, front.seconds, ""};
  for (const StrategyKey& key : layout_keys()) {
    if (!key.applies(best.layout)) continue;
    const std::string taken = key.text(searched, best);
    const StrategyOutcome* next = nullptr;
    for (const StrategyOutcome& one : searched.outcomes) {
      if (one.state == State::refused || !is_known(searched, key, one)) continue;
      if (!key.applies(one.layout)) continue;
      if (key.text(searched, one) == taken) continue;
      if (next == nullptr ||
          std::pair(one.seconds, one.state) < std::pair(next->seconds, next->state)) {
        next = &one;
      }
    }
    if (next != nullptr) decisions.push_back({key.name, taken, key.text(searched, *next), *next});
  }
  std::ranges::stable_sort(decisions, std::ranges::greater{},
                           [](const Decision& one) { return one.layout.seconds; });
  return decisions;
}

std::vector<StrategyMap> maps_of(const SearchedStrategies& searched) {
  return {map_of(searched, keys_of_sizes[0], keys_of_sizes[1]),
          map_of(searched, keys_of_sizes[2], keys_of_sizes[3])};
}

}  // namespace trainctl
