#include "engine/parameters/optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <numeric>
#include <utility>

#include "base/at.h"
#include "base/integers.h"
#include "config/schema/optimizers.h"
#include "engine/parameters/sync.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/router.h"
#include "ops/rows.h"
#include "plan/ownership/ownership.h"
#include "plan/tables/mesh.h"
#include "plan/tables/shard.h"

namespace trainctl {

namespace {

UpdateConstants constants_of(const OptimizerConfig& config, const ParamSpec& spec) {
  return {.beta1 = static_cast<float>(config.beta1),
          .beta2 = static_cast<float>(config.beta2),
          .epsilon = static_cast<float>(config.eps),
          .momentum = static_cast<float>(config.momentum),
          .coupled = config.weight_decay_form == "coupled",
          .rate_factor = static_cast<float>(spec.rate_factor),
          .decay_factor = static_cast<float>(spec.decay_factor)};
}

}  // namespace

/// The pieces of every shard are equally long and equally far apart, so the first two describe the
/// place of all pieces in the whole parameter.
RandomRounding rounding_of(const ParamSpec& spec, const Slice& owned, const Mesh& mesh,
                           std::int64_t rank) {
  const std::vector<BoxRun> pieces = shard_pieces(spec, mesh, rank);
  RandomRounding rounding{.tensor = fnv1a(spec.name), .first = pieces.front().from};
  rounding.skip = owned.begin;
  if (pieces.size() < 2) return rounding;
  rounding.run = pieces[0].length;
  rounding.stride = pieces[1].from - pieces[0].from;
  return rounding;
}

Optimizer::Optimizer(const OptimizerConfig& config, const ParamStore& store, const StepState* state,
                     const Mesh& mesh, std::int64_t rank, Stream& stream) {
  std::array<std::vector<Update>, std::size(optimizer_rows)> by_row;
  for (int i = 0; i < static_cast<int>(store.table().size()); ++i) {
    if (store.owned(i).length() == 0) continue;
    const ParamSpec& spec = at(store.table(), i);
    const OptimizerRow& row = row_of(spec.update);
    if (row.by_matrix) continue;  // updated by MatrixUpdate
    Update one{.rule = row.rule,
               .parameter = flat(store.master(i)),
               .gradient = store.owned_gradient(i),
               .compute = store.rounded(i),
               .constants = constants_of(config, spec),
               .decay = spec.decay,
               .rounding = rounding_of(spec, store.owned(i), mesh, rank),
               .state = state};
    const int kept = updated_states(spec.update, config);
    for (int k = 0; k < kept; ++k) at(one.states, k) = store.state(i, k);
    at(by_row, spec.update).push_back(one);
  }
  for (std::vector<Update>& list : by_row) {
    if (!list.empty()) updates_.emplace_back(std::move(list), &stream);
  }
  if (config.ema_decay != 0) add_averages(config, store, state, stream);
}

void Optimizer::add_averages(const OptimizerConfig& config, const ParamStore& store,
                             const StepState* state, Stream& stream) {
  std::vector<Update> list;
  for (int i = 0; i < static_cast<int>(store.table().size()); ++i) {
    const ParamSpec& spec = at(store.table(), i);
    if (store.owned(i).length() == 0 || spec.kind == ParamKind::expert_bias) continue;
    list.push_back({.rule = UpdateRule::average,
                    .parameter = store.average(i),
                    .gradient = flat(store.master(i)),
                    .constants = {.momentum = static_cast<float>(config.ema_decay)},
                    .state = state});
  }
  if (!list.empty()) averages_.emplace(std::move(list), &stream);
}

void Optimizer::step(const OpContext& context) const {
  for (const Calls<Update>& updates : updates_) update(context, updates);
}

void Optimizer::average(const OpContext& context) const {
  if (averages_) update(context, *averages_);
}

namespace {

std::vector<SlabRow> slab_rows_of(const Plan& plan, std::int64_t rank) {
  const int stage = static_cast<int>(plan.mesh.coordinate(rank, Axis::pp));
  std::vector<SlabRow> rows;
  for (const MatrixBuffer& one : matrix_buffers(plan, stage)) {
    rows.push_back({one.name, Shape{one.elements}, one.type});
  }
  return rows;
}

std::int64_t total(const std::vector<std::int64_t>& counts) {
  std::int64_t sum = 0;
  for (const std::int64_t count : counts) sum += count;
  return sum;
}

/// The first elements of a buffer as a tensor of the given shape and type.
Tensor begin_of(const Tensor& buffer, const Shape& shape, DType type) {
  return {buffer.data, shape, type, buffer.device};
}

/// The factor of the orthogonal matrix in the update of a matrix of this shape.
double scale_of(const MuonConfig& muon, double rows, double columns) {
  const double longer = std::max(rows, columns);
  if (muon.scale == "match_adamw") return muon.scale_factor * 0.2 * std::sqrt(longer);
  if (muon.scale == "spectral") return muon.scale_factor * std::sqrt(longer);
  if (muon.scale == "shape") return muon.scale_factor * std::sqrt(std::max(1.0, rows / columns));
  return muon.scale_factor * std::sqrt(rows / columns);
}

}  // namespace

struct MatrixUpdate::Matrix {
  Tensor x;      // the matrix, contiguous: the stack, or a copy of a part of it
  Tensor apart;  // the stack from that part on; empty if x is the stack
  Calls<SquareSum> squares;
};

struct MatrixUpdate::Round {
  MatrixRound plan;
  Calls<Update> directions, steps;
  std::vector<Matrix> matrices;  // of this rank's work
  std::int64_t columns = 0;      // columns of this rank's stack
};

struct MatrixUpdate::Places {
  const Plan& plan;
  const ParamStore& store;
  const StepState* state;
  std::int64_t rank;
  Stream& stream;
};

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
    ranks_ = world.group(group_name(TrafficPurpose::parameters, stage_group), ranks, Lane::layers,
                         Carries::all);
  }
  const Places places{plan, store, state, world.rank(), stream};
  for (MatrixRound& planned : matrix_rounds(plan, world.rank())) {
    Round& round = rounds_.emplace_back();
    round.plan = std::move(planned);
    add_updates(round, places);
    if (round.plan.work >= 0) add_matrices(round, at(stage.matrices, round.plan.work), stream);
  }
}

