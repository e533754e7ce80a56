#include "plan/tables/layout.h"

#include "catch.h"

using namespace trainctl;

namespace {

constexpr Layout all[] = {Layout::invariant, Layout::replicated, Layout::tokens, Layout::features,
                          Layout::partial};

constexpr bool backward_exists() {
  for (Layout from : all) {
    for (Layout to : all) {
      if (transition(from, to) && !transition(dual(to), dual(from))) return false;
    }
  }
  return true;
}
static_assert(backward_exists(), "the dual of every legal transition is legal");
// Megatron's f and g, and the gather and scatter of sequence parallelism.
static_assert(transition(Layout::invariant, Layout::replicated) == Collective::none);
static_assert(transition(dual(Layout::replicated), dual(Layout::invariant)) ==
              Collective::all_reduce);
static_assert(transition(Layout::partial, Layout::invariant) == Collective::all_reduce);
static_assert(transition(dual(Layout::invariant), dual(Layout::partial)) == Collective::none);
static_assert(transition(Layout::tokens, Layout::replicated) == Collective::all_gather_tokens);
static_assert(transition(dual(Layout::replicated), dual(Layout::tokens)) ==
              Collective::reduce_scatter_tokens);

}  // namespace

TEST_CASE("dual is its own inverse", "[layout]") {
  for (Layout layout : all) CHECK(dual(dual(layout)) == layout);
}

TEST_CASE("gradients are summed exactly where the output is not the same everywhere", "[layout]") {
  CHECK(gradient_is_summed(Layout::tokens));
  CHECK(gradient_is_summed(Layout::features));
  CHECK(gradient_is_summed(Layout::replicated));
  CHECK_FALSE(gradient_is_summed(Layout::invariant));
}

TEST_CASE("a whole value cannot come from a replicated one", "[layout]") {
  CHECK_FALSE(transition(Layout::replicated, Layout::tokens).has_value());
  CHECK_FALSE(transition(Layout::tokens, Layout::partial).has_value());
}
