#include "engine/parameters/qk_clip.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/at.h"
#include "base/ordered_key.h"
#include "engine/parameters/exchange.h"
#include "engine/parameters/optimizer.h"
#include "plan/tables/shard.h"

namespace trainctl {

namespace {

/// Random bits of their own, which do not depend on those that rounded the update of the step.
constexpr std::uint64_t scale_number = 0x7363616C65;

std::vector<SlabRow> score_rows(const QkClip::Input& input) {
  if (!input.optimizer.qk_clip_threshold) return {};
  return {{"scores", Shape{input.plan.model.layers, input.plan.model.heads}, DType::i32}};
}

/// Room for as many heads of keys as there are heads, in every layer.
std::vector<SlabRow> factor_rows(const QkClip::Input& input) {
  if (!input.optimizer.qk_clip_threshold) return {};
  return {{"factors", Shape{input.plan.model.layers, input.plan.model.heads, 2}, DType::f32}};
}

std::vector<SlabRow> host_rows(const QkClip::Input& input) {
  std::vector<SlabRow> rows = score_rows(input);
  for (const SlabRow& row : factor_rows(input)) rows.push_back(row);
  return rows;
}

std::int64_t place_of_factor(const ModelShape& model, std::int64_t layer, std::int64_t kv_head) {
  return (layer * model.heads + kv_head) * 2;
}

}  // namespace

QkClip::QkClip(const Input& input)
    : optimizer_(&input.optimizer),
      plan_(&input.plan),
      everyone_(&input.everyone),
      rank_(input.rank),
      keys_(input.plan.device, score_rows(input)),
      factors_(input.plan.device, factor_rows(input)),
      on_host_(Slab::on_host_for(input.plan.device, host_rows(input))) {
  if (!on()) return;
  for (const StagePlan& stage : input.plan.stages) {
    layers_.push_back(scored_layers(input.plan, stage));
  }
  const std::int64_t sent = scores_of_rank(input.plan);
  sent_.resize(static_cast<std::size_t>(sent));
  received_.resize(static_cast<std::size_t>(sent * input.everyone.size()));
  largest_.resize(static_cast<std::size_t>(scores().numel()));
  std::vector<Update> scales = updates(input);
  if (!scales.empty()) scales_.emplace(std::move(scales), &input.compute);
}

/// One for each stretch of a head's rows that this rank owns.
std::vector<Update> QkClip::updates(const Input& input) const {
  std::vector<Update> scales;
  const ModelShape& model = input.plan.model;
  const ParamStore& store = input.store;
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
    for (const ShardPiece& piece : pieces_in(spec, input.plan.mesh, input.rank, owned)) {
      for (std::int64_t done = 0; done < piece.length;) {
        const std::int64_t place = piece.global + done;
        const std::int64_t kv_head = place / size;
        const std::int64_t length = std::min(piece.length - done, (kv_head + 1) * size - place);
        const std::int64_t begin = piece.local + done;
        const Tensor part = flat(store.master(i)).slice(begin, begin + length);
        const float* factors = factors_.at("factors").elements<float>();
        Update scale{.rule = UpdateRule::scale,
                     .parameter = part,
                     .gradient = part,
                     .rounding = rounding_of(spec, owned, input.plan.mesh, input.rank),
                     .factor = factors + place_of_factor(model, layer, kv_head) + (query ? 0 : 1),
                     .state = input.state};
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

/// The keys of all ranks as the largest number of each head.
void QkClip::share_scores(Stream& host) {
  const std::int64_t heads = plan_->model.heads;
  const auto* own = on_host_.at("scores").as<std::int32_t>();
  std::int64_t row = 0;
  for (const std::int64_t layer : at(layers_, plan_->mesh.coordinate(rank_, Axis::pp))) {
    std::copy_n(own + layer * heads, heads, sent_.data() + row++ * heads);
  }
  everyone_->all_gather(host_tensor(sent_.data(), std::ssize(sent_)),
                        host_tensor(received_.data(), std::ssize(received_)), host);
  host.synchronize();
  std::ranges::fill(largest_, number_of_key(0));
  for (std::int64_t rank = 0; rank < everyone_->size(); ++rank) {
    const std::int32_t* keys = received_.data() + rank * std::ssize(sent_);
    for (const std::int64_t layer : at(layers_, plan_->mesh.coordinate(rank, Axis::pp))) {
      for (std::int64_t head = 0; head < heads; ++head) {
        float& most = at(largest_, layer * heads + head);
        most = std::max(most, number_of_key(static_cast<std::uint32_t>(*keys++)));
      }
    }
  }
}

/// Scores that are not finite are those of a step that updates nothing.
QkClip::Factors QkClip::factors_of(std::int64_t layer, std::int64_t kv_head) const {
  const ModelShape& model = plan_->model;
  const std::int64_t group = model.heads / model.kind(layer).kv_heads;
  const auto first = largest_.begin() + layer * model.heads + kv_head * group;
  const double most = double{*std::max_element(first, first + group)};
  const double threshold = *optimizer_->qk_clip_threshold;
  if (!std::isfinite(most) || most <= threshold) return {};
  const double alpha = optimizer_->qk_clip_alpha;
  return {static_cast<float>(std::pow(threshold / most, alpha)),
          static_cast<float>(std::pow(threshold / most, 1 - alpha))};
}

void QkClip::step(const OpContext& context, Stream& host) {
  share_scores(host);
  auto* factors = on_host_.at("factors").as<float>();
  bool clips = false;
  for (const std::int64_t layer : at(layers_, plan_->mesh.coordinate(rank_, Axis::pp))) {
    for (std::int64_t head = 0; head < plan_->model.kind(layer).kv_heads; ++head) {
      const Factors one = factors_of(layer, head);
      clips = clips || one.query < 1 || one.key < 1;
      float* place = factors + place_of_factor(plan_->model, layer, head);
      place[0] = one.query;
      place[1] = one.key;
    }
  }
  if (!clips || !scales_) return;
  context.stream->copy(factors_.at("factors"), on_host_.at("factors"));
  update(context, *scales_);
}

}  // namespace trainctl
