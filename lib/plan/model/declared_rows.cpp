#include "plan/model/declared_rows.h"

#include <algorithm>

namespace trainctl {

const BlockRows& DeclaredRows::block(int unit, bool keeps_more) const {
  const RowKind kind = keeps_more ? RowKind::partial : RowKind::usual;
  return *std::ranges::find_if(blocks, [&](const BlockRows& one) {
    return one.unit == unit && (one.kind == RowKind::all || one.kind == kind);
  });
}

int ChunkRows::input(int chunk) const {
  const UnitRange& range = of(chunk);
  return range.empty() ? messages(chunk).input.later : input_of(range.begin);
}

int ChunkRows::output_gradient(int chunk) const {
  const UnitRange& range = of(chunk);
  return range.empty() ? messages(chunk).d_output.later : gradient_of(range.end - 1);
}

int ChunkRows::output(int chunk) const {
  if (places.sends(stage, chunk)) return messages(chunk).output.later;
  return input(places.after(stage, chunk)->chunk);
}

int ChunkRows::input_gradient(int chunk) const {
  if (places.receives(stage, chunk)) return messages(chunk).d_input.later;
  return output_gradient(places.before(stage, chunk)->chunk);
}

int ChunkRows::output_of(int chunk, int unit) const {
  return unit + 1 == of(chunk).end ? output(chunk) : input_of(unit + 1);
}

int ChunkRows::input_gradient_of(int chunk, int unit) const {
  return unit == of(chunk).begin ? input_gradient(chunk) : gradient_of(unit - 1);
}

int ChunkRows::input_of(int unit) const {
  return unit == head_unit(layers) ? rows.head.input.later : block(unit).input.written();
}

int ChunkRows::gradient_of(int unit) const {
  return unit == 0 ? rows.embedded_gradient.later : block(unit).d_output.later;
}

}  // namespace trainctl
