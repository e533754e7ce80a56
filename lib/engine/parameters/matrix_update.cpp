#include "engine/parameters/matrix_update.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/at.h"
#include "engine/parameters/exchange.h"
#include "engine/parameters/optimizer.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/rows.h"
#include "plan/tables/mesh.h"

namespace trainctl {

namespace {

std::vector<SlabRow> slab_rows_of(const Plan& plan, std::int64_t rank) {
  const int stage = static_cast<int>(plan.mesh.coordinate(rank, Axis::pp));
  std::vector<SlabRow> rows;
  for (const MatrixBuffer& one : matrix_buffers(matrix_sizes(plan, stage), plan.matrix_products)) {
    rows.push_back({one.name, Shape{one.elements}, one.type});
  }
  return rows;
}

std::int64_t total(const std::vector<std::int64_t>& counts) {
  std::int64_t sum = 0;
  for (const std::int64_t count : counts) sum += count;
  return sum;
}

/// The first elements of a buffer as a tensor of that shape, in `type`.
Tensor begin_of(const Tensor& buffer, const Shape& shape, DType type) {
  return {buffer.data, shape, type, buffer.device};
}

/// How far a step goes along the orthogonal matrix of these sides.
double scale_of(const MuonConfig& muon, double rows, double columns) {
  const double longer = std::max(rows, columns);
  switch (muon.scale) {
    case MuonScale::match_adamw: return muon.scale_factor * 0.2 * std::sqrt(longer);
    case MuonScale::spectral: return muon.scale_factor * std::sqrt(longer);
    case MuonScale::shape: return muon.scale_factor * std::sqrt(std::max(1.0, rows / columns));
    case MuonScale::unit_rms: break;
  }
  return muon.scale_factor * std::sqrt(rows / columns);
}

}  // namespace

MatrixUpdate::MatrixUpdate(const MuonConfig& muon, const Plan& plan, const ParamStore& store,
                           const StepState* state, const DeviceWorld& world, Stream& stream)
    : muon_(muon),
      triples_(muon_steps(muon)),
      memory_(world.device(), slab_rows_of(plan, world.rank())) {
  const StagePlan& stage = plan.stage_of(world.rank());
  if (stage.matrices.empty()) return;
  const std::vector<int> ranks =
      stage_ranks(plan.mesh, plan.mesh.coordinate(world.rank(), Axis::pp));
  if (ranks.size() > 1) {
    ranks_ = world.group(group_name(TrafficPurpose::parameters, stage_group), ranks,
                         {.carries = Carries::all});
  }
  const Places places{plan, store, state, world.rank(), stream};
  for (MatrixRound& planned : matrix_rounds(plan, world.rank())) {
    Round& round = rounds_.emplace_back();
    round.plan = std::move(planned);
    add_updates(round, places);
    if (round.plan.work >= 0) add_matrices(round, at(stage.matrices, round.plan.work), stream);
  }
}

Tensor MatrixUpdate::wire() const {
  return memory_.at(memory_.contains("narrow values") ? "narrow values" : "values");
}

void MatrixUpdate::add_updates(Round& round, const Places& places) const {
  const StagePlan& stage = places.plan.stage_of(places.rank);
  const Tensor values = memory_.at("values");
  const bool narrow = wire().dtype != DType::f32;
  std::vector<Update> directions;
  std::vector<Update> steps;
  for (const OwnedPart& part : round.plan.owned) {
    const MatrixWork& work = at(stage.matrices, part.work);
    const Slice owned = places.store.owned(part.parameter);
    const Slice here{part.slice.begin - owned.begin, part.slice.end - owned.begin};
    const auto of = [&](const Tensor& whole) { return flat(whole).slice(here.begin, here.end); };
    const auto at_place = [&](const Tensor& buffer, std::int64_t begin) {
      return buffer.slice(begin, begin + here.length());
    };
    Update direction{
        .rule = UpdateRule::muon_direction,
        .parameter = at_place(values, part.outgoing),
        .gradient = of(places.store.owned_gradient(part.parameter)),
        .states = {of(places.store.state(part.parameter, 0))},
        .constants = {.momentum = static_cast<float>(muon_.momentum), .nesterov = muon_.nesterov},
        .state = places.state};
    if (narrow) direction.compute = at_place(wire(), part.outgoing);
    directions.push_back(direction);
    const ParamSpec& spec = at(stage.parameters, part.parameter);
    Update step{.rule = UpdateRule::muon_step,
                .parameter = of(places.store.master(part.parameter)),
                .gradient = at_place(wire(), part.incoming),
                .decay = spec.decay,
                .rounding = rounding_of(spec, owned, places.plan.mesh, places.rank),
                .state = places.state};
    step.constants.rate_factor = static_cast<float>(spec.rate_factor);
    step.constants.decay_factor = static_cast<float>(spec.decay_factor);
    step.constants.scale =
        static_cast<float>(scale_of(muon_, static_cast<double>(work.matrix_rows()),
                                    static_cast<double>(work.matrix_columns())));
    step.rounding.skip += here.begin;
    const Tensor rounded = places.store.rounded(part.parameter);
    if (!rounded.empty()) step.compute = of(rounded);
    steps.push_back(step);
  }
  if (directions.empty()) return;
  round.directions = Calls<Update>(std::move(directions), &places.stream);
  round.steps = Calls<Update>(std::move(steps), &places.stream);
}

void MatrixUpdate::add_matrices(Round& round, const MatrixWork& work, Stream& stream) const {
  const Tensor stack = memory_.at("stack");
  auto* squares = static_cast<double*>(memory_.at("squares").data);
  const Shape shape{work.matrix_rows(), work.matrix_columns()};
  round.columns = work.columns;
  for (std::int64_t i = 0; i < work.matrices; ++i) {
    Matrix& one = round.matrices.emplace_back();
    if (work.matrices == 1) {
      one.x = stack.slice(0, shape.numel()).view(shape);
    } else {
      one.x = memory_.at("matrix").slice(0, shape.numel()).view(shape);
      one.apart = stack.slice(i * (work.by_columns ? shape[1] : shape.numel()), stack.numel());
    }
    one.squares = Calls<SquareSum>({{.x = flat(one.x), .result = squares}}, &stream);
  }
}

void MatrixUpdate::fill_stack(const Round& round, const OpContext& context) const {
  const Tensor stack = memory_.at("stack");
  const Tensor from = ranks_ ? begin_of(memory_.at("product"), stack.shape, stack.dtype) : wire();
  for (const MatrixRows& rows : round.plan.in) {
    copy_rows(context, {.x = from.slice(rows.packed, from.numel()),
                        .y = stack.slice(rows.stacked, stack.numel()),
                        .rows = rows.rows,
                        .length = rows.length,
                        .x_step = rows.length,
                        .y_step = rows.rows > 1 ? round.columns : rows.length});
  }
}

void MatrixUpdate::send_results(const Round& round, const OpContext& context) const {
  const Tensor stack = memory_.at("stack");
  const Tensor to = ranks_ ? memory_.at("results") : wire();
  for (const MatrixRows& rows : round.plan.out) {
    copy_rows(context, {.x = stack.slice(rows.stacked, stack.numel()),
                        .y = to.slice(rows.packed, to.numel()),
                        .rows = rows.rows,
                        .length = rows.length,
                        .x_step = rows.rows > 1 ? round.columns : rows.length,
                        .y_step = rows.length});
  }
}

/// X <- aX + (bA + cA^2)X with A = XX^T, or from the right with A = X^T X where that is smaller.
void MatrixUpdate::iterate(const Tensor& x, const OpContext& context) const {
  const bool left = x.shape[0] <= x.shape[1];
  const std::int64_t side = left ? x.shape[0] : x.shape[1];
  const Tensor gram = begin_of(memory_.at("gram"), Shape{side, side}, x.dtype);
  const Tensor squared = begin_of(memory_.at("gram product"), Shape{side, side}, DType::f32);
  const Tensor product = begin_of(memory_.at("product"), x.shape, DType::f32);
  for (const MuonTriple& triple : triples_) {
    const auto number = [&](int i) { return static_cast<float>(at(triple, i)); };
    matmul(
        context,
        {.a = x, .b = x, .c = gram, .transpose_a = !left, .transpose_b = left, .by_shape = true});
    matmul(context, {.a = gram, .b = gram, .c = squared, .by_shape = true});
    scaled_sum(context,
               {.x = gram, .y = squared, .z = gram, .alpha = number(1), .beta = number(2)});
    matmul(context, {.a = left ? gram : x, .b = left ? x : gram, .c = product, .by_shape = true});
    scaled_sum(context, {.x = x, .y = product, .z = x, .alpha = number(0)});
  }
}

void MatrixUpdate::make_orthogonal(const Matrix& matrix, const Round& round,
                                   const OpContext& context) const {
  const Tensor& x = matrix.x;
  const CopyRows copy{.x = matrix.apart,
                      .y = flat(x),
                      .rows = x.shape[0],
                      .length = x.shape[1],
                      .x_step = round.columns,
                      .y_step = x.shape[1]};
  if (!matrix.apart.empty()) copy_rows(context, copy);
  const Tensor squares = memory_.at("squares");
  context.stream->zero(squares);
  square_sum(context, matrix.squares);
  scaled_sum(context, {.x = x,
                       .z = x,
                       .squares = static_cast<const double*>(squares.data),
                       .least = static_cast<float>(muon_.eps)});
  iterate(x, context);
  if (matrix.apart.empty()) return;
  copy_rows(context, {.x = copy.y,
                      .y = copy.x,
                      .rows = copy.rows,
                      .length = copy.length,
                      .x_step = copy.y_step,
                      .y_step = copy.x_step});
}

void MatrixUpdate::step(const OpContext& context) const {
  Stream& stream = *context.stream;
  for (const Round& round : rounds_) {
    update(context, round.directions);
    const Tensor values = wire();
    if (ranks_) {
      const Tensor arriving =
          begin_of(memory_.at("product"), Shape{total(round.plan.receive)}, values.dtype);
      ranks_->all_to_all(values.slice(0, total(round.plan.send)), round.plan.send, arriving,
                         round.plan.receive, stream);
    }
    if (round.plan.work >= 0) {
      fill_stack(round, context);
      for (const Matrix& matrix : round.matrices) make_orthogonal(matrix, round, context);
      send_results(round, context);
    }
    if (ranks_) {
      ranks_->all_to_all(memory_.at("results").slice(0, total(round.plan.return_send)),
                         round.plan.return_send, values.slice(0, total(round.plan.return_receive)),
                         round.plan.return_receive, stream);
    }
    update(context, round.steps);
  }
}

}  // namespace trainctl
