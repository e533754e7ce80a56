#include "engine/parameters/param_store.h"

#include <algorithm>
#include <utility>

#include "base/at.h"
#include "base/hash.h"
#include "config/schema/optimizers.h"
#include "device/host_values.h"
#include "ops/elementwise.h"
#include "plan/gradients/gathers.h"
#include "plan/rules/resolve.h"
#include "plan/tables/shard.h"

namespace trainctl {

namespace {

ParamStore::Contents completed(ParamStore::Contents contents, const StagePlan& stage) {
  if (contents.ownership.parameters.empty()) contents.ownership = whole_ownership(stage);
  return contents;
}

std::vector<SlabRow> rows_of(const ParamStore::Contents& contents, const ParameterPlaces& places,
                             const StatePlaces& states) {
  std::vector<SlabRow> rows{{"weights", Shape{places.weight_bytes}, DType::u8}};
  const Shape masters{places.master_bytes(contents.ownership.state_length)};
  if (places.masters_apart) rows.push_back({"masters", masters, DType::u8});
  if (contents.training) rows.push_back({"gradients", Shape{places.gradient_length}, DType::f32});
  if (contents.training) rows.push_back({"sums", Shape{places.sum_length}, contents.sums});
  for (int state = 0; const std::int64_t bytes : states.bytes) {
    rows.push_back({"state" + std::to_string(state++), Shape{bytes}, DType::u8});
  }
  return rows;
}

}  // namespace

ParamStore::ParamStore(DeviceKind device, const StagePlan& stage, const Contents& contents)
    : stage_(stage),
      contents_(completed(contents, stage)),
      places_(place_parameters(stage, contents.compute, contents_.ownership)),
      states_(contents_.optimizer == nullptr
                  ? StatePlaces{}
                  : place_states(stage, contents_.ownership, *contents_.optimizer)),
      slab_(device, rows_of(contents_, places_, states_)),
      host_(Slab::on_host_for(device, {{"weights", Shape{places_.host_bytes}, DType::u8}})) {
  for (std::size_t i = 0; i < stage.parameters.size(); ++i) {
    index_[stage.parameters[i].name] = static_cast<int>(i);
  }
  if (contents.optimizer != nullptr) {
    average_decay_ = contents.optimizer->ema_decay;
    for (const ParamSpec& spec : stage.parameters) {
      state_types_.push_back(optimizer_values(spec.update, *contents.optimizer));
    }
  }
  has_values_.resize(stage.parameters.size());
  if (contents_.training) zeroed_ = between_products();
}

bool ParamStore::products_begin(int parameter) const {
  return contents_.begun_by_products && place(parameter).written;
}

std::vector<Slice> ParamStore::between_products() const {
  std::vector<Slice> begun;
  for (int i = 0; i < static_cast<int>(table().size()); ++i) {
    if (!products_begin(i)) continue;
    const std::int64_t begin = place(i).gradient;
    begun.push_back({begin, begin + at(table(), i).shape.numel()});
  }
  std::ranges::sort(begun, {}, &Slice::begin);
  begun.push_back({places_.gradient_length, places_.gradient_length});
  std::vector<Slice> between;
  std::int64_t end = 0;
  for (const Slice& one : begun) {
    if (end < one.begin) between.push_back({end, one.begin});
    end = one.end;
  }
  return between;
}

void ParamStore::begin_gradients(Stream& stream) {
  for (const Slice& part : zeroed_) stream.zero(made_gradients().slice(part.begin, part.end));
  std::ranges::fill(has_values_, false);
}

void ParamStore::initialise(const OpContext& context, std::uint64_t seed, const Mesh& mesh,
                            std::int64_t rank) {
  for (int i = 0; i < static_cast<int>(table().size()); ++i) {
    const ParamSpec& spec = at(table(), i);
    const Slice own = owned(i);
    const Tensor values = master(i).view({own.length()});
    if (spec.init != InitKind::normal) {
      const std::vector<float> same(static_cast<std::size_t>(own.length()),
                                    spec.init == InitKind::ones ? 1.0F : 0.0F);
      const HostValues on_host(values);
      store_floats(same.data(), on_host.values());
      on_host.store();
      continue;
    }
    for (const ShardPiece& piece : pieces_in(spec, mesh, rank, own)) {
      normal_fill(context, {.x = values.slice(piece.local, piece.local + piece.length),
                            .seed = seed,
                            .stream = fnv1a(spec.name),
                            .first = piece.global,
                            .deviation = static_cast<float>(spec.init_deviation)});
    }
  }
  refresh_weights(context);
}

void ParamStore::refresh_weights(const OpContext& context) const {
  for (int i = 0; i < static_cast<int>(table().size()); ++i) {
    const Tensor weight = rounded(i);
    if (!weight.empty() && owned(i).length() > 0) cast(context, {.x = master(i), .y = weight});
  }
}

Weight ParamStore::weight(const std::string& name) {
  const int parameter = index_of(name);
  Weight weight;
  weight.value = resident(parameter);
  if (!contents_.training) return weight;
  weight.gradient = made_gradient(parameter).view(at(table(), parameter).shape);
  if (products_begin(parameter)) weight.has_values = &at(has_values_, parameter);
  return weight;
}

Tensor ParamStore::resident(int parameter) const {
  const ParamSpec& spec = at(table(), parameter);
  const Tensor weights = slab_.at("weights");
  return {static_cast<std::byte*>(weights.data) + place(parameter).weight, spec.shape,
          read_type(spec, contents_.compute), weights.device};
}

Tensor ParamStore::block_weights(int block) const {
  const Bucket& bucket = at(stage_.flat.buckets, at(stage_.gathers, block).bucket);
  const Tensor weights = slab_.at("weights");
  return {static_cast<std::byte*>(weights.data) + at(places_.blocks, block), Shape{bucket.length},
          contents_.compute, weights.device};
}

Tensor ParamStore::block_bytes(int block) const {
  const GatherBlock& planned = at(stage_.gathers, block);
  const std::int64_t bytes =
      lay_residents(planned.parameters, table(), stage_.flat, nullptr, contents_.compute).bytes;
  const std::int64_t begin = at(places_.blocks, block);
  return slab_.at("weights").slice(begin, begin + bytes);
}

Tensor ParamStore::host_block(int block) const {
  const std::int64_t begin = at(places_.host, block);
  return host_.at("weights").slice(begin, begin + block_bytes(block).numel());
}

Tensor ParamStore::part_of(const std::string& buffer, std::int64_t begin, int parameter,
                           const Slice& part) const {
  const Tensor all = slab_.at(buffer);
  if (part.length() == 0) return all.slice(0, 0);  // has no place
  const Tensor values = all.slice(begin, begin + part.length());
  const Shape& shape = at(table(), parameter).shape;
  return part.length() == shape.numel() ? values.view(shape) : values;
}

Tensor ParamStore::master(int parameter) const {
  const Slice own = owned(parameter);
  const Tensor whole = resident(parameter);
  if (place(parameter).is_master) {
    return own.length() == whole.numel() ? whole : part_in(whole, own);
  }
  const Tensor masters = slab_.at("masters");
  const Tensor part{static_cast<std::byte*>(masters.data) + place(parameter).master,
                    {own.length()},
                    at(table(), parameter).master,
                    masters.device};
  return own.length() == whole.numel() ? part.view(whole.shape) : part;
}

Tensor ParamStore::rounded(int parameter) const {
  if (place(parameter).is_master || place(parameter).freed) return {};
  return part_in(resident(parameter), owned(parameter));
}

Tensor ParamStore::state(int parameter, int state) const {
  const Slice part = owned(parameter);
  if (part.begin == part.end) return {};
  if (state_types_.empty() || state >= std::ssize(at(state_types_, parameter))) return {};
  const Tensor all = slab_.at("state" + std::to_string(state));
  return {static_cast<std::byte*>(all.data) + at(at(states_.begin, parameter), state),
          {part.length()},
          at(at(state_types_, parameter), state),
          all.device};
}

Tensor ParamStore::average(int parameter) const {
  if (average_decay_ == 0) return {};
  return state(parameter, static_cast<int>(at(state_types_, parameter).size()) - 1);  // the last
}

void ParamStore::begin_averages() const {
  for (int i = 0; i < static_cast<int>(table().size()); ++i) {
    const Tensor kept = average(i);
    if (kept.empty()) continue;
    const HostValues weights(master(i).view({kept.numel()}));
    const HostValues begun(kept);
    load_floats(weights.values(), begun.values().as<float>());
    begun.store();
  }
}

Tensor ParamStore::gradient(int parameter) const {
  return part_of(repeats(parameter) ? "sums" : "gradients", place(parameter).sum, parameter,
                 at(ownership().parameters, parameter).summed);
}

Tensor ParamStore::owned_gradient(int parameter) const {
  const Slice own = owned(parameter);
  const Slice summed = at(ownership().parameters, parameter).summed;
  return part_in(gradient(parameter), {own.begin - summed.begin, own.end - summed.begin});
}

Tensor ParamStore::made_gradient(int parameter) const {
  const std::int64_t begin = place(parameter).gradient;
  return made_gradients().slice(begin, begin + at(table(), parameter).shape.numel());
}

Tensor ParamStore::made_bucket(int bucket) const {
  const std::int64_t begin = at(places_.buckets, bucket);
  return made_gradients().slice(begin, begin + at(stage_.flat.buckets, bucket).length);
}

}  // namespace trainctl
