#include "engine/parameters/param_store.h"

#include "base/hash.h"
#include "ops/cast.h"
#include "ops/normal_fill.h"
#include "plan/tables/shard.h"

namespace trainctl {

namespace {

std::vector<SlabRow> rows_of(const StagePlan& stage, const ParamStore::Contents& contents) {
  const Shape flat{stage.flat.length};
  std::vector<SlabRow> rows{{"parameters", flat, DType::f32}};
  if (contents.compute != DType::f32) rows.push_back({"compute", flat, contents.compute});
  if (contents.training) rows.push_back({"gradients", flat, DType::f32});
  for (int state = 0; state < contents.states; ++state) {
    const Shape values{contents.ownership.state_length};
    rows.push_back({"state" + std::to_string(state), values, DType::f32});
  }
  return rows;
}

void fill_ones(const Tensor& x) {
  float* values = x.as<float>();
  for (std::int64_t i = 0; i < x.numel(); ++i) values[i] = 1.0F;
}

}  // namespace

ParamStore::ParamStore(DeviceKind device, const StagePlan& stage, const Contents& contents)
    : stage_(stage), contents_(contents), slab_(device, rows_of(stage, contents)) {
  for (std::size_t i = 0; i < stage.parameters.size(); ++i) {
    index_[stage.parameters[i].name] = static_cast<int>(i);
  }
}

void ParamStore::initialise(const OpContext& context, std::uint64_t seed, const Mesh& mesh,
                            std::int64_t rank) {
  for (int i = 0; i < static_cast<int>(table().size()); ++i) {
    const ParamSpec& spec = table()[static_cast<std::size_t>(i)];
    const Tensor values = master(i);
    const Tensor flat = values.view({values.numel()});
    switch (spec.init) {
      case InitKind::zeros: context.stream->zero(values); break;
      case InitKind::ones: fill_ones(values); break;
      case InitKind::normal:
        for (const ShardPiece& piece : shard_pieces(spec, mesh, rank)) {
          normal_fill(context, {.x = flat.slice(piece.local, piece.local + piece.length),
                                .seed = seed,
                                .stream = fnv1a(spec.name),
                                .first = piece.global,
                                .deviation = static_cast<float>(spec.init_deviation)});
        }
    }
  }
  refresh_compute(context);
}

void ParamStore::refresh_compute(const OpContext& context) const {
  if (contents_.compute == DType::f32) return;
  cast(context, {.x = slab_.at("parameters"), .y = slab_.at("compute")});
}

Weight ParamStore::weight(const std::string& name) const {
  const int parameter = index_of(name);
  const Tensor copy = compute(parameter);
  return {copy.empty() ? master(parameter) : copy,
          contents_.training ? gradient(parameter) : Tensor{}};
}

Tensor ParamStore::compute(int parameter) const {
  const ParamSpec& spec = table()[static_cast<std::size_t>(parameter)];
  if (contents_.compute == DType::f32 || spec.role == DTypeRole::vector) return {};
  return piece("compute", parameter);
}

Tensor ParamStore::state(int parameter, int state) const {
  const Slice part = owned(parameter);
  if (part.begin == part.end) return {};
  const std::int64_t begin = ownership().parameters[static_cast<std::size_t>(parameter)].state;
  return slab_.at("state" + std::to_string(state)).slice(begin, begin + part.end - part.begin);
}

Tensor ParamStore::stretch(const std::string& buffer, int index) const {
  const Bucket& bucket = stage_.flat.buckets[static_cast<std::size_t>(index)];
  return slab_.at(buffer).slice(bucket.offset, bucket.offset + bucket.length);
}

Tensor ParamStore::piece(const std::string& buffer, int parameter) const {
  const auto at = static_cast<std::size_t>(parameter);
  const Tensor flat = slab_.at(buffer);
  const ParamSpec& spec = table()[at];
  const std::int64_t begin = stage_.flat.offset[at];
  return flat.slice(begin, begin + spec.shape.numel()).view(spec.shape);
}

}  // namespace trainctl
