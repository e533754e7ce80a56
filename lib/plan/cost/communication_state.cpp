#include <algorithm>

#include "base/at.h"
#include "plan/cost/communication.h"
#include "plan/gradients/buckets.h"
#include "plan/gradients/gathers.h"
#include "plan/ownership/matrix_exchange.h"
#include "plan/ownership/ownership.h"
#include "plan/tables/mesh.h"

namespace trainctl {

namespace {

using enum GroupOperation;

constexpr std::int64_t sum_bytes = 4;

/// The sums of a bucket's gradients over the ranks with the same parameters: as one stretch, or of
/// rows by their routes.
void add_sums(UseList& list, const OwnershipTable& table, int number, GroupKind group) {
  const Plan& plan = list.plan();
  const Bucket& bucket = at(list.stage().flat.buckets, number);
  const ShardKind kind = at(list.stage().shards, bucket.parameters.front()).kind;
  const std::int64_t count = visits_of(list.stage(), ActionKind::reduce, number);
  if (kind != ShardKind::rows) {
    const GroupOperation operation = kind == ShardKind::bucket ? reduce_scatter : all_reduce;
    return list.add({operation, Cargo::gradients, TrafficPurpose::gradients, group}, count,
                    bucket.length * list.gradient());
  }
  const bool fused = fuses_rows(plan.gradient.buckets);
  for (const RowExchange& exchange : row_exchanges(table, bucket.parameters, fused)) {
    const ShardRoute& route = at(table.routes, exchange.route);
    std::int64_t scattered = 0;
    std::int64_t summed = 0;
    for (const int index : exchange.parameters) {
      const Ownership& own = at(table.parameters, index);
      scattered += own.scattered.length() * list.gradient();
      summed += own.summed.length() * list.gradient();
    }
    list.add({reduce_scatter, Cargo::gradients, TrafficPurpose::gradients, route.scatter_kind,
              std::ssize(route.scatter)},
             count, scattered);
    list.add({all_reduce, Cargo::gradient_slices, TrafficPurpose::gradients, route.mirror_kind,
              std::ssize(route.mirror)},
             count, summed);
  }
}

/// A block of parameters, from the ranks that have updated them.
void add_gather(UseList& list, const OwnershipTable& table, int number, GroupKind group) {
  const Plan& plan = list.plan();
  const StagePlan& stage = list.stage();
  const GatherBlock& block = at(stage.gathers, number);
  const std::int64_t count = visits_of(stage, ActionKind::gather, number);
  const auto bytes_of = [&](int index) {
    const ParamSpec& row = at(stage.parameters, index);
    return row.shape.numel() * size_of(read_type(row, plan.compute));
  };
  if (block.bucket >= 0) {
    const UseList::Call call{all_gather, Cargo::parameters, TrafficPurpose::parameters, group};
    const std::int64_t ranks = at(stage.shards, block.parameters.front()).ranks;
    const std::int64_t length = at(stage.flat.buckets, block.bucket).length;
    list.add(call, count, length * size_of(plan.compute));
    return list.add(call, count, ranks * max_apart(plan.compute, stage, block, ranks) * sum_bytes);
  }
  for (const int index : block.parameters) {
    const OptimizerShard& shard = at(stage.shards, index);
    if (shard.kind != ShardKind::dealt) continue;
    const GroupKind over = replicas_kind(plan.mesh, at(stage.parameters, index).expert);
    list.add({broadcast, Cargo::parameters, TrafficPurpose::parameters, over}, count,
             bytes_of(index));
  }
  for (const RowExchange& exchange : row_gathers(plan, stage, table, block)) {
    const ShardRoute& route = at(table.routes, exchange.route);
    std::int64_t bytes = 0;
    for (const int index : exchange.parameters) bytes += bytes_of(index);
    list.add({all_gather, Cargo::parameters, TrafficPurpose::parameters, route.gather_kind,
              std::ssize(route.gather)},
             count, bytes);
  }
}

/// Adds the exchanges between ranks with the same parameters.
void add_replicas(UseList& list, const OwnershipTable& table) {
  const StagePlan& stage = list.stage();
  const auto group = [&](bool expert) { return replicas_kind(list.plan().mesh, expert); };
  for (int bucket = 0; bucket < std::ssize(stage.flat.buckets); ++bucket) {
    add_sums(list, table, bucket, group(at(stage.flat.buckets, bucket).expert));
  }
  for (int block = 0; block < std::ssize(stage.gathers); ++block) {
    const int first = at(stage.gathers, block).parameters.front();
    add_gather(list, table, block, group(at(stage.parameters, first).expert));
  }
}

/// Gradients that ranks with different shards hold parts of, bucket by bucket. Of a tied embedding
/// a rank sums what its bucket's sum has completed, as it is kept unless it travels in another
/// type.
void add_shared_gradients(UseList& list, const OwnershipTable& table) {
  const GradientRule& rule = list.plan().gradient;
  const std::int64_t completed = size_of(rule.dtype == DType::f32 ? rule.kept : rule.dtype);
  for (int number = 0; number < std::ssize(list.stage().flat.buckets); ++number) {
    const Bucket& bucket = at(list.stage().flat.buckets, number);
    const std::int64_t count = visits_of(list.stage(), ActionKind::reduce, number);
    const auto partial = [&](bool copies) {
      return partial_elements(list.stage().parameters, bucket, copies) * list.gradient();
    };
    const auto add = [&](Cargo cargo, GroupKind group, std::int64_t calls, std::int64_t bytes) {
      list.add({all_reduce, cargo, TrafficPurpose::gradients, group}, calls, bytes);
    };
    add(Cargo::replicated_gradients, tensor_group, count, partial(false));
    add(Cargo::shared_keys, shared_keys_group, count, partial(true));
    for (const int index : bucket.parameters) {
      const ParamSpec& row = at(list.stage().parameters, index);
      if (!row.two_homes) continue;
      add(Cargo::tied_embedding, embedding_kind, 1,
          at(table.parameters, index).summed.length() * completed);
    }
  }
}

/// Some numbers of every rank, for every rank.
void add_numbers(UseList& list, Cargo cargo, std::int64_t numbers, std::int64_t count = 1) {
  const std::int64_t ranks = list.plan().mesh.world_size();
  list.add({all_gather, cargo, TrafficPurpose::scalars, world_group}, count, ranks * numbers * 8);
}

void add_pairs(UseList& list, Cargo cargo, std::int64_t count = 1) {
  add_numbers(list, cargo, 2, count);
}

/// The loss with the wish to stop, the weights that it is divided by with what else is counted of
/// batches, and the gradient's squares, those of the norm apart from those that are only looked at:
/// gathered, and added on each rank in the same order.
void add_scalars(UseList& list, const StepNumbers& numbers) {
  add_pairs(list, Cargo::loss);
  // With full_batch every rank has all of them.
  if (numbers.loss_weights && !list.plan().full_batch) {
    add_numbers(list, Cargo::loss_weights, 4);
  }
  add_pairs(list, Cargo::gradient_norm);
  const ModelShape& model = list.plan().model;
  if (model.experts > 1) {
    constexpr std::int64_t others = 4;  // sums in addition to the load of each expert: ops/router.h
    list.add({all_reduce, Cargo::router_statistics, TrafficPurpose::scalars, world_group}, 1,
             model.layers * (others + model.experts) * sum_bytes);
  }
  if (numbers.attention_logit) add_pairs(list, Cargo::attention_logit);
  if (numbers.qk_clip) {
    constexpr std::int64_t score_bytes = 4;
    const std::int64_t ranks = list.plan().mesh.world_size();
    list.add({all_gather, Cargo::attention_scores, TrafficPurpose::scalars, world_group}, 1,
             ranks * scores_of_rank(list.plan()) * score_bytes);
  }
  // Before the passes, the completion of gradients and the optimizer.
  if (numbers.timer_barriers) add_pairs(list, Cargo::timer_barriers, 3);
}

}  // namespace

void add_state(UseList& list, std::int64_t rank, const StepNumbers& numbers) {
  const OwnershipTable table = make_ownership(list.plan(), rank);
  add_replicas(list, table);
  add_shared_gradients(list, table);
  const std::vector<MatrixRound> rounds = matrix_rounds(list.plan(), rank);
  list.add_total({all_to_all, Cargo::matrices, TrafficPurpose::parameters, stage_group},
                 2 * std::ssize(rounds), sent_bytes(list.plan(), rounds));
  add_scalars(list, numbers);
}

}  // namespace trainctl
