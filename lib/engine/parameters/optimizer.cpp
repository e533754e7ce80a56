#include "engine/parameters/optimizer.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/at.h"
#include "base/hash.h"
#include "config/schema/optimizers.h"
#include "engine/parameters/exchange.h"
#include "plan/tables/shard.h"

namespace trainctl {

namespace {

UpdateConstants constants_of(const OptimizerConfig& config, const ParamSpec& spec) {
  return {.beta1 = static_cast<float>(config.beta1),
          .beta2 = static_cast<float>(config.beta2),
          .epsilon = static_cast<float>(config.eps),
          .momentum = static_cast<float>(config.momentum),
          .coupled = config.weight_decay_form == WeightDecayForm::coupled,
          .rate_factor = static_cast<float>(spec.rate_factor),
          .decay_factor = static_cast<float>(spec.decay_factor)};
}

}  // namespace

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

Optimizer::Optimizer(const OptimizerConfig& config, const ParamStore& store, const StepState* state,
                     const Mesh& mesh, std::int64_t rank, Stream& stream) {
  std::array<std::vector<Update>, std::size(optimizer_rows)> by_row;
  for (int i = 0; i < static_cast<int>(store.table().size()); ++i) {
    if (store.owned(i).length() == 0) continue;
    const ParamSpec& spec = at(store.table(), i);
    const OptimizerRow& row = row_of(spec.update);
    if (row.step == OptimizerStep::matrix) continue;  // MatrixUpdate
    Update one{.rule = row.rule,
               .parameter = flat(store.master(i)),
               .gradient = store.owned_gradient(i),
               .compute = store.rounded(i),
               .constants = constants_of(config, spec),
               .decay = spec.decay,
               .rounding = rounding_of(spec, store.owned(i), mesh, rank),
               .state = state};
    const int kept = updated_states(spec.update, config);
    for (int k = 0; k < kept; ++k) at(one.states, k) = store.state(i, k);
    by_row[static_cast<std::size_t>(spec.update)].push_back(one);
  }
  for (std::vector<Update>& list : by_row) {
    if (!list.empty()) updates_.emplace_back(std::move(list), &stream);
  }
  if (config.ema_decay != 0) add_averages(config, store, state, stream);
}

void Optimizer::add_averages(const OptimizerConfig& config, const ParamStore& store,
                             const StepState* state, Stream& stream) {
  std::vector<Update> list;
  for (int i = 0; i < static_cast<int>(store.table().size()); ++i) {
    const ParamSpec& spec = at(store.table(), i);
    if (store.owned(i).length() == 0 || spec.kind == ParamKind::expert_bias) continue;
    list.push_back({.rule = UpdateRule::average,
                    .parameter = store.average(i),
                    .gradient = flat(store.master(i)),
                    .constants = {.momentum = static_cast<float>(config.ema_decay)},
                    .state = state});
  }
  if (!list.empty()) averages_.emplace(std::move(list), &stream);
}

void Optimizer::step(const OpContext& context) const {
  for (const Calls<Update>& updates : updates_) update(context, updates);
}

void Optimizer::average(const OpContext& context) const {
  if (averages_) update(context, *averages_);
}

}  // namespace trainctl
