#include "engine/parameters/replicas.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "base/at.h"
#include "base/error.h"
#include "base/hash.h"
#include "device/host_values.h"
#include "plan/tables/shard.h"

namespace trainctl {

namespace {

bool same_pieces(const ParamSpec& parameter, const Mesh& mesh, std::int64_t a, std::int64_t b) {
  return std::ranges::equal(shard_pieces(parameter, mesh, a), shard_pieces(parameter, mesh, b),
                            [](const ShardPiece& x, const ShardPiece& y) {
                              return x.global == y.global && x.length == y.length;
                            });
}

std::uint64_t hash_values(const Tensor& values, std::uint64_t hash) {
  const HostValues on_host(values);
  return fnv1a(
      {static_cast<const char*>(on_host.values().data), static_cast<std::size_t>(values.bytes())},
      hash);
}

/// Which of `ranks` do not have the hash of the first.
std::string who_differs(const std::vector<std::uint64_t>& hashes, const std::vector<int>& ranks) {
  std::string names;
  for (std::size_t i = 1; i < hashes.size(); ++i) {
    if (hashes[i] != hashes[0]) names += (names.empty() ? "" : ", ") + std::to_string(ranks[i]);
  }
  return names;
}

}  // namespace

std::vector<int> holders_of(const ParamSpec& parameter, const Mesh& mesh, std::int64_t rank) {
  std::vector<int> homes{static_cast<int>(rank)};
  if (parameter.two_homes) {
    const std::vector<int> stages = mesh.group(rank, Axis::pp);
    homes.assign({stages.front()});
    if (stages.size() > 1) homes.push_back(stages.back());
  }
  std::vector<int> ranks;
  for (const int home : homes) {
    for (const int replica : mesh.group(home, {Axis::cp, Axis::dp})) {
      for (const int other : mesh.group(replica, Axis::tp)) {
        if (same_pieces(parameter, mesh, rank, other)) ranks.push_back(other);
      }
    }
  }
  std::ranges::sort(ranks);
  return ranks;
}

ReplicaCheck::ReplicaCheck(const Plan& plan, const ParamStore& store, World& world)
    : store_(store), shards_(plan.stage_of(world.rank()).shards) {
  std::map<std::vector<int>, std::vector<int>> by_ranks;
  for (int i = 0; i < static_cast<int>(store.table().size()); ++i) {
    by_ranks[holders_of(store.table()[static_cast<std::size_t>(i)], plan.mesh, world.rank())]
        .push_back(i);
  }
  // Every rank makes its groups in the order of their ranks, so nobody waits in a circle.
  for (auto& [ranks, parameters] : by_ranks) {
    if (ranks.size() == 1) continue;
    shared_.push_back({ranks, parameters, world.group("replicas", ranks)});
  }
}

std::uint64_t ReplicaCheck::hash_of(std::span<const int> parameters) const {
  std::uint64_t hash = fnv_offset;
  for (const int index : parameters) {
    if (store_.stays(index)) hash = hash_values(store_.resident(index), hash);
    const bool whole = at(shards_, index).kind == ShardKind::whole;
    if (whole) hash = hash_values(store_.master(index), hash);
  }
  return hash;
}

void ReplicaCheck::run(std::int64_t completed_steps) const {
  for (const Shared& shared : shared_) {
    const auto whole = gather_values(*shared.group, hash_of(shared.parameters));
    if (who_differs(whole, shared.ranks).empty()) continue;
    for (const int index : shared.parameters) {
      const auto hashes = gather_values(*shared.group, hash_of({&index, 1}));
      const std::string ranks = who_differs(hashes, shared.ranks);
      if (ranks.empty()) continue;
      throw Error(ExitCode::peer,
                  "after step " + std::to_string(completed_steps) + " the replicas of " +
                      store_.table()[static_cast<std::size_t>(index)].name + " differ: rank(s) " +
                      ranks + " do not hold the values of rank " +
                      std::to_string(shared.ranks.front()));
    }
  }
}

}  // namespace trainctl