MatrixUpdate::~MatrixUpdate() = default;

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

namespace {

/// A number for random bits that are independent of those that rounded the step's update.
constexpr std::uint64_t scale_number = 0x7363616C65;

/// "scores"; nothing without a threshold, as below.
std::vector<SlabRow> score_rows(const OptimizerConfig& optimizer, const ModelShape& model) {
  if (!optimizer.qk_clip_threshold) return {};
  return {{"scores", Shape{model.layers, model.heads}, DType::i32}};
}

/// "factors", two for each head of keys; every layer has room for model.heads such pairs.
std::vector<SlabRow> factor_rows(const OptimizerConfig& optimizer, const ModelShape& model) {
  if (!optimizer.qk_clip_threshold) return {};
  return {{"factors", Shape{model.layers, model.heads, 2}, DType::f32}};
}

std::vector<SlabRow> clip_rows(const OptimizerConfig& optimizer, const ModelShape& model) {
  std::vector<SlabRow> rows = score_rows(optimizer, model);
  std::ranges::copy(factor_rows(optimizer, model), std::back_inserter(rows));
  return rows;
}

std::int64_t place_of_factor(const ModelShape& model, std::int64_t layer, std::int64_t kv_head) {
  return (layer * model.heads + kv_head) * 2;
}

}  // namespace

QkClip::QkClip(const OptimizerConfig& optimizer, const Plan& plan, const ParamStore& store,
               const StepState* state, Group& everyone, Stream& compute)
    : optimizer_(optimizer),
      plan_(plan),
      everyone_(everyone),
      rank_(everyone.rank()),
      keys_(plan.device, score_rows(optimizer, plan.model)),
      factors_(plan.device, factor_rows(optimizer, plan.model)),
      on_host_(Slab::on_host_for(plan.device, clip_rows(optimizer, plan.model))) {
  if (!on()) return;
  for (const StagePlan& stage : plan.stages) layers_.push_back(scored_layers(plan, stage));
  const std::int64_t sent = scores_of_rank(plan);
  sent_.resize(static_cast<std::size_t>(sent));
  received_.resize(static_cast<std::size_t>(sent * everyone.size()));
  largest_.resize(static_cast<std::size_t>(scores().numel()));
  std::vector<Update> scales = updates(store, state);
  if (!scales.empty()) scales_.emplace(std::move(scales), &compute);
}

