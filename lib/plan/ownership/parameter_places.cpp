#include "plan/ownership/parameter_places.h"

#include <algorithm>
#include <map>

#include "base/at.h"
#include "base/integers.h"
#include "plan/gradients/gathers.h"
#include "plan/ownership/ownership.h"
#include "plan/rules/resolve.h"

namespace trainctl {

namespace {

constexpr std::int64_t line_bytes = 64;
constexpr std::int64_t unit = line_bytes / 4;  // fp32 elements

std::int64_t padded(std::int64_t elements) { return round_up(elements, unit); }

/// Whether the first contribution to the gradient in every step is a product. False for experts,
/// which may get no token, and for an embedding unless a tied head on this stage adds its product
/// before (in F, if not deferred).
bool begins_with_product(const ParamSpec& spec, const Deferral& deferral) {
  switch (spec.kind) {
    case ParamKind::token_embedding:
      return spec.head && (spec.second_home || deferral.microbatches == 0);
    case ParamKind::attention_gate:
    case ParamKind::query:
    case ParamKind::key:
    case ParamKind::value:
    case ParamKind::attention_output:
    case ParamKind::mlp_gate:
    case ParamKind::mlp_up:
    case ParamKind::mlp_down:
    case ParamKind::head: return !spec.bias;
    default: return false;
  }
}

class Placement {
 public:
  Placement(const StagePlan& stage, DType compute, const OwnershipTable& table)
      : stage_(stage), compute_(compute), table_(table) {
    places_.parameters.resize(stage.parameters.size());
    places_.blocks.assign(stage.gathers.size(), 0);
    places_.host = places_.blocks;
  }

  ParameterPlaces place() {
    place_freed();
    for (const Bucket& bucket : stage_.flat.buckets) place_weights(bucket);
    place_gradients();
    place_masters();
    return std::move(places_);
  }

 private:
  bool sliced(int parameter) const {
    return at(stage_.shards, parameter).kind == ShardKind::bucket;
  }

  std::int64_t lay(const std::vector<int>& parameters, const Bucket* bucket, std::int64_t begin) {
    const std::vector<std::int64_t> places =
        lay_residents(parameters, stage_.parameters, stage_.flat, bucket, compute_);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      at(places_.parameters, parameters[i]).weight = begin + places[i];
    }
    return places.back();
  }

  const Bucket* bucket_of(const GatherBlock& block) const {
    return block.bucket < 0 ? nullptr : &at(stage_.flat.buckets, block.bucket);
  }

  /// Places the ring first. In a slot, parameters are in the order of buckets, from the last to the
  /// first.
  void place_freed() {
    places_.weight_bytes = stage_.weight_ring.length;
    for (std::size_t i = 0; i < stage_.gathers.size(); ++i) {
      const GatherBlock& block = stage_.gathers[i];
      if (!block.freed) continue;
      const int slot = at(stage_.weight_ring.slot, i);
      places_.blocks[i] = at(stage_.weight_ring.begin, slot);
      const std::vector<int> order(block.parameters.rbegin(), block.parameters.rend());
      const std::int64_t bytes = lay(order, bucket_of(block), places_.blocks[i]);
      places_.host[i] = places_.host_bytes;
      if (block.from_host) places_.host_bytes += bytes;
      for (const int index : block.parameters) at(places_.parameters, index).freed = true;
    }
  }

  /// Places the weights that are not freed, by bucket, since a bucket may be gathered as one block.
  void place_weights(const Bucket& bucket) {
    std::vector<int> staying;
    for (const int index : bucket.parameters) {
      if (!at(places_.parameters, index).freed) staying.push_back(index);
    }
    if (staying.empty()) return;
    for (std::size_t i = 0; i < stage_.gathers.size(); ++i) {
      if (bucket_of(stage_.gathers[i]) == &bucket) places_.blocks[i] = places_.weight_bytes;
    }
    const Bucket* stretch = sliced(staying.front()) ? &bucket : nullptr;
    places_.weight_bytes += lay(staying, stretch, places_.weight_bytes);
  }

  void place_masters() {
    for (const ParamSpec& row : stage_.parameters) {
      if (!row.is_vector) places_.masters = row.master;
    }
    place_front();
    for (int i = 0; i < std::ssize(stage_.parameters); ++i) {
      const ParamSpec& row = at(stage_.parameters, i);
      ParameterPlace& place = at(places_.parameters, i);
      place.is_master = !place.freed && read_type(row, compute_) == row.master;
      places_.masters_apart = places_.masters_apart || !place.is_master;
      if (row.master != places_.masters) continue;
      place.master =
          places_.front_bytes + at(table_.parameters, i).state * size_of(places_.masters);
    }
  }

