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

using State = LayoutOutcome::State;

std::string cut_text(const RankLayout& layout) {
  if (layout.first_layers > 0) {
    return std::to_string(layout.first_layers) + " first, " + std::to_string(layout.last_layers) +
           " last";
  }
  if (layout.counts_embedding && layout.counts_loss) return "even with embedding and loss";
  if (layout.counts_embedding) return "even with the embedding";
  return layout.counts_loss ? "even with the loss" : "even";
}

struct LayoutKey {
  std::string name;
  std::function<std::string(const SearchedLayouts&, const LayoutOutcome&)> text;
  bool (*applies)(const RankLayout&) = [](const RankLayout&) { return true; };
};

template <std::int64_t RankLayout::*value>
std::string number_text(const SearchedLayouts&, const LayoutOutcome& one) {
  return std::to_string(one.layout.*value);
}

const std::vector<LayoutKey> keys_of_sizes{
    {"tensor_parallel", number_text<&RankLayout::tensor_parallel>},
    {"pipeline_stages", number_text<&RankLayout::stages>},
    {"micro_batch_size", number_text<&RankLayout::micro_batch_size>},
    {"recompute",
     [](const SearchedLayouts& searched, const LayoutOutcome& one) -> std::string {
       if (!searched.free.recompute) return searched.recompute;
       return one.repeats ? "auto" : "none";
     }},
    {"context_parallel", number_text<&RankLayout::context_parallel>},
    {"expert_parallel", number_text<&RankLayout::expert_parallel>},
    {"virtual_pipeline_stages", number_text<&RankLayout::chunks>},
    {"parallel_optimizer",
     [](const SearchedLayouts&, const LayoutOutcome& one) -> std::string {
       const int level = one.layout.optimizer_level;
       return level == 0 ? "off" : "level" + std::to_string(level);
     }},
    {"stage_layers",
     [](const SearchedLayouts&, const LayoutOutcome& one) { return cut_text(one.layout); }},
};

/// The keys of sizes, then those of words.
std::vector<LayoutKey> layout_keys() {
  std::vector<LayoutKey> keys = keys_of_sizes;
  for (const LayoutAxis& axis : layout_axes()) {
    keys.push_back({std::string(axis.key),
                    [&axis](const SearchedLayouts&, const LayoutOutcome& one) {
                      return axis.word(one.layout);
                    },
                    axis.applies});
  }
  return keys;
}

/// Planned before bounded, and of these the fastest; refused ones last.
bool is_better(const LayoutOutcome& a, const LayoutOutcome& b) {
  return std::tuple(a.state, a.seconds, a.layout) < std::tuple(b.state, b.seconds, b.layout);
}

/// Planning decides repeats: before it, a bound and a refusal are about either.
bool is_known(const SearchedLayouts& searched, const LayoutKey& key, const LayoutOutcome& one) {
  return one.state == State::planned || !searched.free.recompute || key.name != "recompute";
}

/// "2" before "16".
bool comes_before(const std::string& a, const std::string& b) {
  return std::pair(a.size(), a) < std::pair(b.size(), b);
}

std::vector<std::string> values_of(const SearchedLayouts& searched, const LayoutKey& key) {
  std::set<std::string> values;
  for (const LayoutOutcome& one : searched.outcomes) values.insert(key.text(searched, one));
  std::vector<std::string> sorted(values.begin(), values.end());
  std::ranges::stable_sort(sorted, comes_before);
  return sorted;
}

/// The outcomes of one cell.
struct Cell {
  const LayoutOutcome* best = nullptr;
  std::map<std::string, std::pair<std::int64_t, const LayoutOutcome*>> refused;  // by code

  void add(const LayoutOutcome& one) {
    if (one.state == State::refused) {
      auto& [count, example] = refused[one.code];
      ++count;
      if (example == nullptr) example = &one;
    } else if (best == nullptr || is_better(one, *best)) {
      best = &one;
    }
  }
  const LayoutOutcome* shown() const {
    if (best != nullptr || refused.empty()) return best;
    return std::ranges::max_element(refused, {}, [](const auto& one) { return one.second.first; })
        ->second.second;
  }
};

LayoutMap map_of(const SearchedLayouts& searched, const LayoutKey& row, const LayoutKey& column) {
  LayoutMap map{row.name, column.name, values_of(searched, row), values_of(searched, column), {}};
  std::map<std::pair<std::string, std::string>, Cell> cells;
  const auto has = [&](const LayoutKey& key, const LayoutOutcome& one, const std::string& value) {
    return !is_known(searched, key, one) || key.text(searched, one) == value;
  };
  for (const LayoutOutcome& one : searched.outcomes) {
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

std::vector<Decision> decisions_of(const SearchedLayouts& searched) {
  std::vector<Decision> decisions;
  if (searched.found.empty()) return decisions;
  const FoundLayout& front = searched.found.front();
  const LayoutOutcome best{front.layout, front.repeats, State::planned, front.seconds, ""};
  for (const LayoutKey& key : layout_keys()) {
    if (!key.applies(best.layout)) continue;
    const std::string taken = key.text(searched, best);
    const LayoutOutcome* next = nullptr;
    for (const LayoutOutcome& one : searched.outcomes) {
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

std::vector<LayoutMap> maps_of(const SearchedLayouts& searched) {
  return {map_of(searched, keys_of_sizes[0], keys_of_sizes[1]),
          map_of(searched, keys_of_sizes[2], keys_of_sizes[3])};
}

}  // namespace trainctl
