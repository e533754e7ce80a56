#include "plan/schedule/schedule.h"

namespace trainctl {

std::vector<Action> in_turns(const std::vector<Action>& one, const std::vector<Action>& other) {
  std::vector<Action> rows;
  rows.reserve(one.size() + other.size());
  const std::vector<Action>* passes[] = {&one, &other};
  std::size_t next[] = {0, 0};
  while (rows.size() < one.size() + other.size()) {
    for (const int pass : {0, 1}) {
      const std::vector<Action>& mine = *passes[pass];
      bool under_way = false;
      while (!under_way && next[pass] < mine.size()) {
        rows.push_back(mine[next[pass]++]);
        under_way = rows.back().sends_rows();
      }
    }
  }
  return rows;
}

}  // namespace trainctl
