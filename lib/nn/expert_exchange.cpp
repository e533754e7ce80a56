#include "nn/expert_exchange.h"

#include <array>
#include <numeric>
#include <vector>

#include "comm/group.h"
#include "ops/rows.h"

namespace trainctl {

namespace {

/// The transfers of one pass that have not completed.
struct InFlight {
  std::vector<Event> arrivals;  // one per chunk, recorded when its rows have arrived
  Event returned;               // recorded when the last chunk's results are back
};

/// Reused by the thread, so that a step allocates nothing.
InFlight& under_way(bool backward) {
  thread_local std::array<InFlight, 2> both;
  return both[backward ? 1 : 0];
}

ExpertCounts counts_of(const ExpertGroups& groups, const RoutedRows& routed) {
  ExpertCounts counts{.counts = routed.counts.as<std::int64_t>(),
                      .ranks = groups.ep->size(),
                      .experts = routed.counts.shape[1],
                      .rank = groups.ep->rank()};
  if (groups.parts != nullptr) {
    counts.parts = groups.parts->size();
    counts.part = groups.parts->rank();
  }
  if (counts.senders() > 1) counts.chunks = groups.chunks;
  return counts;
}

/// Whether `way` has rows of one fp32 element: weights of choices.
bool are_weights(const ExchangedTensor& way) {
  return way.rows.shape[1] == 1 && way.rows.dtype == DType::f32;
}

/// The buffer that holds the rows to send, ordered by slot.
Tensor in_slots(const RoutedRows& routed, const ExchangedTensor& way) {
  const Tensor& all = are_weights(way) ? routed.sent_weight : routed.sent;
  return all.view({all.shape[0], way.rows.shape[1]});
}

}  // namespace

ExpertExchange::ExpertExchange(const Pass& pass, const ExpertGroups& groups,
                               const RoutedRows& routed, bool backward)
    : pass_(pass),
      groups_(groups),
      routed_(routed),
      backward_(backward),
      counts_(counts_of(groups, routed)) {}

Reshard ExpertExchange::parts() const {
  const bool beside = groups_.beside != nullptr;
  return {.group = groups_.parts,
          .way = {.from = Layout::tokens,
                  .to = Layout::replicated,
                  .forward_whole = beside,
                  .backward_whole = beside},
          .sum = routed_.sum,
          .beside = groups_.beside};
}

Tensor ExpertExchange::share_of(const Tensor& x) const {
  return groups_.slices == nullptr ? x : local_rows(*groups_.slices, x);
}

Tensor ExpertExchange::slots_of(const Tensor& share) const {
  const Tensor slots = share_of(routed_.slot);
  return slots.view({share.shape[0], slots.numel() / share.shape[0]});
}

Range ExpertExchange::sent() const {
  const std::int64_t tokens = routed_.logits.shape[0];
  if (groups_.slices == nullptr) return {0, tokens};
  const std::int64_t count = tokens / groups_.slices->size();
  return {groups_.slices->rank() * count, (groups_.slices->rank() + 1) * count};
}

void ExpertExchange::share_counts() const {
  Stream& stream = *pass_.ops->stream;
  const std::int64_t first = counts_.sender(counts_.part, 0);
  const Tensor of_part = routed_.sent_counts.slice(first, first + counts_.ranks);
  if (counts_.ranks > 1) {
    groups_.ep_counts->all_gather(of_part.slice(counts_.rank, counts_.rank + 1), of_part, stream);
  }
  if (counts_.parts > 1) groups_.parts_counts->all_gather(of_part, routed_.sent_counts, stream);
  stream.copy(routed_.counts, routed_.sent_counts);
  await(stream.record(), pass_.deadline_seconds, [] { return "the count of routed tokens"; });
  if (!alone()) find_places();
}

/// Earlier copies from routed_.places are complete, because the counts were awaited after them.
void ExpertExchange::find_places() const {
  std::int32_t* place = routed_.places.as<std::int32_t>();
  for (std::int64_t chunk = 0; chunk < counts_.chunks; ++chunk) {
    const std::int64_t room = counts_.room(chunk);
    for (std::int64_t from = 0; from < counts_.senders(); ++from) {
      for_each({chunk, chunk + 1}, [&](std::int64_t held, const Range& rows) {
        const std::int64_t expert = counts_.rank * counts_.held() + held;
        std::int64_t begin = rows.begin;
        for (std::int64_t s = 0; s < from; ++s) begin += counts_.in(s, expert, chunk);
        const std::int64_t count = counts_.in(from, expert, chunk);
        std::iota(place, place + count, static_cast<std::int32_t>(begin));
        place += count;
      });
      if ((from + 1) % counts_.ranks != 0) continue;
      const std::int64_t free = room - counts_.come_to(from / counts_.ranks, chunk);
      std::fill_n(place, free, -1);
      place += free;
    }
  }
}

/// The tensors through which a chunk of one exchanged tensor passes, if other ranks hold experts or
/// parts of experts.
struct ExpertExchange::ExchangeRun {
  Tensor sent;      // rows of this rank, ordered by slot
  Tensor gathered;  // received rows of all parts, ordered by rank, each part padded to room()
  Tensor place;     // destination row of each gathered row; -1 for padding
  Tensor own;       // this part's range of `gathered`
  Tensor received;  // the rows of `own` without padding
  std::span<const std::int64_t> to, from;  // elements sent to and received from each rank
};

ExpertExchange::ExchangeRun ExpertExchange::through(const ExchangedTensor& way,
                                                    std::int64_t chunk) const {
  const std::int64_t features = way.rows.shape[1];
  const auto ranks = static_cast<std::size_t>(counts_.ranks);
  std::int64_t* to = routed_.exchanged.as<std::int64_t>();
  std::int64_t* from = to + ranks;
  for (std::int64_t rank = 0; rank < counts_.ranks; ++rank) {
    to[rank] = counts_.between(counts_.own(), rank, chunk) * features;
    from[rank] =
        counts_.between(counts_.sender(counts_.part, rank), counts_.rank, chunk) * features;
  }
  const std::int64_t room = counts_.room(chunk);
  const std::int64_t first = counts_.room_before(chunk);
  const Tensor& all = are_weights(way) ? routed_.received_weight : routed_.received;
  const auto rows = [](const Tensor& x, std::int64_t begin, std::int64_t end, std::int64_t width) {
    return x.slice(begin, end).view({end - begin, width});
  };
  ExchangeRun made{
      .sent =
          in_slots(routed_, way).slice(counts_.sent_before(chunk), counts_.sent_before(chunk + 1)),
      .gathered = rows(all, first, first + counts_.parts * room, features),
      .place = rows(routed_.place, first, first + counts_.parts * room, 1),
      .own = {},
      .received = {},
      .to = {to, ranks},
      .from = {from, ranks}};
  made.own = made.gathered.slice(counts_.part * room, (counts_.part + 1) * room);
  made.received = made.own.slice(0, counts_.come_to(counts_.part, chunk));
  return made;
}

void ExpertExchange::send(std::span<const ExchangedTensor> ways) const {
  const OpContext& ops = *pass_.ops;
  for (const ExchangedTensor& way : ways) {
    const Tensor share = share_of(way.of_choices);
    spread_rows(
        ops,
        {.x = share, .slot = slots_of(share), .y = alone() ? way.rows : in_slots(routed_, way)});
  }
  if (alone()) return;
  const std::int64_t rows = counts_.room_before(counts_.chunks);
  ops.stream->copy(routed_.place.slice(0, rows), routed_.places.slice(0, rows));
  std::vector<Event>& arrivals = under_way(backward_).arrivals;
  arrivals.clear();
  wire().wait(ops.stream->record());
  for (std::int64_t chunk = 0; chunk < counts_.chunks; ++chunk) {
    for (const ExchangedTensor& way : ways) {
      const ExchangeRun by = through(way, chunk);
      groups_.ep->all_to_all(by.sent, by.to, by.received, by.from, wire());
      if (counts_.parts > 1) parts().start_forward(pass_, by.own, by.gathered);
    }
    arrivals.push_back(wire().record());
  }
}

void ExpertExchange::take(std::span<const ExchangedTensor> ways, std::int64_t chunk) const {
  if (alone()) return;
  Reshard::await(pass_, under_way(backward_).arrivals[static_cast<std::size_t>(chunk)]);
  for (const ExchangedTensor& way : ways) {
    const ExchangeRun by = through(way, chunk);
    spread_rows(*pass_.ops, {.x = by.gathered, .slot = by.place, .y = way.rows});
  }
}

void ExpertExchange::give(std::span<const ExchangedTensor> ways, std::int64_t chunk) const {
  if (alone()) return;
  for (const ExchangedTensor& way : ways) {
    const ExchangeRun by = through(way, chunk);
    collect_rows(*pass_.ops, {.x = way.rows, .slot = by.place, .y = by.gathered});
    wire().wait(pass_.ops->stream->record());
    if (counts_.parts > 1) parts().start_backward(pass_, by.gathered, by.own);
    groups_.ep->all_to_all(by.received, by.from, by.sent, by.to, wire());
  }
  if (chunk + 1 == counts_.chunks) under_way(backward_).returned = wire().record();
}

void ExpertExchange::finish(std::span<const ExchangedTensor> ways) const {
  if (ways.empty()) return;
  if (!alone()) Reshard::await(pass_, under_way(backward_).returned);
  for (const ExchangedTensor& way : ways) {
    const Tensor share = share_of(way.of_choices);
    if (groups_.slices != nullptr) pass_.ops->stream->zero(way.of_choices);
    collect_rows(
        *pass_.ops,
        {.x = alone() ? way.rows : in_slots(routed_, way), .slot = slots_of(share), .y = share});
  }
}

}  // namespace trainctl
