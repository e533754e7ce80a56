#include "weights/load_weights.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "base/error.h"
#include "plan/tables/shard.h"
#include "weights/export.h"

namespace trainctl {

namespace {

/// The row of a parameter on any stage: all say the same of the whole.
const ParamSpec& row_of(const Plan& plan, const std::string& name) {
  for (const StagePlan& stage : plan.stages) {
    for (const ParamSpec& row : stage.parameters) {
      if (row.name == name) return row;
    }
  }
  throw Error(ExitCode::internal, "the plan has no parameter " + name);
}

void keep_shard(const ParamSpec& row, const Plan& plan, std::int64_t rank, const float* whole,
                const Tensor& own) {
  for (const ShardPiece& piece : shard_pieces(row, plan.mesh, rank)) {
    std::memcpy(own.as<float>() + piece.local, whole + piece.global,
                static_cast<std::size_t>(piece.length) * sizeof(float));
  }
}

}  // namespace

void load_weights(const std::filesystem::path& directory, const Plan& plan, std::int64_t rank,
                  ParamStore& store) {
  const std::vector<ParamSpec>& own = plan.stage_of(rank).parameters;
  std::map<std::string, std::vector<float>> wholes;  // of the tensor that is being read
  import_model(directory, plan.model,
               {.whole =
                    [&](const std::string& name) {
                      const Shape shape = row_of(plan, name).global_shape;
                      std::vector<float>& whole = wholes[name];
                      whole.assign(static_cast<std::size_t>(shape.numel()), 0.0F);
                      return host_tensor(whole.data(), shape.numel()).view(shape);
                    },
                .wanted =
                    [&](const std::string& name) {
                      return std::any_of(own.begin(), own.end(),
                                         [&](const ParamSpec& row) { return row.name == name; });
                    },
                .done =
                    [&](const std::string& name) {
                      const int index = store.index_of(name);
                      keep_shard(own[static_cast<std::size_t>(index)], plan, rank,
                                 wholes[name].data(), store.master(index));
                      wholes.erase(name);
                    }});
}

}  // namespace trainctl
