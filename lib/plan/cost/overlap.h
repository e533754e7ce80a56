// The part of the communication in layers that is not waited for: collectives of tensor-parallel
// ranks during products (TensorOverlap of plan/tables/layout.h), rows of experts, rings of keys and
// values.
#pragma once

#include "plan/cost/step_time.h"
#include "plan/plan.h"

namespace trainctl {

/// A product that takes `product` seconds, in equal chunks, each of which needs or makes a chunk of
/// a collective that takes `chunk` seconds: what of the collective is waited for. Of a gather the
/// rank's own rows, a share of 1 / ranks, are worked on first.
double exposed_gather(double product, double chunk, std::int64_t chunks, std::int64_t ranks);
double exposed_scatter(double product, double chunk, std::int64_t chunks);

/// Seconds of a step for which a rank of `stage` does not wait, as its collectives of
/// tensor-parallel ranks overlap with products.
double hidden_over_tp(const Plan& plan, const StagePlan& stage, const Rates& rates);
/// Seconds of a pass of one kind through the block `unit` with one micro-batch, kept in `form`.
double hidden_over_tp(const Plan& plan, ActionKind kind, int unit, const BlockForm& form,
                      const Rates& rates);
/// And with the exchange between experts in whole passes (moe.comp_comm_parallel). What legs of
/// passes hide is QueueTimes::hidden_rows.
double hidden_seconds(const Plan& plan, const StagePlan& stage, const Rates& rates);

/// Seconds of the weight gradients of one block and micro-batch that B makes in place of W.
double early_weight_seconds(const Plan& plan, int unit, const Rates& rates);

/// Seconds of one block (a unit of the model) and micro-batch for which attention waits for keys
/// and values that go around a ring: what their transfer takes beyond the work on all blocks of
/// keys but the last. W waits for none.
PassSeconds ring_wait(const Plan& plan, int block, const Rates& rates);

// The cost of the exchange of tokens between ranks with different experts during the products of
// experts (ExchangeRule::chunks).

/// The products of experts take `product` seconds, in equal chunks. A chunk is sent there in
/// `there` seconds and what is made of it back in `back`, all of them over one wire, those back
/// last: what of them is waited for.
double exposed_exchange(double product, double there, double back, std::int64_t chunks);

/// Whether calls move rows between ranks of experts or between their parts.
bool moves_rows(const CollectiveUse& use);

/// Seconds of the products of experts in the block `unit`, in F or in B; `all`, or those before the
/// activation. Of the expected rows.
double expert_products(const Plan& plan, int unit, bool all, const Rates& rates);

/// Seconds that a whole pass through the block `unit`, which has experts, does not wait for its
/// exchange. Rows are as many as there may be.
double hidden_exchange(const Plan& plan, int unit, ActionKind kind, const BlockForm& form,
                       const Rates& rates);

}  // namespace trainctl
