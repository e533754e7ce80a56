// The cost of the passes through one block and the head on a device: sums of a price list over the
// declared products of plan/model. Seconds of one rank and one micro-batch, without the overhead of
// the software.
#pragma once

#include "plan/plan.h"
#include "plan/prices/price_list.h"

namespace trainctl {

struct PassPrice {
  double forward = 0, input = 0, weight = 0;  // F, B and W
};

struct BlockPrice {
  PassPrice products;
  PassPrice attention;         // no weights
  PassPrice elements;          // operations that work element by element; no weights
  double flops = 0;            // of products.forward
  double attention_flops = 0;  // of attention.forward, under the mask
};
BlockPrice block_price(const PriceList& list, const Plan& plan, int unit);

/// The work of the parts that an R row recomputes: matrix products, and attention with the values
/// computed element by element.
struct RepeatedWork {
  double products = 0, rest = 0;
  double all() const { return products + rest; }
};
RepeatedWork repeated_work(const PriceList& list, const Plan& plan, int unit,
                           const BlockForm& form);

/// The products of experts in F or in B; `all`, or those before the activation.
double expert_seconds(const PriceList& list, const Plan& plan, int unit, bool all);

/// The head's products, and the same with what is read and written of the logits, in F.
PassPrice head_products(const PriceList& list, const Plan& plan);
PassPrice head_price(const PriceList& list, const Plan& plan);

}  // namespace trainctl
