#include "plan/ownership/ownership.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "base/at.h"
#include "plan/gradients/buckets.h"
#include "plan/gradients/gathers.h"
#include "plan/rules/resolve.h"
#include "plan/tables/mesh.h"
#include "plan/tables/shard.h"

namespace trainctl {

namespace {

using Ranks = std::vector<int>;

std::int64_t place_of(const Ranks& ranks, std::int64_t rank) {
  return std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin();
}

/// The number of tensor-parallel ranks that hold the same values.
std::int64_t tensor_copies(const ParamSpec& parameter, const Mesh& mesh) {
  if (parameter.expert) return 1;
  const bool cut = at(parameter.split_dim, Axis::tp) >= 0;
  return cut ? parameter.tp_copies : mesh.tp;
}

/// All ranks of the stage that hold the same values.
Ranks replica_ranks(const Ranks& data, std::int64_t copies, const Mesh& mesh, std::int64_t rank) {
  const std::int64_t own = mesh.coordinate(rank, Axis::tp) % copies;
  Ranks ranks;
  ranks.reserve(data.size() * static_cast<std::size_t>(copies));
  for (const int one : data) {
    for (std::int64_t copy = 0; copy < copies; ++copy) {
      ranks.push_back(static_cast<int>(one + (copy - own) * mesh.stride(Axis::tp)));
    }
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

/// The length of the shortest prefix of which the list is a repetition.
std::size_t period_of(const std::vector<std::int64_t>& list) {
  for (std::size_t period = 1; period < list.size(); ++period) {
    const auto second = list.begin() + static_cast<std::ptrdiff_t>(period);
    const bool divides = list.size() % period == 0;
    if (divides && std::equal(second, list.end(), list.begin())) return period;
  }
  return list.size();
}

/// How slices are distributed over the ranks of a sum: `period` neighbours have equal ranges of
/// `step` consecutive slices, from slice `first` on. If period is 1, there is no such order.
struct Stretches {
  std::size_t period = 1;
  std::int64_t step = 1;
  std::int64_t first = 0;
};

/// slices[i], out of `count`, is held by the i-th rank.
Stretches stretches_of(const std::vector<std::int64_t>& slices, std::int64_t count) {
  const std::size_t period = period_of(slices);
  const std::int64_t step = period > 1 ? slices[1] - slices[0] : 1;
  const std::int64_t first = step > 0 ? slices[0] - slices[0] % step : 0;
  bool even = step > 0 && first + static_cast<std::int64_t>(period) * step <= count;
  for (std::size_t i = 0; i < period && even; ++i) {
    even = slices[i] == slices[0] + static_cast<std::int64_t>(i) * step;
  }
  return even ? Stretches{period, step, first} : Stretches{1, count, 0};
}

/// Sets up a sum over `data`: a reduce-scatter over neighbours, then a sum of their results;
/// without stretches, one sum over all.
void route_sums(ShardRoute& route, const Ranks& data, const Stretches& stretches,
                std::int64_t rank) {
  const std::size_t period = stretches.period;
  route.first = stretches.first;
  route.step = stretches.step;
  const auto place = static_cast<std::size_t>(place_of(data, rank));
  const std::size_t begin = place - place % period;
  for (std::size_t i = begin; i < begin + period; ++i) route.scatter.push_back(data[i]);
  for (std::size_t i = place % period; i < data.size(); i += period) {
    route.mirror.push_back(data[i]);
  }
}

/// The stretches of the ranks `data`. None if another tensor-parallel copy would be summed in a
/// different order, because all owners of a slice must have bit-identical sums.
Stretches common_stretches(const Ranks& replicas, const Ranks& data, std::int64_t copies,
                           std::int64_t slices, const Mesh& mesh, std::int64_t rank) {
  const std::int64_t own = mesh.coordinate(rank, Axis::tp) % copies;
  std::optional<Stretches> mine;
  bool alike = true;
  std::size_t period = 0;
  for (std::int64_t copy = 0; copy < copies; ++copy) {
    std::vector<std::int64_t> held;
    for (const int one : data) {
      const std::int64_t other = one + (copy - own) * mesh.stride(Axis::tp);
      held.push_back(place_of(replicas, other) % slices);
    }
    const Stretches found = stretches_of(held, slices);
    alike = alike && (copy == 0 || found.period == period);
    period = found.period;
    if (copy == own) mine = found;
  }
  return alike ? *mine : Stretches{1, slices, 0};
}

void name_groups(ShardRoute& route, const ParamSpec& parameter, const Mesh& mesh, std::size_t data,
                 std::int64_t copies) {
  const GroupKind axes = replicas_kind(mesh, parameter.expert);
  GroupKind all = axes;
  if (copies > 1) {
    all = copies == mesh.tp ? tensor_group : shared_keys_group;
    if (data > 1) all.axes |= axes.axes;
  }
  const auto part = [](GroupKind kind, std::size_t ranks, std::size_t most) {
    if (ranks < most) kind.part = GroupPart::shard;
    return kind;
  };
  route.scatter_kind = part(axes, route.scatter.size(), data);
  route.mirror_kind = axes;
  if (route.mirror.size() < data) route.mirror_kind.part = GroupPart::mirror;
  route.gather_kind = part(all, route.gather.size(), data * static_cast<std::size_t>(copies));
}

ShardRoute make_route(const ParamSpec& parameter, std::int64_t slices, const Ranks& data,
                      const Mesh& mesh, std::int64_t rank) {
  const std::int64_t copies = tensor_copies(parameter, mesh);
  const Ranks replicas = replica_ranks(data, copies, mesh, rank);
  const std::int64_t place = place_of(replicas, rank);
  ShardRoute route;
  route.slices = slices;
  route.slice = place % slices;
  route.copies = std::ssize(replicas) / slices;
  route.copy = place / slices;
  const auto begin = replicas.begin() + (place - route.slice);
  route.gather.assign(begin, begin + slices);
  route_sums(route, data, common_stretches(replicas, data, copies, slices, mesh, rank), rank);
  name_groups(route, parameter, mesh, data.size(), copies);
  return route;
}

class Table {
 public:
  Table(const Plan& plan, std::int64_t rank)
      : mesh_(plan.mesh),
        stage_(plan.stage_of(rank)),
        rank_(rank),
        data_(data_ranks(plan.mesh, rank)) {}

  OwnershipTable make() {
    for (std::size_t i = 0; i < stage_.parameters.size(); ++i) {
      table_.parameters.push_back(one(stage_.parameters[i], stage_.shards[i]));
      table_.divided = table_.divided || stage_.shards[i].kind != ShardKind::whole;
    }
    for (const Bucket& bucket : stage_.flat.buckets) place(bucket);
    if (!table_.divided) table_.state_length = stage_.flat.length;
    return std::move(table_);
  }

 private:
  Ownership one(const ParamSpec& parameter, const OptimizerShard& shard) {
    const Slice whole{0, parameter.shape.numel()};
    Ownership own{.scattered = whole, .summed = whole, .owned = whole};
    own.counts = counts_over_tensor_ranks(parameter, mesh_, rank_);
    switch (shard.kind) {
      case ShardKind::bucket: own.summed = own.owned = {}; return own;  // see place()
      case ShardKind::rows: cut_rows(parameter, shard, own); return own;
      case ShardKind::dealt:
        if (mesh_.coordinate(rank_, Axis::dp) != shard.owner) own.owned = {};
        return own;
      case ShardKind::whole:
        own.counts = own.counts && data_[parameter.expert].front() == rank_;
        return own;
    }
    return own;
  }

  void cut_rows(const ParamSpec& parameter, const OptimizerShard& shard, Ownership& own) {
    const auto [found, fresh] =
        routes_.try_emplace({parameter.expert, tensor_copies(parameter, mesh_), shard.ranks},
                            static_cast<int>(table_.routes.size()));
    if (fresh) {
      const Ranks& data = data_[parameter.expert];
      table_.routes.push_back(make_route(parameter, shard.ranks, data, mesh_, rank_));
    }
    own.route = found->second;
    const ShardRoute& route = at(table_.routes, own.route);
    const std::int64_t part = parameter.shape.numel() / route.slices;
    const std::int64_t ranks = static_cast<std::int64_t>(route.scatter.size());
    const std::int64_t at = place_of(route.scatter, rank_);
    const std::int64_t stretch = route.step * part;
    own.scattered = {route.first * part, route.first * part + ranks * stretch};
    own.summed = {own.scattered.begin + at * stretch, own.scattered.begin + (at + 1) * stretch};
    own.owned = {route.slice * part, (route.slice + 1) * part};
    own.counts = route.copy == 0;
  }

  /// Places the optimizer values: like the parameters if each rank has all, otherwise without gaps.
  /// A slice of a bucket keeps its padding, so that all slices are equal.
  void place(const Bucket& bucket) {
    const auto shard = [&](int index) { return at(stage_.shards, index); };
    const bool sliced = shard(bucket.parameters.front()).kind == ShardKind::bucket;
    std::int64_t begin = 0;
    std::int64_t length = 0;
    if (sliced) {
      const auto& first = at(stage_.parameters, bucket.parameters.front());
      const Ranks& data = data_[first.expert];
      length = bucket.length / static_cast<std::int64_t>(data.size());
      begin = bucket.offset + place_of(data, rank_) * length;
    }
    for (const int index : bucket.parameters) {
      const auto at = static_cast<std::size_t>(index);
      Ownership& own = table_.parameters[at];
      const std::int64_t offset = stage_.flat.offset[at];
      if (sliced) {
        const std::int64_t numel = stage_.parameters[at].shape.numel();
        const std::int64_t from = std::clamp<std::int64_t>(begin - offset, 0, numel);
        const std::int64_t to = std::clamp<std::int64_t>(begin + length - offset, 0, numel);
        if (from < to) own.summed = own.owned = {from, to};
        own.state = table_.state_length + std::max<std::int64_t>(0, offset + from - begin);
      } else {
        own.state = table_.divided ? table_.state_length : offset;
        table_.state_length += own.owned.length();
      }
    }
    table_.state_length += length;
  }

  const Mesh& mesh_;
  const StagePlan& stage_;
  std::int64_t rank_;
  std::array<Ranks, 2> data_;
  OwnershipTable table_;
  std::map<std::tuple<bool, std::int64_t, std::int64_t>, int> routes_;
};

}  // namespace

std::array<std::vector<int>, 2> data_ranks(const Mesh& mesh, std::int64_t rank) {
  std::array ranks{replica_ranks(mesh, rank, false), replica_ranks(mesh, rank, true)};
  for (std::vector<int>& one : ranks) std::ranges::sort(one);
  return ranks;
}

OwnershipTable make_ownership(const Plan& plan, std::int64_t rank) {
  return Table(plan, rank).make();
}

namespace {

/// The largest number of elements in one call with several parameters.
template <class Elements>
std::int64_t max_packed(const std::vector<std::vector<int>>& exchanges, Elements elements_of) {
  std::int64_t most = 0;
  for (const std::vector<int>& exchange : exchanges) {
    if (exchange.size() < 2) continue;
    std::int64_t all = 0;
    for (const int index : exchange) all += elements_of(static_cast<std::size_t>(index));
    most = std::max(most, all);
  }
  return most;
}

}  // namespace

std::vector<std::vector<int>> row_exchanges(const OwnershipTable& table,
                                            const std::vector<int>& parameters, bool fused) {
  std::vector<std::vector<int>> exchanges;
  const auto route_of = [&](int index) { return at(table.parameters, index).route; };
  for (const int index : parameters) {
    if (route_of(index) < 0) continue;
    const auto same = std::ranges::find_if(exchanges, [&](const std::vector<int>& exchange) {
      return route_of(exchange.front()) == route_of(index);
    });
    if (fused && same != exchanges.end()) {
      same->push_back(index);
    } else {
      exchanges.push_back({index});
    }
  }
  return exchanges;
}

std::int64_t packed_gradients(const Plan& plan, const StagePlan& stage,
                              const OwnershipTable& table) {
  const bool fused = fuses_rows(plan.gradient.buckets);
  std::int64_t most =
      packed_elements(stage.parameters, stage.flat, plan.gradient.dtype != DType::f32);
  for (const Bucket& bucket : stage.flat.buckets) {
    const auto scattered = [&](std::size_t index) {
      return table.parameters[index].scattered.length();
    };
    most = std::max(most, max_packed(row_exchanges(table, bucket.parameters, fused), scattered));
  }
  return most;
}

std::vector<std::vector<int>> row_gathers(const Plan& plan, const StagePlan& stage,
                                          const OwnershipTable& table, const GatherBlock& block) {
  std::vector<std::vector<int>> exchanges;
  for (const bool computed : {true, false}) {
    std::vector<int> parameters;
    for (const int index : block.parameters) {
      const DType type = read_type(at(stage.parameters, index), plan.compute);
      if ((type == plan.compute) == computed) parameters.push_back(index);
    }
    const auto more = row_exchanges(table, parameters, fuses_rows(plan.gradient.buckets));
    exchanges.insert(exchanges.end(), more.begin(), more.end());
  }
  return exchanges;
}

std::map<int, Slice> parts_apart(DType compute, const StagePlan& stage, const GatherBlock& block,
                                 std::int64_t ranks, std::int64_t rank) {
  std::map<int, Slice> parts;
  const Bucket& bucket = at(stage.flat.buckets, block.bucket);
  const std::int64_t length = bucket.length / ranks;
  const std::int64_t begin = bucket.offset + rank * length;
  for (const int index : block.parameters) {
    const ParamSpec& row = at(stage.parameters, index);
    if (read_type(row, compute) == compute) continue;
    const std::int64_t from = begin - at(stage.flat.offset, index);
    const Slice part{std::max<std::int64_t>(from, 0), std::min(from + length, row.shape.numel())};
    if (part.begin < part.end) parts[index] = part;
  }
  return parts;
}

std::int64_t max_apart(DType compute, const StagePlan& stage, const GatherBlock& block,
                       std::int64_t ranks) {
  std::int64_t most = 0;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    std::int64_t elements = 0;
    for (const auto& [index, part] : parts_apart(compute, stage, block, ranks, rank)) {
      elements += part.length();
    }
    most = std::max(most, elements);
  }
  return most;
}

std::int64_t packed_parameters(const Plan& plan, const StagePlan& stage,
                               const OwnershipTable& table) {
  std::int64_t most = 0;
  for (const GatherBlock& block : stage.gathers) {
    const auto bytes = [&](std::size_t index) {
      const ParamSpec& row = stage.parameters[index];
      return row.shape.numel() * size_of(read_type(row, plan.compute));
    };
    most = std::max(most, max_packed(row_gathers(plan, stage, table, block), bytes));
    if (block.bucket < 0) continue;
    const std::int64_t ranks = at(stage.shards, block.parameters.front()).ranks;
    most =
        std::max(most, ranks * max_apart(plan.compute, stage, block, ranks) * size_of(DType::f32));
  }
  return most;
}

namespace {

// Smaller parameters are written by one replica: fewer pieces in a file matter more than an even
// division.
constexpr std::int64_t min_divided_elements = 16384;

/// The number of ranks that update the same elements, and this rank's index among them.
struct Copies {
  std::int64_t count = 1;
  std::int64_t place = 0;
};

/// The part of `owned` that the copy with index `copies.place` writes.
Slice part_of(const Slice& owned, Copies copies, const ParamSpec& parameter, int index) {
  const std::int64_t row = parameter.shape.numel() / parameter.shape[0];
  const std::int64_t rows = owned.length() / row;
  const bool whole_rows = owned.begin % row == 0 && owned.length() % row == 0;
  if (!whole_rows || owned.length() < min_divided_elements || rows < copies.count) {
    return index % copies.count == copies.place ? owned : Slice{};
  }
  return {owned.begin + rows * copies.place / copies.count * row,
          owned.begin + rows * (copies.place + 1) / copies.count * row};
}

Copies copies_of(const Ownership& own, const OwnershipTable& table, const OptimizerShard& shard,
                 const ParamSpec& parameter, const std::array<Ranks, 2>& data, std::int64_t rank) {
  if (own.route >= 0) {
    const ShardRoute& route = at(table.routes, own.route);
    return {route.copies, route.copy};
  }
  if (shard.kind != ShardKind::whole) return {};
  const Ranks& ranks = data[parameter.expert];
  return {std::ssize(ranks), place_of(ranks, rank)};
}

}  // namespace

Shape saved_shape(const ParamSpec& parameter, const ModelShape& model) {
  Shape shape = parameter.global_shape;
  const bool padded =
      parameter.kind == ParamKind::token_embedding || parameter.kind == ParamKind::head;
  if (padded) shape[0] = model.vocab;
  return shape;
}

std::vector<std::vector<Box>> saved_parts(const Plan& plan, const OwnershipTable& table,
                                          std::int64_t rank) {
  const StagePlan& stage = plan.stage_of(rank);
  const std::array<Ranks, 2> data = data_ranks(plan.mesh, rank);
  std::vector<std::vector<Box>> parts(stage.parameters.size());
  for (int i = 0; i < static_cast<int>(stage.parameters.size()); ++i) {
    const ParamSpec& parameter = at(stage.parameters, i);
    const Ownership& own = at(table.parameters, i);
    // Without a route, tensor-parallel ranks with equal shares are copies; one of these writes.
    if (own.route < 0 && !counts_over_tensor_ranks(parameter, plan.mesh, rank)) continue;
    if (own.owned.length() == 0 || parameter.second_home) continue;
    const Copies copies = copies_of(own, table, at(stage.shards, i), parameter, data, rank);
    const Slice part = part_of(own.owned, copies, parameter, i);
    const Box real = whole_box(saved_shape(parameter, plan.model));
    for (const Box& box : cut_into_boxes(shard_box(parameter, plan.mesh, rank), part)) {
      const Box written = intersection(box, real);
      if (written.numel() > 0) at(parts, i).push_back(written);
    }
  }
  return parts;
}

std::int64_t saved_bytes(const std::vector<std::vector<Box>>& parts,
                         const std::vector<ParamSpec>& table, const OptimizerConfig& optimizer) {
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    for (const Box& box : parts[i]) bytes += box.numel() * saved_value_bytes(table[i], optimizer);
  }
  return bytes;
}

std::int64_t saved_bytes(const Plan& plan, const OptimizerConfig& optimizer) {
  std::int64_t bytes = 0;
  for (const StagePlan& stage : plan.stages) {
    for (const ParamSpec& row : stage.parameters) {
      if (row.second_home) continue;
      bytes += row.global_shape.numel() * saved_value_bytes(row, optimizer);
    }
  }
  return bytes;
}

}  // namespace trainctl
