// How the tokens of a layer get to the ranks of their experts and back.
#pragma once

#include <cstdint>

namespace trainctl {

struct ExchangeRule {
  // In so many parts, each on its way beside the products of another (moe.comp_comm_parallel).
  std::int64_t chunks = 1;
};

}  // namespace trainctl
