// The time of communication in layers that overlaps with work: collectives of tensor-parallel ranks
// during products (TensorOverlap of plan/tables/layout.h), rows of experts, rings of keys and
// values.
#pragma once

#include "plan/cost/step_time.h"
#include "plan/plan.h"

namespace trainctl {

/// Seconds of waiting for a collective whose chunks take `chunk` seconds each, during a product of
/// `product` seconds that is cut into equal chunks. In a gather, the rank first works on its own
/// rows, a share of 1 / ranks.
double exposed_gather(double product, double chunk, std::int64_t chunks, std::int64_t ranks);
double exposed_scatter(double product, double chunk, std::int64_t chunks);

/// Seconds of tensor-parallel collectives in a step that overlap with products on a rank of
/// `stage`.
double hidden_over_tp(const Plan& plan, const StagePlan& stage, const Rates& rates);
/// The seconds for one pass of `kind` through block `unit` with one micro-batch, kept in `form`.
double hidden_over_tp(const Plan& plan, ActionKind kind, int unit, const BlockForm& form,
                      const Rates& rates);
/// hidden_over_tp() plus the overlapped exchange between experts in whole passes
/// (moe.comp_comm_parallel). For passes in legs, the overlap is QueueTimes::hidden_rows.
double hidden_seconds(const Plan& plan, const StagePlan& stage, const Rates& rates);

/// Seconds of weight gradients of one block and micro-batch that B computes instead of W.
double early_weight_seconds(const Plan& plan, int unit, const Rates& rates);

/// Seconds for which attention waits for keys and values passed around a ring, for one block (a
/// unit of the model) and micro-batch: the transfer time beyond the work on all blocks of keys but
/// the last. W waits for none.
PassSeconds ring_wait(const Plan& plan, int block, const Rates& rates);

// The cost of exchanging tokens between ranks with different experts during the products of experts
// (ExchangeRule::chunks).

/// Seconds of waiting for an exchange in chunks. The experts' products take `product` seconds in
/// equal chunks; a chunk is sent to the experts in `there` seconds and its result back in `back`.
/// All transfers share one line, on which results come last.
double exposed_exchange(double product, double there, double back, std::int64_t chunks);

/// Whether the calls send rows between ranks with experts, or with shards of experts.
bool moves_rows(const CollectiveUse& use);

/// Seconds of the products of experts in block `unit`, in F or in B, for the expected number of
/// rows; without `all`, only of those before the activation.
double expert_products(const Plan& plan, int unit, bool all, const Rates& rates);

/// Seconds of the exchange in a whole pass through block `unit` with experts that overlap with
/// products, for the maximum number of rows.
double hidden_exchange(const Plan& plan, int unit, ActionKind kind, const BlockForm& form,
                       const Rates& rates);

}  // namespace trainctl
