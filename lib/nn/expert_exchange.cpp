#include "nn/expert_exchange.h"

#include <numeric>
#include <vector>

#include "ops/rows.h"

namespace trainctl {

namespace {

/// When each chunk has come; kept by the thread, so that a step allocates nothing.
std::vector<Event>& arrivals() {
  thread_local std::vector<Event> events;
  return events;
}

ExpertCounts counts_of(const ExpertGroups& groups, const RoutedRows& routed) {
  return {.counts = routed.counts.as<std::int64_t>(),
          .ranks = groups.ep->size(),
          .experts = routed.counts.shape[1],
          .chunks = groups.ep->size() > 1 ? groups.chunks : 1,
          .rank = groups.ep->rank()};
}

}  // namespace

ExpertExchange::ExpertExchange(const Pass& pass, const ExpertGroups& groups,
                               const RoutedRows& routed)
    : pass_(pass), groups_(groups), routed_(routed), counts_(counts_of(groups, routed)) {}

void ExpertExchange::meet() const {
  if (alone()) return;
  pass_.ops->stream->synchronize();
  std::int32_t* place = routed_.place.as<std::int32_t>();
  for (std::int64_t chunk = 0; chunk < counts_.chunks; ++chunk) {
    for (std::int64_t sender = 0; sender < counts_.ranks; ++sender) {
      for_each({chunk, chunk + 1}, [&](const ExpertShare& share) {
        const std::int64_t expert = counts_.rank * counts_.held() + share.expert;
        std::int64_t begin = share.begin;
        for (std::int64_t r = 0; r < sender; ++r) begin += counts_.in(r, expert, chunk);
        const std::int64_t count = counts_.in(sender, expert, chunk);
        std::iota(place, place + count, static_cast<std::int32_t>(begin));
        place += count;
      });
    }
  }
}

/// What a chunk of one tensor goes through, where other ranks hold experts.
struct ExpertExchange::Through {
  Tensor sent;                             // in the order of the slots
  Tensor received;                         // rank after rank
  Tensor place;                            // of the received among the rows
  std::span<const std::int64_t> to, from;  // elements for each rank, and of each
};

ExpertExchange::Through ExpertExchange::through(const ExpertWay& way, std::int64_t chunk) const {
  const std::int64_t features = way.rows.shape[1];
  const bool weights = features == 1 && way.rows.dtype == DType::f32;
  const auto ranks = static_cast<std::size_t>(counts_.ranks);
  std::int64_t* to = routed_.exchanged.as<std::int64_t>();
  std::int64_t* from = to + ranks;
  for (std::int64_t rank = 0; rank < counts_.ranks; ++rank) {
    to[rank] = counts_.between(counts_.rank, rank, chunk) * features;
    from[rank] = counts_.between(rank, counts_.rank, chunk) * features;
  }
  const auto sent_before = [&](std::int64_t end) {
    std::int64_t rows = 0;
    for (std::int64_t e = 0; e < counts_.experts; ++e) rows += counts_.before(counts_.rank, e, end);
    return rows;
  };
  const auto received_before = [&](std::int64_t end) {
    std::int64_t rows = 0;
    for (std::int64_t e = 0; e < counts_.held(); ++e) rows += counts_.come_before(e, end);
    return rows;
  };
  const auto part = [&](const Tensor& all, const auto& before, std::int64_t columns) {
    const std::int64_t begin = before(chunk);
    const std::int64_t end = before(chunk + 1);
    return all.slice(begin, end).view({end - begin, columns});
  };
  return {.sent = part(weights ? routed_.sent_weight : routed_.sent, sent_before, features),
          .received =
              part(weights ? routed_.received_weight : routed_.received, received_before, features),
          .place = part(routed_.place, received_before, 1),
          .to = {to, ranks},
          .from = {from, ranks}};
}

namespace {

/// The slots of a tensor that has a row for each choice, or for each token.
Tensor slots_of(const RoutedRows& routed, const Tensor& of_choices) {
  const std::int64_t rows = of_choices.shape[0];
  return routed.slot.view({rows, routed.slot.numel() / rows});
}

/// Where the order of the slots is kept on the way.
Tensor in_slots(const RoutedRows& routed, const ExpertWay& way) {
  const bool weights = way.rows.shape[1] == 1 && way.rows.dtype == DType::f32;
  const Tensor& all = weights ? routed.sent_weight : routed.sent;
  return all.view({all.shape[0], way.rows.shape[1]});
}

}  // namespace

void ExpertExchange::send(std::span<const ExpertWay> ways) const {
  const OpContext& ops = *pass_.ops;
  for (const ExpertWay& way : ways) {
    spread_rows(ops, {.x = way.of_choices,
                      .slot = slots_of(routed_, way.of_choices),
                      .y = alone() ? way.rows : in_slots(routed_, way)});
  }
  if (alone()) return;
  arrivals().clear();
  wire().wait(ops.stream->record());
  for (std::int64_t chunk = 0; chunk < counts_.chunks; ++chunk) {
    for (const ExpertWay& way : ways) {
      const Through by = through(way, chunk);
      groups_.ep->all_to_all(by.sent, by.to, by.received, by.from, wire());
    }
    arrivals().push_back(wire().record());
  }
}

void ExpertExchange::take(std::span<const ExpertWay> ways, std::int64_t chunk) const {
  if (alone()) return;
  Reshard::await(pass_, arrivals()[static_cast<std::size_t>(chunk)]);
  for (const ExpertWay& way : ways) {
    const Through by = through(way, chunk);
    spread_rows(*pass_.ops, {.x = by.received, .slot = by.place, .y = way.rows});
  }
}

void ExpertExchange::give(std::span<const ExpertWay> ways, std::int64_t chunk) const {
  if (alone()) return;
  for (const ExpertWay& way : ways) {
    const Through by = through(way, chunk);
    collect_rows(*pass_.ops, {.x = way.rows, .slot = by.place, .y = by.received});
    wire().wait(pass_.ops->stream->record());
    groups_.ep->all_to_all(by.received, by.from, by.sent, by.to, wire());
  }
}

void ExpertExchange::finish(std::span<const ExpertWay> ways) const {
  if (ways.empty()) return;
  if (!alone()) Reshard::await(pass_, wire().record());
  for (const ExpertWay& way : ways) {
    collect_rows(*pass_.ops, {.x = alone() ? way.rows : in_slots(routed_, way),
                              .slot = slots_of(routed_, way.of_choices),
                              .y = way.of_choices});
  }
}

}  // namespace trainctl
