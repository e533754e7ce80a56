#include "engine/feed.h"

#include <cassert>
#include <cstring>
#include <vector>

namespace trainctl {

namespace {

template <class T>
void fill(const Tensor& to, const std::vector<T>& from, std::int64_t first) {
  if (to.empty()) return;  // this stage has no use for it
  assert(first + to.numel() <= std::ssize(from));
  std::memcpy(to.as<T>(), from.data() + first, static_cast<std::size_t>(to.bytes()));
}

}  // namespace

void feed(const Batch& batch, const Share& share, const BatchTensors& to) {
  const bool fed_all = std::ssize(batch.tokens) > share.tokens;
  const std::int64_t first = fed_all ? share.replica * share.tokens : 0;
  fill(to.tokens, batch.tokens, first);
  fill(to.labels, batch.labels, first);
  fill(to.position, batch.position, first);
  fill(to.document, batch.document, first);
  fill(to.global_token, batch.global_token, first);
  fill(to.loss_weight, batch.loss_weight, first);
}

}  // namespace trainctl
