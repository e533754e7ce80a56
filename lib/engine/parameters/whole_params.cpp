#include "engine/parameters/whole_params.h"

#include <cstring>

#include "base/at.h"
#include "comm/await.h"
#include "device/host_values.h"
#include "plan/tables/shard.h"

namespace trainctl {

namespace {

constexpr int tag = 1;

/// `values`: what `rank` owns of its share.
void place(const ParamSpec& row, const Mesh& mesh, std::int64_t rank, const Slice& owned,
           const Tensor& values, const Tensor& whole) {
  for (const ShardPiece& piece : pieces_in(row, mesh, rank, owned)) {
    std::memcpy(whole.as<float>() + piece.global, values.as<float>() + piece.local,
                static_cast<std::size_t>(piece.length) * sizeof(float));
  }
}

void finish(const Event& event, const std::string& name, double seconds) {
  await(event, seconds, [&] { return "the message with the shard of " + name; });
}

std::vector<SlabRow> whole_rows(const Plan& plan) {
  std::vector<SlabRow> rows;
  std::int64_t largest = 0;
  for (const StagePlan& stage : plan.stages) {
    for (const ParamSpec& row : stage.parameters) {
      if (row.second_home) continue;
      rows.push_back({row.name, row.global_shape, DType::f32});
      largest = std::max(largest, row.shape.numel());
    }
  }
  rows.push_back({"received", Shape{largest}, DType::f32});
  return rows;
}

}  // namespace

Slab gather_parameters(const Plan& plan, const ParamStore& store, Group& everyone,
                       double deadline_seconds) {
  const Mesh& mesh = plan.mesh;
  const bool root = everyone.rank() == 0;
  Slab whole = root ? Slab(DeviceKind::cpu, whole_rows(plan)) : Slab();
  Stream stream(DeviceKind::cpu, "gather", Stream::Mode::run_inline);
  for (int rank = 0; rank < everyone.size(); ++rank) {
    if (!root && rank != everyone.rank()) continue;
    const StagePlan& stage = plan.stage_of(rank);
    const bool here = rank == everyone.rank();
    const OwnershipTable table = here ? store.ownership() : make_ownership(plan, rank);
    for (int i = 0; i < static_cast<int>(stage.parameters.size()); ++i) {
      const ParamSpec& row = at(stage.parameters, i);
      const Ownership& own = at(table.parameters, i);
      // Of ranks that own the same values, one sends them.
      if (!own.counts || own.owned.length() == 0) continue;
      if (root && here) {
        place(row, mesh, rank, own.owned, HostValues(store.master(i)).values(), whole.at(row.name));
      } else if (root) {
        const Tensor part = whole.at("received").slice(0, own.owned.length());
        finish(everyone.receive(part, rank, tag, stream), row.name, deadline_seconds);
        place(row, mesh, rank, own.owned, part, whole.at(row.name));
      } else {
        const HostValues own_part(store.master(i));
        finish(everyone.send(own_part.values(), 0, tag, stream), row.name, deadline_seconds);
      }
    }
  }
  return whole;
}

}  // namespace trainctl
