#include "plan/model/declaration.h"

namespace trainctl {

namespace {

double exact(std::int64_t value) { return static_cast<double>(value); }

}  // namespace

double Product::flops() const {
  // Each query meets, under the causal mask alone, half of the keys and itself: a product with keys
  // and one with values.
  if (is_attention()) return 4 * exact(rows) * exact(out) * met_keys();
  return 2 * exact(rows) * exact(in) * exact(out);
}

double matrix_flops(const Products& products) {
  double flops = 0;
  for (const Product& one : products) flops += one.is_attention() ? 0 : one.flops();
  return flops;
}

double Product::elements() const { return exact(written > 0 ? written : rows) * exact(out); }

Exchanges region_exchanges(const LayerForm& form, const LayerShare& share, Cargo cargo,
                           BlockPart first, std::optional<BlockPart> last, SplitBy split,
                           const RegionOverlap& given) {
  // Only an operator that is split by features has transfers to overlap.
  const RegionOverlap overlap = split == SplitBy::features ? given : RegionOverlap{};
  return {{.cargo = cargo,
           .from = share.stream,
           .to = input_layout(split),
           .elements = share.stream_elements(form),
           .part = first,
           .stays = true,
           .again_in_weight = gathers(share.stream, split),
           .weights_in_back = overlap.weights_in_back,
           .forward_chunks = overlap.gather,
           .backward_chunks = overlap.scatter_back,
           .forward_whole = overlap.gather_again,
           .backward_whole = overlap.scatter_whole},
          {.cargo = cargo,
           .from = output_layout(split),
           .to = share.stream,
           .elements = share.stream_elements(form),
           .part = last,
           .forward_chunks = overlap.scatter,
           .backward_chunks = overlap.gather_back}};
}

}  // namespace trainctl