  /// Places fp32 masters first; every rank has equal space, whichever parameters it owns.
  void place_front() {
    if (places_.masters == DType::f32) return;
    for (const GatherBlock& block : stage_.gathers) {
      if (!block.freed) continue;
      std::int64_t own = 0, shared = 0;
      std::map<std::int64_t, std::int64_t> dealt;  // by owner
      for (const int index : block.parameters) {
        if (at(stage_.parameters, index).master != DType::f32) continue;
        const std::int64_t length = at(table_.parameters, index).owned.length();
        at(places_.parameters, index).master = places_.front_bytes + own * size_of(DType::f32);
        own += length;
        const OptimizerShard& shard = at(stage_.shards, index);
        const bool whole = shard.kind == ShardKind::dealt;
        (whole ? dealt[shard.owner] : shared) += whole ? shard.elements : length;
      }
      std::int64_t most = 0;
      for (const auto& [owner, elements] : dealt) most = std::max(most, elements);
      most += shared;
      if (block.bucket >= 0) {
        const std::int64_t ranks = at(stage_.shards, block.parameters.front()).ranks;
        most = max_apart(compute_, stage_, block, ranks);
      }
      places_.front_bytes += padded(most) * size_of(DType::f32);
    }
  }

  /// Places gradients that are summed in place, then the slots, and the parts of repeated sums.
  void place_gradients() {
    std::int64_t end = 0;
    for (std::size_t i = 0; i < stage_.flat.buckets.size(); ++i) {
      const Bucket& bucket = stage_.flat.buckets[i];
      places_.buckets.push_back(end);
      if (slot_of(i) < 0) end += bucket.length;
    }
    for (std::size_t i = 0; i < stage_.flat.buckets.size(); ++i) {
      if (slot_of(i) >= 0) places_.buckets[i] = end + at(stage_.gradient_ring.begin, slot_of(i));
    }
    places_.gradient_length = end + stage_.gradient_ring.length;
    for (std::size_t i = 0; i < stage_.flat.buckets.size(); ++i) {
      place_gradients(stage_.flat.buckets[i], places_.buckets[i], slot_of(i) >= 0);
    }
  }

  int slot_of(std::size_t bucket) const {
    return stage_.gradient_ring.slot.empty() ? -1 : at(stage_.gradient_ring.slot, bucket);
  }

  void place_gradients(const Bucket& bucket, std::int64_t made, bool repeated) {
    std::int64_t sum = places_.sum_length;
    const bool slices = sliced(bucket.parameters.front());
    for (const int index : bucket.parameters) {
      ParameterPlace& place = at(places_.parameters, index);
      const Slice& summed = at(table_.parameters, index).summed;
      place.repeated = repeated;
      place.written =
          !repeated && begins_with_product(at(stage_.parameters, index), stage_.deferral);
      place.gradient = made + at(stage_.flat.offset, index) - bucket.offset;
      place.sum = repeated ? sum : place.gradient + summed.begin;
      sum += slices ? summed.length() : padded(summed.length());
    }
    if (!repeated) return;
    // Slices of a bucket are equally long, including padding.
    const std::int64_t ranks = at(stage_.shards, bucket.parameters[0]).ranks;
    places_.sum_length = slices ? places_.sum_length + padded(bucket.length / ranks) : sum;
  }

  const StagePlan& stage_;
  DType compute_;
  const OwnershipTable& table_;
  ParameterPlaces places_;
};

}  // namespace

ParameterPlaces place_parameters(const StagePlan& stage, DType compute,
                                 const OwnershipTable& table) {
  return Placement(stage, compute, table).place();
}

StatePlaces place_states(const StagePlan& stage, const OwnershipTable& table,
                         const OptimizerConfig& optimizer) {
  const std::vector<ParamSpec>& parameters = stage.parameters;
  std::vector<std::vector<std::int64_t>> widths;  // by parameter
  std::size_t buffers = 0;
  for (const ParamSpec& parameter : parameters) {
    std::vector<std::int64_t>& own = widths.emplace_back();
    for (const DType type : optimizer_values(parameter.update, optimizer)) {
      own.push_back(size_of(type));
    }
    buffers = std::max(buffers, own.size());
  }
  StatePlaces places;
  places.begin.resize(parameters.size());
  for (std::size_t buffer = 0; buffer < buffers; ++buffer) {
    const auto width_of = [&](std::size_t i) {
      return buffer < widths[i].size() ? widths[i][buffer] : 0;
    };
    bool alike = true;
    for (std::size_t i = 1; i < parameters.size(); ++i) alike = alike && width_of(i) == width_of(0);
    std::int64_t end = 0;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const Ownership& own = table.parameters[i];
      places.begin[i][buffer] = alike ? own.state * width_of(i) : end;
      end += round_up(own.owned.length() * width_of(i), line_bytes);
    }
    places.bytes.push_back(alike ? table.state_length * width_of(0) : end);
  }
  return places;
}

OwnershipTable whole_ownership(const StagePlan& stage) {
  OwnershipTable table;
  for (std::size_t i = 0; i < stage.parameters.size(); ++i) {
    const Slice whole{0, stage.parameters[i].shape.numel()};
    table.parameters.push_back({.scattered = whole,
                                .summed = whole,
                                .owned = whole,
                                .state = stage.flat.offset[i],
                                .counts = true});
  }
  table.state_length = stage.flat.length;
  return table;
}

}  // namespace trainctl
