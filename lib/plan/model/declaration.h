// The types that declare a layer: its activation rows, the products of its forward pass, and its
// exchanges with other ranks for one micro-batch. FLOPs, the cost of recomputation, traffic, its
// seconds and its overlap are sums over products, exchanges and calls. lib/nn builds its
// collectives from the same declarations.
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

/// The moments of a micro-batch on one unit, in their order. A row of the activation table lives
/// from the start of one moment to the end of another.
enum class Moment : std::uint8_t {
  fetch,     // the data of the unit's chunk is copied
  input,     // the unit's input arrives: by F of the unit below, or a receive
  forward,   // F, the forward pass
  offload,   // activations of F are copied to the host
  gradient,  // the output's gradient arrives: by B of the unit above, or a receive
  reload,    // activations are copied back from the host
  repeat,    // R: recomputes parts of F whose rows were not kept
  backward,  // B, the gradient of the unit's input
  weight,    // W, the gradients of the unit's weights
};

/// The use of an activation row, by which the estimate groups memory.
enum class Storage : std::uint8_t {
  batch,      // data of the micro-batch
  input,      // input of a unit, from which recomputation starts
  forward,    // written in F for B and W
  statistic,  // one or two numbers per token, written in F for B and W
  gradient,   // gradients that B and W read
  message,    // messages to and from other stages
  repeated,   // rows of a recomputed part: one copy for F alone, one from R on
  staged,     // device copy of an offloaded row, before and after its host copy
  host,       // host copy of an offloaded row
  counted,    // numbers that the host reads, in host memory
  exchanged,  // rows sent to experts and back, while a pass in legs is open
  shared,     // scratch within one row of the schedule, shared by the rank
};

/// The micro-batches for which a row exists, if some keep more activations than others.
enum class RowKind : std::uint8_t { all, usual, partial };

struct Life {
  Storage storage = Storage::forward;
  Moment from = Moment::forward, until = Moment::weight;
};

/// The usual lives of rows.
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
/// One copy for F alone, and another one for R and B.
inline constexpr Life each_pass{Storage::exchanged, Moment::forward, Moment::backward};
inline constexpr Life output_gradient{Storage::gradient, Moment::backward, Moment::weight};
}  // namespace life

/// A row as its layer declares it. An empty shape means that this layer has no such row.
struct RowSpec {
  Shape shape{};
  DType dtype = DType::f32;
  Life life{};
  std::optional<BlockPart> part{};  // part of the forward that computes the row

  bool empty() const { return shape.rank() == 0; }
};

/// Indices of a declared row in the activation table: one for F and one for later, which may be
/// equal, and perhaps one for a host copy in between. -1 = no such copy.
struct RowCopies {
  int first = -1, host = -1, later = -1;

  /// The copy that F writes.
  int written() const { return first >= 0 ? first : later; }
};

// The rows of a layer are members of a struct template: of RowSpec in declarations, of RowCopies
// with indices in the table, of Tensor in lib/nn. Its `visit(visitor, rows...)` calls visitor(name,
// member of each...) for every member, in the order of the table.

/// Returns the same struct with rows of another type: make(name, row) for each row of `from`.
template <class To, template <class> class Kind, class From, class Make>
Kind<To> each_row(const Kind<From>& from, const Make& make) {
  Kind<To> made;
  Kind<To>::visit([&](const char* name, To& to, const From& one) { to = make(name, one); }, made,
                  from);
  return made;
}

/// y [rows, out] = x [rows, in] times a matrix [in, out]. If `in` is 0, y is computed element by
/// element. If `keys` is above 0, it is attention: instead of a matrix, the keys and values of a
/// sequence of `keys` tokens, under the causal mask and `limits`.
struct Product {
  std::optional<BlockPart> part{};  // part that includes the exchange in R, if any
  std::int64_t rows = 0, in = 0, out = 0;
  std::int64_t written = 0;  // rows of y that this rank keeps; 0 = all
  std::int64_t keys = 0;
  KeyLimits limits{};        // used for attention
  std::int64_t experts = 0;  // routed experts of a rank that share the rows; 0 = not of routed ones

  bool is_attention() const { return keys > 0; }
  /// Number of keys that a query of attention sees, on average.
  double met_keys() const { return limits.pairs(keys) / static_cast<double>(keys); }
  /// Counts a multiply and an add as two. Exact up to 2^53.
  double flops() const;
  /// Number of elements of y that this rank keeps.
  double elements() const;
};

using Products = std::vector<Product>;

/// FLOPs of products with a matrix; attention and element-wise operations do not count.
double matrix_flops(const Products& products);

/// An exchange over tp. F changes a tensor's layout from `from` to `to`; B changes that of its
/// gradient from the dual of `to` to the dual of `from`.
struct Exchange {
  Cargo cargo = Cargo::mlp;
  Layout from = Layout::invariant, to = Layout::invariant;
  std::int64_t elements = 0;        // number of elements of the whole tensor, over all ranks
  std::optional<DType> type{};      // dtype; unset = that of the residual stream
  std::optional<BlockPart> part{};  // part that includes the exchange in R, if any
  bool stays = false;               // whether R and W may read a kept result (BlockForm::gathered)
  bool again_in_weight = false;     // whether W repeats it, if the result was not kept
  // Transfers that overlap products (RegionOverlap).
  bool weights_in_back = false;  // B computes the readers' weight gradients
  bool forward_chunks = false, backward_chunks = false;
  bool forward_whole = false, backward_whole = false;
};
using Exchanges = std::vector<Exchange>;

/// The exchanges of the input and of the output of an operator that reads the residual stream and
/// adds to it. The first is in part `first`, the second in `last`; unset = never recomputed.
Exchanges region_exchanges(const LayerForm& form, const LayerShare& share, Cargo cargo,
                           BlockPart first, std::optional<BlockPart> last, SplitBy split,
                           const RegionOverlap& overlap = {});

/// A collective or message other than a change between layouts.
struct LayerCall {
  GroupOperation operation = GroupOperation::all_gather;
  Cargo cargo = Cargo::scores;
  GroupKind group{};
  std::int64_t ranks = 1;           // number of ranks in the group
  bool backward = false;            // call in B; if false, in F
  bool returns = false;             // returns rows of experts to the ranks of their tokens
  std::optional<BlockPart> part{};  // part that includes the call in R, if any
  std::int64_t count = 1;           // number of such calls
  std::int64_t rows = 0;            // rows of one call
  std::int64_t width = 1;
  DType type = DType::f32;
  std::int64_t chunks = 1;  // number of calls, each with a part of the rows
  bool at_most = false;     // rows depend on the data, and this is the upper bound

  std::int64_t bytes() const { return rows * width * size_of(type); }
};
using LayerCalls = std::vector<LayerCall>;

}  // namespace trainctl
