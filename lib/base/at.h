// Elements by the signed numbers and enumerators that the code counts with.
#pragma once

#include <cassert>
#include <cstddef>
#include <iterator>

namespace trainctl {

/// list[index]; `index` is an integer or an enumerator from 0 to the list's size.
template <class List, class Index>
constexpr decltype(auto) at(List&& list, Index index) {
  const auto place = static_cast<std::size_t>(index);
  assert(place < std::size(list));
  return list[place];
}

}  // namespace trainctl
