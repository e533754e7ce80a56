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

std::string cut_text(const RunArrangement& layout) {
  if (layout.first_layers > 0) {
    return std::to_string(layout.first_layers) + " first, " + std::to_string(layout.last_layers) +
           " last";
  }
  if (layout.counts_embedding && layout.counts_loss) return "even with embedding and loss";
  if (layout.counts_embedding) return "even with the embedding";
  return layout.counts_loss ? "even with the loss" : "even";
}

struct ArrangementKey {
  std::string name;
  std::function<std::string(const SearchedArrangements&, const ArrangementOutcome&)> text;
  bool (*applies)(const RunArrangement&) = [](const RunArrangement&) { return true; };
};

template <std::int64_t RunArrangement::*value>
std::string number_text(const SearchedArrangements&, const ArrangementOutcome& one) {
  return std::to_string(one.layout.*value);
}

const std::vector<ArrangementKey> keys_of_sizes{
    {"tensor_parallel", number_text<&RunArrangement::tensor_parallel>},
    {"pipeline_stages", number_text<&RunArrangement::stages>},
    {"micro_batch_size", number_text<&RunArrangement::micro_batch_size>},
    {"recompute",
     [](const SearchedArrangements& searched, const ArrangementOutcome& one) -> std::string {
       if (!searched.free.recompute) return searched.recompute;
       return one.repeats ? "auto" : "none";
     }},
    {"context_parallel", number_text<&RunArrangement::context_parallel>},
    {"expert_parallel", number_text<&RunArrangement::expert_parallel>},
    {"virtual_pipeline_stages", number_text<&RunArrangement::chunks>},
    {"parallel_optimizer",
     [](const SearchedArrangements&, const ArrangementOutcome& one) -> std::string {
       const int level = one.layout.optimizer_level;
       return level == 0 ? "off" : "level" + std::to_string(level);
     }},
    {"stage_layers", [](const SearchedArrangements&,
                        const ArrangementOutcome& one) { return cut_text(one.layout); }},
};

/// Keys of sizes, then those of axes.
std::vector<ArrangementKey> layout_keys() {
  std::vector<ArrangementKey> keys = keys_of_sizes;
  for (const ArrangementAxis& axis : layout_axes()) {
    keys.push_back({std::string(axis.key),
                    [&axis](const SearchedArrangements&, const ArrangementOutcome& one) {
                      return axis.word(one.layout);
                    },
                    axis.applies});
  }
  return keys;
}

/// Orders outcomes that are not refused: planned before bounded ones, then by seconds.
bool is_better(const ArrangementOutcome& a, const ArrangementOutcome& b) {
  return std::tuple(!a.planned, a.seconds, a.layout) < std::tuple(!b.planned, b.seconds, b.layout);
}

/// Before planning, a layout's use of recomputation is open: a bound or refusal covers both cases.
bool is_known(const SearchedArrangements& searched, const ArrangementKey& key,
              const ArrangementOutcome& one) {
  return one.planned || !searched.free.recompute || key.name != "recompute";
}

/// Orders numbers in texts: "2" before "16".
bool comes_before(const std::string& a, const std::string& b) {
  return std::pair(a.size(), a) < std::pair(b.size(), b);
}

std::vector<std::string> values_of(const SearchedArrangements& searched,
                                   const ArrangementKey& key) {
  std::set<std::string> values;
  for (const ArrangementOutcome& one : searched.outcomes) values.insert(key.text(searched, one));
  std::vector<std::string> sorted(values.begin(), values.end());
  std::ranges::stable_sort(sorted, comes_before);
  return sorted;
}

/// The outcomes in one cell of a map.
struct Cell {
  const ArrangementOutcome* best = nullptr;
  std::map<std::string, std::pair<std::int64_t, const ArrangementOutcome*>> refused;  // by code

  void add(const ArrangementOutcome& one) {
    if (one.refused()) {
      auto& [count, example] = refused[one.code];
      ++count;
      if (example == nullptr) example = &one;
    } else if (best == nullptr || is_better(one, *best)) {
      best = &one;
    }
  }
  const ArrangementOutcome* shown() const {
    if (best != nullptr || refused.empty()) return best;
    return std::ranges::max_element(refused, {}, [](const auto& one) { return one.second.first; })
        ->second.second;
  }
};

ArrangementMap map_of(const SearchedArrangements& searched, const ArrangementKey& row,
                      const ArrangementKey& column) {
  ArrangementMap map{
      row.name, column.name, values_of(searched, row), values_of(searched, column), {}};
  std::map<std::pair<std::string, std::string>, Cell> cells;
  const auto has = [&](const ArrangementKey& key, const ArrangementOutcome& one,
                       const std::string& value) {
    return !is_known(searched, key, one) || key.text(searched, one) == value;
  };
  for (const ArrangementOutcome& one : searched.outcomes) {
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

std::vector<Decision> decisions_of(const SearchedArrangements& searched) {
  std::vector<Decision> decisions;
  if (searched.found.empty()) return decisions;
  const FoundArrangement& front = searched.found.front();
  const ArrangementOutcome best{front.layout, front.repeats, true, front.seconds};
  for (const ArrangementKey& key : layout_keys()) {
    if (!key.applies(best.layout)) continue;
    const std::string taken = key.text(searched, best);
    const ArrangementOutcome* next = nullptr;
    for (const ArrangementOutcome& one : searched.outcomes) {
      if (one.refused() || !is_known(searched, key, one)) continue;
      if (!key.applies(one.layout)) continue;
      if (key.text(searched, one) == taken) continue;
      if (next == nullptr ||
          std::pair(one.seconds, !one.planned) < std::pair(next->seconds, !next->planned)) {
        next = &one;
      }
    }
    if (next != nullptr) decisions.push_back({key.name, taken, key.text(searched, *next), *next});
  }
  std::ranges::stable_sort(decisions, std::ranges::greater{},
                           [](const Decision& one) { return one.layout.seconds; });
  return decisions;
}

std::vector<ArrangementMap> maps_of(const SearchedArrangements& searched) {
  return {map_of(searched, keys_of_sizes[0], keys_of_sizes[1]),
          map_of(searched, keys_of_sizes[2], keys_of_sizes[3])};
}

}  // namespace trainctl
