// The cost of the exchange of tokens between ranks with different experts during the products of
// experts (ExchangeRule::chunks).
#pragma once

#include "plan/cost/step_time.h"
#include "plan/plan.h"

namespace trainctl {

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
