#include "engine/parameters/grad_norm.h"

#include <algorithm>

#include "base/at.h"
#include "ops/square_sum.h"
#include "plan/ownership/ownership.h"

namespace trainctl {

GradNorm::GradNorm(const ParamStore& store, Group& everyone, const Rule& rule, StepState* state)
    : everyone_(everyone),
      parts_(parts(store)),
      sums_(store.gradients().device, {{"sums", {everyone.size(), 2}, DType::f64}}),
      own_{state->square_sums, {2}, DType::f64, store.gradients().device} {
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
std::vector<GradNorm::Part> GradNorm::parts(const ParamStore& store) const {
  struct Piece {
    Tensor values;
    std::size_t sum = 0;
    bool whole = false;
    std::ptrdiff_t begin = 0;  // from the start of all gradients
  };
  std::vector<Piece> pieces;
  const Tensor all = store.gradients();
  for (int i = 0; i < static_cast<int>(store.table().size()); ++i) {
    const Ownership& own = at(store.ownership().parameters, i);
    const Tensor values =
        own.owned.length() > 0 ? store.owned_gradient(i) : store.made_gradient(i).slice(0, 0);
    const bool whole =
        !store.repeats(i) && own.owned.length() == at(store.table(), i).shape.numel();
    const std::size_t sum = own.counts ? 0 : 1;
    pieces.push_back({values, sum, whole, values.elements<float>() - all.elements<float>()});
  }
  std::sort(pieces.begin(), pieces.end(),
            [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
  std::vector<Part> made;
  std::ptrdiff_t begin = 0;  // of the last part
  std::ptrdiff_t end = 0;
  bool whole = false;  // its last piece
  for (const Piece& piece : pieces) {
    if (piece.values.numel() == 0) {  // another rank's: not a gap
      whole = false;
      continue;
    }
    const std::ptrdiff_t last = piece.begin + piece.values.numel();
    const bool goes_on = !made.empty() && made.back().sum == piece.sum &&
                         (piece.begin == end || (whole && piece.whole));
    if (!goes_on) {
      begin = piece.begin;
      made.push_back({{}, piece.sum});
    }
    made.back().gradients = all.slice(begin, last);
    end = last;
    whole = piece.whole;
  }
  return made;
}

void GradNorm::run(const OpContext& context) {
  context.stream->zero(own_);
  for (const Part& part : parts_) {
    square_sum(context, {.x = part.gradients, .result = own_.elements<double>() + part.sum});
  }
  everyone_.all_gather(own_, sums_.at("sums"), *context.stream);
  step_verdict(context, verdict_);
}

}  // namespace trainctl
