// The field list of the section optimizer.muon.
#pragma once

#include "config/schema/config.h"
#include "config/schema/field.h"

namespace trainctl {

template <class Visitor>
void fields(Visitor& visit, Is<MuonConfig> auto& muon) {
  visit(muon.momentum, field("momentum", "Decay of the mean of gradients").from(0).below(1));
  visit(muon.nesterov, field("nesterov", "Look one step of the momentum ahead"));
  visit(muon.coefficients,
        field("coefficients",
              "Of the steps that make a matrix orthogonal: a set by name, or a list of [a, b, c]"));
  visit(muon.steps, field("steps",
                          "How many steps; beyond the set, simple and quintic begin again, "
                          "the others repeat their last")
                        .from(1)
                        .to(100)
                        .unset("the length of the set; simple: 5"));
  visit(muon.scale, field("scale",
                          "How long a step is, by the rows m and columns n of a matrix: 0.2 "
                          "sqrt(max(m, n)), so that AdamW's rates fit; sqrt(max(m, n)); "
                          "sqrt(max(1, m / n)); sqrt(m / n)"));
  visit(muon.scale_factor, field("scale_factor", "Times that").above(0));
  visit(muon.eps, field("eps", "Least norm that is divided by").from(0));
  visit(muon.ns_dtype, field("ns_dtype",
                             "Type of the products; auto: bf16 on CUDA if "
                             "precision.compute has 16 bits, else fp32"));
  visit(muon.items,
        field("items",
              "What one matrix is instead of one parameter: gate over up, q over k over "
              "v, each head; a list"));
}

}  // namespace trainctl