/// One update for each contiguous range of a head's rows that this rank owns.
std::vector<Update> QkClip::updates(const ParamStore& store, const StepState* state) const {
  std::vector<Update> scales;
  const ModelShape& model = plan_.model;
  for (int i = 0; i < static_cast<int>(store.table().size()); ++i) {
    const ParamSpec& spec = at(store.table(), i);
    const bool query = spec.kind == ParamKind::query;
    if ((!query && spec.kind != ParamKind::key) || spec.rate_factor == 0) continue;
    const Slice owned = store.owned(i);
    if (owned.length() == 0) continue;
    const std::int64_t layer = spec.unit - 1;
    const std::int64_t kv_heads = model.kind(layer).kv_heads;
    // Queries of heads that share keys lie one after another.
    const std::int64_t size = spec.global_shape.numel() / kv_heads;
    for (const BoxRun& piece : pieces_in(spec, plan_.mesh, rank_, owned)) {
      for (std::int64_t done = 0; done < piece.length;) {
        const std::int64_t place = piece.from + done;
        const std::int64_t kv_head = place / size;
        const std::int64_t length = std::min(piece.length - done, (kv_head + 1) * size - place);
        const std::int64_t begin = piece.to + done;
        const Tensor part = flat(store.master(i)).slice(begin, begin + length);
        const float* factors = factors_.at("factors").elements<float>();
        Update scale{.rule = UpdateRule::scale,
                     .parameter = part,
                     .gradient = part,
                     .rounding = rounding_of(spec, owned, plan_.mesh, rank_),
                     .factor = factors + place_of_factor(model, layer, kv_head) + (query ? 0 : 1),
                     .state = state};
        scale.rounding.tensor ^= scale_number;
        scale.rounding.skip += begin;
        const Tensor rounded = store.rounded(i);
        if (!rounded.empty()) scale.compute = flat(rounded).slice(begin, begin + length);
        scales.push_back(scale);
        done += length;
      }
    }
  }
  return scales;
}

/// Shares the integer keys of all ranks and sets largest_ to the maximum of each head.
void QkClip::share_scores(Stream& host) {
  const std::int64_t heads = plan_.model.heads;
  const auto* own = on_host_.at("scores").as<std::int32_t>();
  std::int64_t row = 0;
  for (const std::int64_t layer : at(layers_, plan_.mesh.coordinate(rank_, Axis::pp))) {
    std::copy_n(own + layer * heads, heads, sent_.data() + row++ * heads);
  }
  everyone_.all_gather(host_tensor(sent_.data(), std::ssize(sent_)),
                       host_tensor(received_.data(), std::ssize(received_)), host);
  host.synchronize();
  std::ranges::fill(largest_, number_of_key(0));
  for (std::int64_t rank = 0; rank < everyone_.size(); ++rank) {
    const std::int32_t* keys = received_.data() + rank * std::ssize(sent_);
    for (const std::int64_t layer : at(layers_, plan_.mesh.coordinate(rank, Axis::pp))) {
      for (std::int64_t head = 0; head < heads; ++head) {
        float& most = at(largest_, layer * heads + head);
        most = std::max(most, number_of_key(static_cast<std::uint32_t>(*keys++)));
      }
    }
  }
}

struct QkClip::Factors {
  float query = 1, key = 1;
};

/// Scores that are not finite give factors of 1, since their step updates nothing.
QkClip::Factors QkClip::factors_of(std::int64_t layer, std::int64_t kv_head) const {
  const ModelShape& model = plan_.model;
  const std::int64_t group = model.heads / model.kind(layer).kv_heads;
  const auto first = largest_.begin() + layer * model.heads + kv_head * group;
  const double most = double{*std::max_element(first, first + group)};
  const double threshold = *optimizer_.qk_clip_threshold;
  if (!std::isfinite(most) || most <= threshold) return {};
  const double alpha = optimizer_.qk_clip_alpha;
  return {static_cast<float>(std::pow(threshold / most, alpha)),
          static_cast<float>(std::pow(threshold / most, 1 - alpha))};
}

