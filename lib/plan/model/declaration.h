// The types in which a layer is declared: the rows of activations that it keeps, the products of
// its forward pass, and what it exchanges with other ranks for one micro-batch. FLOPs, the cost of
// repeated parts, traffic, its price and what hides it are sums over products, exchanges and calls;
// lib/nn makes its collectives from the same.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/attention_part.h"
#include "base/collectives.h"
#include "base/dtype.h"
#include "base/shape.h"
#include "plan/model/form.h"
#include "plan/tables/mesh.h"
#include "plan/tables/recompute_form.h"

namespace trainctl {

/// The moments of a micro-batch on one unit, in the order in which they come. A row lives from the
/// start of one to the end of another.
enum class Moment : std::uint8_t {
  fetch,     // the data of the unit's chunk is copied
  input,     // what the unit reads arrives: F of the unit below, or a receive
  forward,   // F
  offload,   // what F made is copied to the host
  gradient,  // the gradient of its output arrives: B of the unit above, or a receive
  reload,    // it is copied back
  repeat,    // R: parts of F again, whose rows were not kept
  backward,  // B
  weight,    // W
};

/// The use of a row.
enum class Storage : std::uint8_t {
  batch,      // the data of the micro-batch
  input,      // what a unit reads: recomputation starts from it
  forward,    // written in F for B and W
  statistic,  // the same, a number or two for each token
  gradient,   // gradients that B and W read
  message,    // to and from other stages
  repeated,   // of a repeated part: in F for F alone, and from R on
  staged,     // what goes to the host, from F until its copy and from the copy back
  host,       // the same between the copies, in memory of the host
  counted,    // numbers that the host reads, in its memory
  exchanged,  // on their way to experts and back, while a pass in legs is open
  shared,     // used within one row of the schedule: one for the whole rank
};

/// The micro-batches that have a row, where some keep more than the others.
enum class RowKind : std::uint8_t { all, usual, partial };

struct Life {
  Storage storage = Storage::forward;
  Moment from = Moment::forward;
  Moment until = Moment::weight;
};

/// The lives that rows have.
namespace life {
inline constexpr Life shared{Storage::shared, Moment::fetch, Moment::weight};
inline constexpr Life unit_input{Storage::input, Moment::input, Moment::backward};
inline constexpr Life weight_input{Storage::input, Moment::input, Moment::weight};
inline constexpr Life for_backward{Storage::forward, Moment::forward, Moment::backward};
inline constexpr Life for_weight{Storage::forward, Moment::forward, Moment::weight};
inline constexpr Life statistic{Storage::statistic, Moment::forward, Moment::backward};
inline constexpr Life made_again{Storage::repeated, Moment::repeat, Moment::weight};
inline constexpr Life on_host{Storage::host, Moment::offload, Moment::reload};
inline constexpr Life reloaded{Storage::staged, Moment::reload, Moment::weight};
inline constexpr Life host_counts{Storage::counted, Moment::forward, Moment::weight};
/// One row for F alone, and another one for R and B.
inline constexpr Life each_pass{Storage::exchanged, Moment::forward, Moment::backward};
inline constexpr Life output_gradient{Storage::gradient, Moment::backward, Moment::weight};
}  // namespace life

/// A row as its layer declares it. Where the shape has no dimensions, this layer has no such row.
struct RowSpec {
  Shape shape{};
  DType dtype = DType::f32;
  Life life{};
  std::optional<BlockPart> part{};  // of the forward, that makes it

  bool empty() const { return shape.rank() == 0; }
};

/// Where a declared row lies in the table of its stage: one row, or one for F, another for what
/// comes later and perhaps one on the host in between. -1: there is none.
struct RowCopies {
  int first = -1;
  int host = -1;
  int later = -1;

  /// The copy that F writes.
  int written() const { return first >= 0 ? first : later; }
};

// The rows of a layer are members of a struct template: of RowSpec where they are declared, of
// RowCopies where they have their place in the table, of Tensor in lib/nn. Its
// `visit(visitor, rows...)` calls visitor(name, member of each...) for every member, in the order
// of the table.

/// Makes a row of the same kind from each row of `from` by make(name, one).
template <class To, template <class> class Kind, class From, class Make>
Kind<To> each_row(const Kind<From>& from, const Make& make) {
  Kind<To> made;
  Kind<To>::visit([&](const char* name, To& to, const From& one) { to = make(name, one); }, made,
                  from);
  return made;
}

/// y [rows, out] = x [rows, in] times a matrix [in, out]. Where `in` is 0, y is made element by
/// element. Where `keys` is above 0 it is attention: no matrix, but the keys and the values of a
/// sequence of `keys` tokens, under the causal mask and `limits`.
struct Product {
  std::optional<BlockPart> part{};  // with which it is repeated; none: it never is
  std::int64_t rows = 0;
  std::int64_t in = 0;
  std::int64_t out = 0;
  std::int64_t written = 0;  // rows of y that this rank keeps; 0: all
  std::int64_t keys = 0;
  KeyLimits limits{};  // of attention

  bool is_attention() const { return keys > 0; }
  /// Keys that a query of attention meets, of all of them on average.
  double met_keys() const { return limits.pairs(keys) / static_cast<double>(keys); }
  /// A multiply and an add each. Exact up to 2^53.
  double flops() const;
  /// Elements that are kept of y.
  double elements() const;
};

using Products = std::vector<Product>;

/// FLOPs of the products with a matrix: without attention and element-wise ones.
double matrix_flops(const Products& products);

/// Over tp: F turns a tensor from one layout into another, B its gradient from the dual of `to`
/// into that of `from`.
struct Exchange {
  Cargo cargo = Cargo::mlp;
  Layout from = Layout::invariant;
  Layout to = Layout::invariant;
  std::int64_t elements = 0;        // of the whole tensor
  std::optional<DType> type{};      // of them; none: as the residual stream
  std::optional<BlockPart> part{};  // with which it is repeated; none: it never is
  bool stays = false;               // what it makes may be kept for R and W (BlockForm::gathered)
  bool again_in_weight = false;     // W needs it once more, unless that was kept
  // The transfers that overlap products, as RegionOverlap says.
  bool weights_in_back = false;  // B makes the weight gradients of what reads it
  bool forward_chunks = false, backward_chunks = false;
  bool forward_whole = false, backward_whole = false;
};
using Exchanges = std::vector<Exchange>;

/// Between the residual stream and an operator that reads one of these and makes the other.
struct StreamRegion {
  Cargo cargo = Cargo::mlp;
  BlockPart first = BlockPart::mlp;  // begins with what the operator reads
  std::optional<BlockPart> last{};   // makes its output; none: that is never repeated
  SplitBy split = SplitBy::features;
  RegionOverlap overlap{};
};
/// The exchange of the operator's input, then that of its output.
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
  std::int64_t chunks = 1;  // number of calls, each with a part of the rows
  bool at_most = false;     // the rows depend on the data, and these are the most

  std::int64_t bytes() const { return rows * width * size_of(type); }
};
using LayerCalls = std::vector<LayerCall>;

}  // namespace trainctl
