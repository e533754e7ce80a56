#include "engine/parameters/whole_params.h"

#include <cstring>

#include "comm/await.h"
#include "plan/tables/shard.h"

namespace trainctl {

namespace {

constexpr int tag = 1;

/// The rank at these coordinates, 0 on every other axis.
std::int64_t rank_at(const Mesh& mesh, std::int64_t tp, std::int64_t pp) {
  return tp * mesh.stride(Axis::tp) + pp * mesh.stride(Axis::pp);
}

void place(const ParamSpec& row, const Mesh& mesh, std::int64_t rank, const Tensor& shard,
           const Tensor& whole) {
  for (const ShardPiece& piece : shard_pieces(row, mesh, rank)) {
    std::memcpy(whole.as<float>() + piece.global, shard.as<float>() + piece.local,
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
  for (std::int64_t pp = 0; pp < mesh.pp; ++pp) {
    for (const ParamSpec& row : plan.stages[static_cast<std::size_t>(pp)].parameters) {
      if (row.second_home) continue;
      for (std::int64_t tp = 0; tp < mesh.tp; ++tp) {
        const std::int64_t rank = rank_at(mesh, tp, pp);
        if (!counts_over_tensor_ranks(row, mesh, rank) || (!root && rank != everyone.rank()))
          continue;
        if (root && rank == 0) {
          place(row, mesh, 0, store.master(store.index_of(row.name)), whole.at(row.name));
        } else if (root) {
          const Tensor shard = whole.at("received").slice(0, row.shape.numel());
          finish(everyone.receive(shard, static_cast<int>(rank), tag, stream), row.name,
                 deadline_seconds);
          place(row, mesh, rank, shard, whole.at(row.name));
        } else {
          finish(everyone.send(store.master(store.index_of(row.name)), 0, tag, stream), row.name,
                 deadline_seconds);
        }
      }
    }
  }
  return whole;
}

}  // namespace trainctl