void QkClip::step(const OpContext& context, Stream& host) {
  share_scores(host);
  auto* factors = on_host_.at("factors").as<float>();
  bool clips = false;
  for (const std::int64_t layer : at(layers_, plan_.mesh.coordinate(rank_, Axis::pp))) {
    for (std::int64_t head = 0; head < plan_.model.kind(layer).kv_heads; ++head) {
      const Factors one = factors_of(layer, head);
      clips = clips || one.query < 1 || one.key < 1;
      float* place = factors + place_of_factor(plan_.model, layer, head);
      place[0] = one.query;
      place[1] = one.key;
    }
  }
  if (!clips || !scales_) return;
  context.stream->copy(factors_.at("factors"), on_host_.at("factors"));
  update(context, *scales_);
}

namespace {

/// Adds the new biases to their average; the averages of all other parameters are complete by then.
void take_into_average(const Tensor& biases, int parameter, const ParamStore& store) {
  const Tensor average = store.average(parameter);
  if (average.empty()) return;
  const HostValues averages(average);
  const auto kept = static_cast<float>(store.average_decay());
  for (std::int64_t i = 0; i < average.numel(); ++i) {
    float& value = averages.values().as<float>()[i];
    value = kept * value + (1 - kept) * biases.as<float>()[i];
  }
  averages.store();
}

}  // namespace

void move_expert_biases(const ModelShape& model, const Tensor& sums, const ParamStore& store) {
  const HostValues counted(sums);
  for (int i = 0; i < static_cast<int>(store.table().size()); ++i) {
    const ParamSpec& row = at(store.table(), i);
    const Slice own = store.owned(i);
    if (row.kind != ParamKind::expert_bias || own.length() == 0) continue;
    const std::int64_t layer = row.unit - 1;
    const float* loads = counted.values().slice(layer, layer + 1).as<float>() + router_sums;
    const double mean =
        std::accumulate(loads, loads + model.experts, 0.0) / static_cast<double>(model.experts);
    const HostValues biases(store.master(i));
    float* bias = biases.values().as<float>();
    for (std::int64_t e = own.begin; e < own.end; ++e) {
      const int sign = (loads[e] < mean ? 1 : 0) - (loads[e] > mean ? 1 : 0);
      bias[e - own.begin] += static_cast<float>(model.bias_rate * sign);
    }
    biases.store();
    take_into_average(biases.values(), i, store);
  }
}

GradNorm::GradNorm(const ParamStore& store, Group& everyone, double limit,
                   const LossScaling& scaling, StepState* state, Stream& stream)
    : everyone_(everyone),
      sums_(store.made_gradients().device, {{"sums", {everyone.size(), 2}, DType::f64}}),
      own_{state->square_sums, {2}, DType::f64, store.made_gradients().device},
      parts_(parts(store), &stream) {
  verdict_ = {.square_sums = sums_.at("sums"),
              .limit = limit,
              .growth = scaling.growth,
              .backoff = scaling.backoff,
              .least = scaling.least,
              .window = scaling.window,
              .hysteresis = scaling.hysteresis,
              .state = state};
}

/// One part for each contiguous range of gradients that this rank owns. Gaps between whole
/// gradients are 0, so a part may include them.
std::vector<SquareSum> GradNorm::parts(const ParamStore& store) const {
  struct Piece {
    Tensor all, values;
    double* sum = nullptr;
    bool whole = false;
    std::int64_t begin = 0;  // offset in `all`
  };
  std::vector<Piece> pieces;
  for (int i = 0; i < static_cast<int>(store.table().size()); ++i) {
    const Ownership& own = at(store.ownership().parameters, i);
    // A gradient that another rank updates keeps its place, where it separates its neighbours.
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
  std::ranges::sort(pieces, [](const Piece& a, const Piece& b) {
    return std::pair(a.all.data, a.begin) < std::pair(b.all.data, b.begin);
  });
  std::vector<SquareSum> made;
  const void* memory = nullptr;  // buffer of the last part
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool whole = false;  // the last piece is a whole gradient
  for (const Piece& piece : pieces) {
    if (piece.values.numel() == 0) {  // owned by another rank, so not a gap of zeros
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
