// What a layer's declaration says of a row of the activation table, and where the row lies in it.
#pragma once

#include <cstdint>
#include <optional>

#include "base/dtype.h"
#include "base/shape.h"
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

/// What a row is for.
enum class Storage : std::uint8_t {
  batch,      // the data of the micro-batch
  input,      // what a unit reads: recomputation starts from it
  forward,    // written in F for B and W
  statistic,  // the same, a number or two for each token
  gradient,   // gradients that B and W read
  message,    // to and from other stages
  repeated,   // of a part that is made again: in F for F alone, and from R on
  staged,     // what goes to the host, from F until its copy and from the copy back
  host,       // the same between the copies, in memory of the host
  counted,    // numbers that the host reads, in its memory
  exchanged,  // on their way to experts and back, while a pass in legs is open
  shared,     // used within one row of the schedule: one for the whole rank
};

/// Of which micro-batches a row is, where some keep more than the others.
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
/// Of F alone, and another row of R and B.
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

  /// What F writes.
  int written() const { return first >= 0 ? first : later; }
};

// The rows of a layer are members of a struct template: of RowSpec where they are declared, of
// RowCopies where they have their place in the table, of Tensor in lib/nn. Its
// `visit(visitor, rows...)` calls visitor(name, member of each...) for every member, in the order
// of the table.

/// The same kind of rows, each made of one of `from` by make(name, one).
template <class To, template <class> class Kind, class From, class Make>
Kind<To> each_row(const Kind<From>& from, const Make& make) {
  Kind<To> made;
  Kind<To>::visit([&](const char* name, To& to, const From& one) { to = make(name, one); }, made,
                  from);
  return made;
}

}  // namespace trainctl
