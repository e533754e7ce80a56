#include "engine/parameters/grad_norm.h"

#include <algorithm>
#include <utility>

#include "base/at.h"
#include "plan/ownership/ownership.h"

namespace trainctl {

GradNorm::GradNorm(const ParamStore& store, Group& everyone, const Rule& rule, StepState* state,
                   Stream& stream)
    : everyone_(everyone),
      sums_(store.made_gradients().device, {{"sums", {everyone.size(), 2}, DType::f64}}),
      own_{state->square_sums, {2}, DType::f64, store.made_gradients().device},
      parts_(parts(store), &stream) {
  const LossScaling& scaling = rule.scaling;
  verdict_ = {.square_sums = sums_.at("sums"),
              .limit = rule.limit,
              .growth = scaling.growth,
              .backoff = scaling.backoff,
              .least = scaling.least,
              .window = scaling.window,
              .hysteresis = scaling.hysteresis,
              .state = state};
}

/// What this rank owns, in as few pieces of memory as it goes. The gaps between gradients that are
/// whole are 0.
std::vector<SquareSum> GradNorm::parts(const ParamStore& store) const {
  struct Piece {
    Tensor all, values;
    double* sum = nullptr;
    bool whole = false;
    std::int64_t begin = 0;  // in `all`
  };
  std::vector<Piece> pieces;
  for (int i = 0; i < static_cast<int>(store.table().size()); ++i) {
    const Ownership& own = at(store.ownership().parameters, i);
    // What another rank updates keeps its place, where it parts its neighbours.
    const Tensor place = store.repeats(i) ? store.summed_gradients(i) : store.made_gradient(i);
    const Tensor values = own.owned.length() > 0 ? store.owned_gradient(i) : place.slice(0, 0);
    const bool whole =
        !store.repeats(i) && own.owned.length() == at(store.table(), i).shape.numel();
    double* const sum = own_.elements<double>() + (own.counts ? 0 : 1);
    const Tensor all = store.summed_gradients(i);
    const std::int64_t bytes =
        static_cast<std::byte*>(values.data) - static_cast<std::byte*>(all.data);
    pieces.push_back({all, values, sum, whole, bytes / size_of(all.dtype)});
  }
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
    return std::pair(a.all.data, a.begin) < std::pair(b.all.data, b.begin);
  });
  std::vector<SquareSum> made;
  const void* memory = nullptr;  // of the last part
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool whole = false;  // its last piece
  for (const Piece& piece : pieces) {
    if (piece.values.numel() == 0) {  // another rank's: not a gap
      whole = false;
      continue;
    }
    const std::int64_t last = piece.begin + piece.values.numel();
    const bool goes_on = memory == piece.all.data && made.back().result == piece.sum &&
                         (piece.begin == end || (whole && piece.whole));
    if (!goes_on) {
      memory = piece.all.data;
      begin = piece.begin;
      made.push_back({{}, piece.sum});
    }
    made.back().x = piece.all.slice(begin, last);
    end = last;
    whole = piece.whole;
  }
  return made;
}

void GradNorm::run(const OpContext& context) {
  context.stream->zero(own_);
  if (!parts_.list().empty()) square_sum(context, parts_);
  everyone_.all_gather(own_, sums_.at("sums"), *context.stream);
  step_verdict(context, verdict_);
}

}  // namespace trainctl
