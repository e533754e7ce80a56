#include "plan/cost/block_prices.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "plan/cost/real.h"
#include "plan/model/attention.h"
#include "plan/model/experts.h"
#include "plan/model/mlp.h"

namespace trainctl {

namespace {

/// A product, and of how many equal ones at once it is: one for each expert of a rank.
struct PricedPart {
  Product product;
  std::int64_t groups = 1;
  bool routed = false;  // of experts that tokens choose
};

/// Tensors of the product's shape that are read and written where it is made element by element:
/// a norm with the residual sum before it, an activation function, a copy of rows.
struct ElementPasses {
  double forward = 0, input = 0;
};
ElementPasses passes_of_elements(const Product& product, bool gated) {
  if (product.part == BlockPart::norm1 || product.part == BlockPart::norm2) return {5, 6};
  if (product.part == BlockPart::activation)
    return gated ? ElementPasses{3, 5} : ElementPasses{2, 3};
  return {2, 2};
}

std::vector<PricedPart> parts_of(const Plan& plan, int unit) {
  const LayerForm form = plan.form_of(unit);
  const auto local = plan.local_of(unit);
  std::vector<PricedPart> parts;
  const auto norm = [&](bool there, std::optional<BlockPart> part) {
    if (there) parts.push_back({{part, local.stream_rows, 0, form.hidden}});
  };
  norm(norms_before(form.norms), BlockPart::norm1);
  const auto add = [&](const Products& products) {
    for (const Product& one : products) parts.push_back({one});
  };
  add(attention_products(form, local));
  norm(norms_after(form.norms), BlockPart::projection);
  norm(norms_before(form.norms), BlockPart::norm2);
  if (!form.has_experts()) {
    add(mlp_products(form, local));
  } else {
    add(router_products(form, local));
    for (const Product& one : routed_products(form, local)) {
      parts.push_back({one, local.experts, true});
    }
    add(shared_products(form, local));
  }
  norm(norms_after(form.norms), {});
  return parts;
}

/// Neighbours that read the same become one product where the software joins them.
void join_inputs(std::vector<PricedPart>& parts) {
  std::vector<PricedPart> joined;
  for (const PricedPart& part : parts) {
    const bool same = !joined.empty() && part.product.in > 0 &&
                      joined.back().product.in == part.product.in && part.product.part &&
                      joined.back().product.part == part.product.part &&
                      joined.back().groups == part.groups && joined.back().routed == part.routed;
    if (same) {
      joined.back().product.out += part.product.out;
    } else {
      joined.push_back(part);
    }
  }
  parts = std::move(joined);
}

class BlockPricer {
 public:
  BlockPricer(const PriceList& list, const Plan& plan, int unit)
      : list_(list), plan_(plan), unit_(unit), parts_(parts_of(plan, unit)) {
    if (list.machine().software.fuses_inputs) join_inputs(parts_);
  }
  const std::vector<PricedPart>& parts() const { return parts_; }

  PassPrice product(const PricedPart& part) const {
    const Product& one = part.product;
    const std::int64_t rows = (one.rows + part.groups - 1) / part.groups;
    return {list_.product({rows, one.out, one.in, part.groups}),
            list_.product({rows, one.in, one.out, part.groups}),
            list_.product({one.in, one.out, rows, part.groups, true})};
  }
  PassPrice attention(const Product& one) const {
    const PricedAttention priced = attended(one);
    return {list_.attention(priced, false), list_.attention(priced, true), 0};
  }
  double attention_flops(const Product& one) const { return attended(one).flops(); }
  PassPrice elements(const Product& one) const {
    const ElementPasses passes = passes_of_elements(one, plan_.model.gated_mlp);
    const double bytes = real(one.rows) * real(one.out) * real(size_of(plan_.compute));
    return {list_.elements(passes.forward * bytes), list_.elements(passes.input * bytes), 0};
  }

 private:
  PricedAttention attended(const Product& one) const {
    const std::int64_t dim = std::max<std::int64_t>(1, plan_.model.head_dim);
    return {
        one.rows,      one.out / dim, dim, one.keys, one.keys / plan_.context.of_unit(unit_).ring,
        one.met_keys()};
  }

  const PriceList& list_;
  const Plan& plan_;
  int unit_;
  std::vector<PricedPart> parts_;
};

void add_pass(PassPrice& sum, const PassPrice& one) {
  sum.forward += one.forward;
  sum.input += one.input;
  sum.weight += one.weight;
}

}  // namespace

BlockPrice block_price(const PriceList& list, const Plan& plan, int unit) {
  const BlockPricer pricer(list, plan, unit);
  BlockPrice price;
  for (const PricedPart& part : pricer.parts()) {
    const Product& one = part.product;
    if (one.is_attention()) {
      add_pass(price.attention, pricer.attention(one));
      price.attention_flops += pricer.attention_flops(one);
    } else if (one.in == 0) {
      add_pass(price.elements, pricer.elements(one));
    } else {
      add_pass(price.products, pricer.product(part));
      price.flops += one.flops();
    }
  }
  return price;
}

RepeatedWork repeated_work(const PriceList& list, const Plan& plan, int unit,
                           const BlockForm& form) {
  const BlockPricer pricer(list, plan, unit);
  RepeatedWork work;
  for (const PricedPart& part : pricer.parts()) {
    const Product& one = part.product;
    if (!one.part || !form.repeats(*one.part)) continue;
    if (one.is_attention()) {
      work.rest += pricer.attention(one).forward;
    } else if (one.in == 0) {
      work.rest += pricer.elements(one).forward;
    } else {
      work.products += pricer.product(part).forward;
    }
  }
  return work;
}

double expert_seconds(const PriceList& list, const Plan& plan, int unit, bool all) {
  const BlockPricer pricer(list, plan, unit);
  double seconds = 0;
  for (const PricedPart& part : pricer.parts()) {
    if (part.routed && part.product.in > 0 && (all || part.product.part)) {
      seconds += pricer.product(part).forward;
    }
  }
  return seconds;
}

PassPrice head_products(const PriceList& list, const Plan& plan) {
  const std::int64_t rows = plan.local.head_rows;
  const std::int64_t columns = plan.local.vocabulary;
  const std::int64_t hidden = plan.model.hidden;
  return {list.product({rows, columns, hidden}), list.product({rows, hidden, columns}),
          list.product({hidden, columns, rows, 1, true})};
}

PassPrice head_price(const PriceList& list, const Plan& plan) {
  PassPrice price = head_products(list, plan);
  const double logits = real(plan.local.head_rows) * real(plan.local.vocabulary);
  price.forward += list.memory(logits * list.machine().software.logit_bytes);
  return price;
}

}  // namespace trainctl
