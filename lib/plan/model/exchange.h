// What a layer exchanges with other ranks for one micro-batch. Traffic, its price and what products
// hide of it are sums over these; lib/nn makes its collectives from the same.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/group_operation.h"
#include "plan/model/share.h"
#include "plan/tables/recompute_form.h"
#include "plan/tables/traffic.h"

namespace trainctl {

/// Over tp: F turns a tensor from one layout into another, B its gradient from the dual of `to`
/// into that of `from`.
struct Exchange {
  Cargo cargo = Cargo::mlp;
  Layout from = Layout::invariant;
  Layout to = Layout::invariant;
  std::int64_t elements = 0;        // of the whole tensor
  std::optional<DType> type{};      // of them; none: as the residual stream
  std::optional<BlockPart> part{};  // with which it is made again; none: it never is
  bool stays = false;               // what it makes may be kept for R and W (BlockForm::gathered)
  bool again_in_weight = false;     // W needs it once more, unless that was kept
  // What is made beside products, as RegionOverlap says.
  bool weights_in_back = false;  // B makes the weight gradients of what reads it
  bool forward_chunks = false, backward_chunks = false;
  bool forward_whole = false, backward_whole = false;
};
using Exchanges = std::vector<Exchange>;

/// Between the residual stream and an operator that reads one of these and makes the other.
struct StreamRegion {
  Cargo cargo = Cargo::mlp;
  BlockPart first = BlockPart::mlp;  // begins with what the operator reads
  std::optional<BlockPart> last{};   // makes its output; none: that is never made again
  SplitBy split = SplitBy::features;
  RegionOverlap overlap{};
};
/// What the operator reads, then what it makes.
Exchanges region_exchanges(const LayerForm& form, const LayerShare& share,
                           const StreamRegion& region);

/// A call other than a transition between layouts.
struct LayerCall {
  GroupOperation operation = GroupOperation::all_gather;
  Cargo cargo = Cargo::scores;
  GroupKind group{};
  std::int64_t ranks = 1;           // of the group
  bool backward = false;            // in B, else in F
  bool returns = false;             // of rows of experts: to the ranks of their tokens
  std::optional<BlockPart> part{};  // with which F makes it again; none: it never does
  std::int64_t count = 1;           // of such calls
  std::int64_t rows = 0;            // of one
  std::int64_t width = 1;
  DType type = DType::f32;
  std::int64_t chunks = 1;  // in so many calls, with a part of the rows each
  bool at_most = false;     // the rows depend on the data, and these are the most

  std::int64_t bytes() const { return rows * width * size_of(type); }
};
using LayerCalls = std::vector<LayerCall>;

}  // namespace trainctl
