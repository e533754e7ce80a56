#include "plan/gradients/gathers.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/at.h"
#include "base/integers.h"
#include "plan/gradients/buckets.h"

namespace trainctl {

namespace {

class Gathers {
 public:
  Gathers(const std::vector<ParamSpec>& parameters, const std::vector<OptimizerShard>& shards,
          const std::vector<bool>& freed)
      : parameters_(parameters), shards_(shards), freed_(freed) {}

  /// Adds the sharded parameters of a bucket.
  void add(const Bucket& bucket, int number) {
    GatherBlock block;
    bool all_freed = true;
    for (const int index : bucket.parameters) {
      const bool sliced = kind(index) == ShardKind::bucket;
      if (sliced || (kind(index) != ShardKind::whole && !freed(index))) {
        block.parameters.push_back(index);
      }
      if (sliced) block.bucket = number;
      all_freed = all_freed && freed(index);
    }
    block.freed = block.bucket >= 0 && all_freed;
    add(std::move(block));
  }

  /// Adds a block for each unit, with the parameters for which takes(index) is true.
  void add_units(bool from_host, const auto& takes) {
    std::map<int, GatherBlock> blocks;
    for (int index = 0; index < std::ssize(parameters_); ++index) {
      if (!takes(index)) continue;
      GatherBlock& block = blocks[spec(index).unit];
      block.parameters.push_back(index);
      block.freed = true;
      block.from_host = from_host;
    }
    for (auto& [unit, block] : blocks) add(std::move(block));
  }
  void add_freed() {
    add_units(false, [&](int index) {
      return freed(index) && (kind(index) == ShardKind::rows || kind(index) == ShardKind::dealt);
    });
  }

  void add_fused(bool expert, const CommFusionConfig& fusion) {
    std::vector<int> rows;
    std::vector<std::int64_t> elements;
    for (int index = 0; index < static_cast<int>(parameters_.size()); ++index) {
      if (kind(index) != ShardKind::rows || spec(index).expert != expert || freed(index)) continue;
      rows.push_back(index);
      elements.push_back(spec(index).shape.numel());
    }
    const std::vector<int> blocks = fusion_blocks(elements, fusion_threshold(fusion.allgather));
    GatherBlock block;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const bool opens = i > 0 && (!fusion.openstate || blocks[i] != blocks[i - 1]);
      if (opens) add(std::exchange(block, {}));
      block.parameters.push_back(rows[i]);
    }
    add(std::move(block));
  }

  std::vector<GatherBlock> take() {
    std::ranges::stable_sort(made_, {}, [](const GatherBlock& one) { return one.units.begin; });
    return std::move(made_);
  }

 private:
  const ParamSpec& spec(int index) const { return at(parameters_, index); }
  bool freed(int index) const { return !freed_.empty() && at(freed_, index); }
  ShardKind kind(int index) const { return at(shards_, index).kind; }

  void add(GatherBlock block) {
    if (block.parameters.empty()) return;
    std::sort(block.parameters.begin(), block.parameters.end());
    block.units = {spec(block.parameters.front()).unit, spec(block.parameters.back()).unit + 1};
    made_.push_back(std::move(block));
  }

  const std::vector<ParamSpec>& parameters_;
  const std::vector<OptimizerShard>& shards_;
  const std::vector<bool>& freed_;
  std::vector<GatherBlock> made_;
};

}  // namespace

std::vector<GatherBlock> make_gathers(const std::vector<ParamSpec>& parameters,
                                      const std::vector<OptimizerShard>& shards,
                                      const FlatBuffer& flat, BucketRule rule,
                                      const CommFusionConfig& fusion,
                                      const std::vector<bool>& freed,
                                      const std::vector<bool>& on_host) {
  Gathers made(parameters, shards, freed);
  const bool fused = rule == BucketRule::comm_fusion;
  if (fused) {
    made.add_fused(false, fusion);
    made.add_fused(true, fusion);
  }
  for (std::size_t i = flat.buckets.size(); i > 0; --i) {
    const Bucket& bucket = flat.buckets[i - 1];
    const ShardKind kind = at(shards, bucket.parameters.front()).kind;
    if (!fused || kind != ShardKind::rows) made.add(bucket, static_cast<int>(i - 1));
  }
  made.add_freed();
  if (!on_host.empty()) made.add_units(true, [&](int index) { return at(on_host, index); });
  return made.take();
}

namespace {

constexpr std::int64_t resident_unit = 64;  // alignment in bytes

}  // namespace

std::vector<std::int64_t> lay_residents(const std::vector<int>& parameters,
                                        const std::vector<ParamSpec>& table, const FlatBuffer& flat,
                                        const Bucket* bucket, DType compute) {
  std::vector<std::int64_t> places;
  std::int64_t bytes = 0;
  if (bucket != nullptr) bytes = round_up(bucket->length * size_of(compute), resident_unit);
  for (const int index : parameters) {
    const ParamSpec& row = at(table, index);
    const DType type = read_type(row, compute);
    if (bucket != nullptr && type == compute) {
      places.push_back((at(flat.offset, index) - bucket->offset) * size_of(type));
    } else {
      places.push_back(bytes);
      bytes += round_up(row.shape.numel() * size_of(type), resident_unit);
    }
  }
  places.push_back(bytes);
  return places;
}

}  // namespace trainctl
