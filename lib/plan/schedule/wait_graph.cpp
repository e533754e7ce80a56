#include "plan/schedule/wait_graph.h"

#include <algorithm>
#include <cstdint>

#include "base/at.h"

namespace trainctl {

int WaitGraph::add(double cost) {
  cost_.push_back(cost);
  return static_cast<int>(cost_.size()) - 1;
}

void WaitGraph::raise_cost(int point, double cost) {
  double& now = at(cost_, point);
  now = std::max(now, cost);
}

void WaitGraph::wait(int point, int earlier) {
  if (earlier == none) return;
  from_.push_back(earlier);
  to_.push_back(point);
}

/// Groups the edges by their start and counts the edges that end at each point.
void WaitGraph::index_edges() {
  waits_.assign(cost_.size(), 0);
  first_.assign(cost_.size() + 1, 0);
  for (const int from : from_) ++first_[static_cast<std::size_t>(from) + 1];
  for (const int to : to_) ++at(waits_, to);
  for (std::size_t i = 1; i < first_.size(); ++i) first_[i] += first_[i - 1];
  targets_.resize(to_.size());
  std::vector<std::size_t> next(first_.begin(), first_.end() - 1);
  for (std::size_t edge = 0; edge < from_.size(); ++edge) {
    targets_[at(next, from_[edge])++] = to_[edge];
  }
}

bool WaitGraph::play() {
  index_edges();
  start_.assign(cost_.size(), 0.0);
  std::vector<int> ready;
  for (std::size_t point = 0; point < waits_.size(); ++point) {
    if (waits_[point] == 0) ready.push_back(static_cast<int>(point));
  }
  std::size_t played = 0;
  while (!ready.empty()) {
    const auto point = static_cast<std::size_t>(ready.back());
    ready.pop_back();
    ++played;
    const double finish = start_[point] + cost_[point];
    for (std::size_t edge = first_[point]; edge < first_[point + 1]; ++edge) {
      const auto target = static_cast<std::size_t>(targets_[edge]);
      start_[target] = std::max(start_[target], finish);
      if (--waits_[target] == 0) ready.push_back(static_cast<int>(target));
    }
  }
  return played == cost_.size();
}

/// The points that never start and for which other such points wait: cycles and points between
/// cycles.
std::vector<int> WaitGraph::stuck_points() const {
  std::vector<int> waiting_for_it(cost_.size(), 0);
  for (std::size_t edge = 0; edge < from_.size(); ++edge) {
    const bool stuck = at(waits_, from_[edge]) > 0;
    if (stuck) ++at(waiting_for_it, from_[edge]);
  }
  std::vector<int> points;
  for (std::size_t point = 0; point < cost_.size(); ++point) {
    if (waits_[point] > 0 && waiting_for_it[point] > 0) points.push_back(static_cast<int>(point));
  }
  return points;
}

std::vector<int> WaitGraph::shortest_cycle() const {
  // Breadth-first search from every stuck point, not deeper than the best cycle so far. The budget
  // bounds the search if all cycles are long; the result then may not be the shortest.
  std::int64_t budget = 50'000'000;
  std::vector<int> best;
  std::vector<int> seen(cost_.size(), none);  // start of the search that saw the point
  std::vector<int> before(cost_.size(), none);
  std::vector<int> depth(cost_.size(), 0);
  std::vector<int> queue;
  const auto search = [&](int start) {
    queue.assign(1, start);
    at(depth, start) = 1;
    for (std::size_t head = 0; head < queue.size(); ++head) {
      const auto point = static_cast<std::size_t>(queue[head]);
      if (!best.empty() && depth[point] >= static_cast<int>(best.size())) return;
      for (std::size_t edge = first_[point]; edge < first_[point + 1]; ++edge, --budget) {
        const int target = targets_[edge];
        const auto at = static_cast<std::size_t>(target);
        if (target == start) {
          best.clear();
          for (int i = queue[head]; i != start; i = before[static_cast<std::size_t>(i)]) {
            best.push_back(i);
          }
          best.push_back(start);
          std::reverse(best.begin(), best.end());
          return;
        }
        if (waits_[at] == 0 || seen[at] == start) continue;
        seen[at] = start;
        before[at] = static_cast<int>(point);
        depth[at] = depth[point] + 1;
        queue.push_back(target);
      }
    }
  };
  for (const int start : stuck_points()) {
    search(start);
    if (budget < 0 && !best.empty()) break;
  }
  return best;
}

}  // namespace trainctl
