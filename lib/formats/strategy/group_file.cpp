#include "formats/strategy/group_file.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/hash.h"
#include "formats/strategy/file.h"
#include "plan/tables/mesh.h"

namespace trainctl {

namespace {

/// Which slice of a parameter the rank at `place` of its stage holds: per cut axis the coordinate,
/// then the optimizer's share among the replicas.
std::vector<std::int64_t> slice_at(const ParamLayout& layout, std::int64_t place) {
  std::vector<std::int64_t> slice;
  std::int64_t replica = 0;  // position among the ranks with this slice
  std::int64_t replicas = 1;
  std::int64_t rest = place;
  const std::int64_t axes = static_cast<std::int64_t>(layout.dev_matrix.size());
  for (std::int64_t from_right = 0; from_right < axes; ++from_right) {
    const std::int64_t size = layout.dev_matrix[static_cast<std::size_t>(axes - 1 - from_right)];
    const std::int64_t coordinate = rest % size;
    rest /= size;
    const auto& map = layout.tensor_map;
    if (std::find(map.begin(), map.end(), from_right) != map.end()) {
      slice.push_back(coordinate);
    } else {
      replica += coordinate * replicas;
      replicas *= size;
    }
  }
  const std::int64_t shards = layout.shard_size < 0 ? replicas : layout.shard_size;
  slice.push_back(shards > 1 ? replica % shards : 0);
  return slice;
}

/// The layouts of a stage's parameters, equal ones once.
std::vector<ParamLayout> distinct_layouts(const Plan& plan, int stage,
                                          const ParallelConfig& parallel) {
  std::vector<ParamLayout> distinct;
  for (const ParamLayout& one : make_param_layouts(plan, stage, parallel)) {
    ParamLayout layout = simplest(one);
    layout.name.clear();
    layout.tensor_shape.clear();
    if (std::find(distinct.begin(), distinct.end(), layout) == distinct.end()) {
      distinct.push_back(std::move(layout));
    }
  }
  return distinct;
}

std::vector<int> restore_ranks(const Plan& plan, const ParallelConfig& parallel,
                               std::int64_t rank) {
  const Mesh& mesh = plan.mesh;
  const std::int64_t stage = mesh.coordinate(rank, Axis::pp);
  std::vector<int> held;  // the stage's ranks that hold the same, with their places
  std::vector<std::int64_t> places;
  std::int64_t own_place = 0;
  std::int64_t place = 0;
  for (std::int64_t other = 0; other < mesh.world_size(); ++other) {
    if (mesh.coordinate(other, Axis::pp) != stage) continue;
    if (other == rank) own_place = place;
    held.push_back(static_cast<int>(other));
    places.push_back(place++);
  }
  for (const ParamLayout& layout : distinct_layouts(plan, static_cast<int>(stage), parallel)) {
    const std::vector<std::int64_t> own = slice_at(layout, own_place);
    std::size_t kept = 0;
    for (std::size_t i = 0; i < held.size(); ++i) {
      if (slice_at(layout, places[i]) != own) continue;
      held[kept] = held[i];
      places[kept++] = places[i];
    }
    held.resize(kept);
    places.resize(kept);
  }
  return held;
}

}  // namespace

std::string group_name(const std::vector<int>& ranks) {
  std::string list;
  for (const int rank : ranks) list += (list.empty() ? "" : "-") + std::to_string(rank);
  return std::to_string(ranks.size()) + "-" + std::to_string(fnv1a(list));
}

GroupFile make_group_file(const Plan& plan, const ParallelConfig& parallel, std::int64_t rank) {
  require(rank >= 0 && rank < plan.mesh.world_size(), ExitCode::usage,
          "rank " + std::to_string(rank) + " does not exist: ranks are 0 to " +
              std::to_string(plan.mesh.world_size() - 1));
  GroupFile file;
  std::set<std::vector<int>> seen;
  for (const std::string_view kind : group_kinds()) {
    for (std::vector<int>& ranks : groups_with(plan.mesh, kind, rank)) {
      std::sort(ranks.begin(), ranks.end());
      if (ranks.size() < 2 || !seen.insert(ranks).second) continue;
      file.groups.push_back({group_name(ranks), ranks});
    }
  }
  file.restore_ranks = restore_ranks(plan, parallel, rank);
  return file;
}

}  // namespace trainctl
