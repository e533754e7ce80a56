// How rows get to the ranks of their experts and back.
#include <algorithm>
#include <numeric>
#include <span>

#include "nn/experts.h"
#include "ops/rows.h"

namespace trainctl {

namespace {

std::span<std::int64_t> numbers_of(const Tensor& x) {
  return {x.as<std::int64_t>(), static_cast<std::size_t>(x.numel())};
}

/// Row `index` of RoutedRows::exchanged.
std::span<std::int64_t> counts_of(const RoutedRows& routed, std::int64_t index) {
  return numbers_of(routed.exchanged.slice(index, index + 1));
}

}  // namespace

std::int64_t Experts::rows_sent(const Saved& saved) const {
  const Tensor own = saved.routed.counts.slice(groups.ep->rank(), groups.ep->rank() + 1);
  const std::span<std::int64_t> counts = numbers_of(own);
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

void Experts::meet(const Pass& pass, const Saved& saved) const {
  if (groups.ep->size() == 1) return;
  pass.ops->stream->synchronize();
  const RoutedRows& routed = saved.routed;
  const std::int64_t experts = routed.counts.shape[1];
  const std::int64_t held = experts / groups.ep->size();
  const auto count = [&](std::int64_t rank, std::int64_t expert) {
    return routed.counts.as<std::int64_t>()[rank * experts + expert];
  };
  std::int32_t* place = routed.place.as<std::int32_t>();
  for (int rank = 0; rank < groups.ep->size(); ++rank) {
    std::int64_t sent = 0;
    for (std::int64_t e = 0; e < held; ++e) sent += count(groups.ep->rank(), rank * held + e);
    std::int64_t received = 0;
    for_each(saved, [&](const Share& share) {
      const std::int64_t expert = groups.ep->rank() * held + share.expert;
      std::int64_t begin = share.begin;
      for (int before = 0; before < rank; ++before) begin += count(before, expert);
      std::iota(place, place + count(rank, expert), static_cast<std::int32_t>(begin));
      place += count(rank, expert);
      received += count(rank, expert);
    });
    const auto at = static_cast<std::size_t>(rank);
    counts_of(routed, 0)[at] = sent;
    counts_of(routed, 1)[at] = received;
  }
}

/// What one exchange goes through. Rows of one element are weights.
struct Experts::Buffers {
  Tensor slot;      // of `of_choices`
  Tensor sent;      // in the order of the slots
  Tensor received;  // rank after rank
  Tensor place;     // of the received among the rows
  std::int64_t features = 1;
};

Experts::Buffers Experts::buffers(const Saved& saved, const Tensor& rows,
                                  const Tensor& of_choices) const {
  const RoutedRows& routed = saved.routed;
  const std::int64_t tokens = of_choices.shape[0];
  Buffers made;
  made.features = rows.shape[1];
  made.slot = routed.slot.view({tokens, routed.slot.numel() / tokens});
  if (groups.ep->size() == 1) return made;
  const bool weights = rows.shape[1] == 1 && rows.dtype == DType::f32;
  const auto first = [&](const Tensor& x, std::int64_t count) {
    return x.slice(0, count).view({count, made.features});
  };
  const std::int64_t here = rows_here(saved);
  made.sent = first(weights ? routed.sent_weight : routed.sent, rows_sent(saved));
  made.received = first(weights ? routed.received_weight : routed.received, here);
  made.place = routed.place.slice(0, here).view({here, 1});
  for (std::int64_t way = 0; way < 2; ++way) {
    const std::span<std::int64_t> elements = counts_of(routed, 2 + way);
    std::ranges::transform(counts_of(routed, way), elements.begin(),
                           [&](std::int64_t count) { return count * made.features; });
  }
  return made;
}

void Experts::dispatch(const Pass& pass, const Saved& saved, const Tensor& of_choices,
                       const Tensor& rows) const {
  const Buffers through = buffers(saved, rows, of_choices);
  const bool alone = groups.ep->size() == 1;
  spread_rows(*pass.ops, {.x = of_choices, .slot = through.slot, .y = alone ? rows : through.sent});
  if (alone) return;
  groups.ep->all_to_all(through.sent, counts_of(saved.routed, 2), through.received,
                        counts_of(saved.routed, 3), *pass.ops->stream);
  spread_rows(*pass.ops, {.x = through.received, .slot = through.place, .y = rows});
}

void Experts::combine(const Pass& pass, const Saved& saved, const Tensor& rows,
                      const Tensor& of_choices) const {
  const Buffers through = buffers(saved, rows, of_choices);
  const bool alone = groups.ep->size() == 1;
  if (!alone) {
    collect_rows(*pass.ops, {.x = rows, .slot = through.place, .y = through.received});
    groups.ep->all_to_all(through.received, counts_of(saved.routed, 3), through.sent,
                          counts_of(saved.routed, 2), *pass.ops->stream);
  }
  collect_rows(*pass.ops,
               {.x = alone ? rows : through.sent, .slot = through.slot, .y = of_choices});
}

}  // namespace trainctl
