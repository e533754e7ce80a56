#include "engine/parameters/optimizer.h"

#include <utility>
#include <vector>

#include "base/hash.h"
#include "engine/parameters/exchange.h"
#include "plan/tables/shard.h"

namespace trainctl {

namespace {

/// Where the owned part of a parameter lies in the whole: every shard's pieces are equally long and
/// equally far apart.
RandomRounding rounding_of(const ParamSpec& spec, const Slice& owned, const Mesh& mesh,
                           std::int64_t rank) {
  const std::vector<ShardPiece> pieces = shard_pieces(spec, mesh, rank);
  RandomRounding rounding{.tensor = fnv1a(spec.name), .first = pieces.front().global};
  rounding.skip = owned.begin;
  if (pieces.size() < 2) return rounding;
  rounding.run = pieces[0].length;
  rounding.stride = pieces[1].global - pieces[0].global;
  return rounding;
}

}  // namespace

Optimizer::Optimizer(const OptimizerConfig& config, const ParamStore& store, const StepState* state,
                     const Mesh& mesh, std::int64_t rank, Stream& stream) {
  std::vector<AdamW> adamw;
  std::vector<Sgd> sgd;
  for (int i = 0; i < static_cast<int>(store.table().size()); ++i) {
    if (store.owned(i).length() == 0) continue;
    const Tensor rounded = store.rounded(i);
    const ParamSpec& spec = store.table()[static_cast<std::size_t>(i)];
    const bool decay = spec.decay;
    const RandomRounding rounding = rounding_of(spec, store.owned(i), mesh, rank);
    if (config.type == OptimizerType::adamw) {
      adamw.push_back({.parameter = flat(store.master(i)),
                       .gradient = store.owned_gradient(i),
                       .m = store.state(i, 0),
                       .v = store.state(i, 1),
                       .compute = rounded,
                       .beta1 = static_cast<float>(config.beta1),
                       .beta2 = static_cast<float>(config.beta2),
                       .epsilon = static_cast<float>(config.eps),
                       .decay = decay,
                       .rounding = rounding,
                       .state = state});
    } else {
      const bool momentum = config.momentum != 0;
      sgd.push_back({.parameter = flat(store.master(i)),
                     .gradient = store.owned_gradient(i),
                     .momentum = momentum ? store.state(i, 0) : Tensor{},
                     .compute = rounded,
                     .coefficient = static_cast<float>(config.momentum),
                     .decay = decay,
                     .coupled = config.weight_decay_form == WeightDecayForm::coupled,
                     .rounding = rounding,
                     .state = state});
    }
  }
  adamw_ = Calls<AdamW>(std::move(adamw), &stream);
  sgd_ = Calls<Sgd>(std::move(sgd), &stream);
}

void Optimizer::step(const OpContext& context) const {
  if (!adamw_.list().empty()) adamw(context, adamw_);
  if (!sgd_.list().empty()) sgd(context, sgd_);
}

}  // namespace trainctl
