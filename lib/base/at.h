// Access to list elements by signed integers and enumerators.
#pragma once

#include <cassert>
#include <cstddef>
#include <iterator>

namespace trainctl {

/// list[index], where `index` is an integer or an enumerator in [0, size).
template <class List, class Index>
constexpr decltype(auto) at(List&& list, Index index) {
  const auto place = static_cast<std::size_t>(index);
  assert(place < std::size(list));
  return list[place];
}

}  // namespace trainctl
