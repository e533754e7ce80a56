#include "engine/param_store.h"

#include "base/hash.h"
#include "ops/cast.h"
#include "ops/normal_fill.h"

namespace trainctl {

namespace {

std::vector<SlabRow> rows_of(const Plan& plan, int states, bool training) {
  const Shape flat{plan.flat.length};
  std::vector<SlabRow> rows{{"parameters", flat, DType::f32}};
  if (plan.compute != DType::f32) rows.push_back({"compute", flat, plan.compute});
  if (training) rows.push_back({"gradients", flat, DType::f32});
  for (int state = 0; state < states; ++state) {
    rows.push_back({"state" + std::to_string(state), flat, DType::f32});
  }
  return rows;
}

void fill_ones(const Tensor& x) {
  float* values = x.as<float>();
  for (std::int64_t i = 0; i < x.numel(); ++i) values[i] = 1.0F;
}

}  // namespace

ParamStore::ParamStore(DeviceKind device, const Plan& plan, int states, bool training)
    : plan_(plan), training_(training), slab_(device, rows_of(plan, states, training)) {
  for (std::size_t i = 0; i < plan.parameters.size(); ++i) {
    index_[plan.parameters[i].name] = static_cast<int>(i);
  }
}

void ParamStore::initialise(const OpContext& context, std::uint64_t seed) {
  for (int i = 0; i < static_cast<int>(table().size()); ++i) {
    const ParamSpec& spec = table()[static_cast<std::size_t>(i)];
    const Tensor values = master(i);
    switch (spec.init) {
      case InitKind::zeros: context.stream->zero(values); break;
      case InitKind::ones: fill_ones(values); break;
      case InitKind::normal:
        normal_fill(context, {.x = values.view({values.numel()}),
                              .seed = seed,
                              .stream = fnv1a(spec.name),
                              .first = 0,
                              .deviation = static_cast<float>(spec.init_deviation)});
    }
  }
  refresh_compute(context);
}

void ParamStore::refresh_compute(const OpContext& context) const {
  if (plan_.compute == DType::f32) return;
  cast(context, {.x = slab_.at("parameters"), .y = slab_.at("compute")});
}

Weight ParamStore::weight(const std::string& name) const {
  const int parameter = index_of(name);
  const Tensor copy = compute(parameter);
  return {copy.empty() ? master(parameter) : copy, training_ ? gradient(parameter) : Tensor{}};
}

Tensor ParamStore::compute(int parameter) const {
  const ParamSpec& spec = table()[static_cast<std::size_t>(parameter)];
  if (plan_.compute == DType::f32 || spec.role == DTypeRole::vector) return {};
  return piece("compute", parameter);
}

Tensor ParamStore::state(int parameter, int state) const {
  return piece("state" + std::to_string(state), parameter);
}

Tensor ParamStore::bucket(int index) const {
  const Bucket& bucket = plan_.flat.buckets[static_cast<std::size_t>(index)];
  return gradients().slice(bucket.offset, bucket.offset + bucket.length);
}

Tensor ParamStore::piece(const std::string& buffer, int parameter) const {
  const auto at = static_cast<std::size_t>(parameter);
  const Tensor flat = slab_.at(buffer);
  const ParamSpec& spec = table()[at];
  const std::int64_t begin = plan_.flat.offset[at];
  return flat.slice(begin, begin + spec.shape.numel()).view(spec.shape);
}

}  // namespace trainctl
