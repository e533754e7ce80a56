#include "plan/search/propagation.h"

#include <algorithm>

namespace trainctl {

SearchedSplits propagate(const SearchedSplits& configured, const std::vector<bool>& has_experts) {
  SearchedSplits splits = configured;
  std::vector<std::optional<SplitBy>*> order{&splits.embedding};
  for (std::size_t layer = 0; layer < splits.attention.size(); ++layer) {
    order.push_back(&splits.attention[layer]);
    if (!has_experts[layer]) order.push_back(&splits.feed_forward[layer]);
  }
  order.push_back(&splits.head);

  const auto first = std::ranges::find_if(order, [](const auto* one) { return one->has_value(); });
  SplitBy nearest = (*first)->value();
  const SplitBy before = nearest == SplitBy::tokens ? SplitBy::tokens : SplitBy::whole;
  std::for_each(order.begin(), first, [&](auto* one) { *one = before; });
  for (auto one = first; one != order.end(); ++one) {
    if ((*one)->has_value()) {
      nearest = (*one)->value();
    } else {
      **one = nearest == SplitBy::tokens ? SplitBy::tokens : SplitBy::features;
    }
  }
  return splits;
}

}  // namespace trainctl
