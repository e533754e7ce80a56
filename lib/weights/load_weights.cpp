#include "weights/load_weights.h"

#include <algorithm>

#include "base/error.h"
#include "device/host_values.h"
#include "plan/tables/shard.h"
#include "weights/hugging_face_weights.h"

namespace trainctl {

namespace {

/// The rank's shard as a box of the whole parameter, without padding.
MatrixBox own_box(const ParamSpec& row, const Plan& plan, std::int64_t rank) {
  const std::int64_t width = row.shape.rank() == 2 ? row.global_shape[1] : 1;
  const std::int64_t first = shard_pieces(row, plan.mesh, rank).front().global;
  const bool padded = row.kind == ParamKind::token_embedding || row.kind == ParamKind::head;
  const std::int64_t last = padded ? plan.model.vocab : row.global_shape[0];
  MatrixBox box{.row = first / width,
                .rows = row.shape[0],
                .column = first % width,
                .columns = row.shape.rank() == 2 ? row.shape[1] : 1};
  box.rows = std::clamp<std::int64_t>(last - box.row, 0, box.rows);
  return box;
}

/// The same part of each expert held here, as `share` has it.
void read_experts(const StoredWeights& weights, const ParamSpec& row, const Plan& plan,
                  std::int64_t rank, float* share) {
  const std::int64_t width = row.global_shape[2];
  const std::int64_t first = shard_pieces(row, plan.mesh, rank).front().global;
  MatrixBox box{
      .row = first / width, .rows = row.shape[1], .column = first % width, .columns = row.shape[2]};
  for (std::int64_t expert = 0; expert < row.shape[0]; ++expert) {
    weights.read(row.name, box, share + expert * box.elements());
    box.row += row.global_shape[1];
  }
}

}  // namespace

void load_weights(const StoredWeights& weights, const Plan& plan, std::int64_t rank,
                  ParamStore& store) {
  const std::vector<ParamSpec>& table = plan.stage_of(rank).parameters;
  std::vector<float> share;  // of a parameter; the rank may own less
  for (int i = 0; i < static_cast<int>(table.size()); ++i) {
    const ParamSpec& row = table[static_cast<std::size_t>(i)];
    const Slice own = store.owned(i);
    if (own.length() == 0) continue;
    share.assign(static_cast<std::size_t>(row.shape.numel()), 0.0F);
    if (row.shape.rank() == 3) {
      read_experts(weights, row, plan, rank, share.data());
    } else if (const MatrixBox box = own_box(row, plan, rank); box.rows > 0) {
      weights.read(row.name, box, share.data());
    }
    const HostValues master(store.master(i));
    store_floats(share.data() + own.begin, master.values());
    master.store();
  }
}

void load_weights(const std::filesystem::path& directory, const Plan& plan, std::int64_t rank,
                  ParamStore& store) {
  load_weights(HuggingFaceWeights(directory, plan.model), plan, rank, store);
}

}  // namespace trainctl
