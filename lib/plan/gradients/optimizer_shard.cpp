#include "plan/gradients/optimizer_shard.h"

#include <algorithm>

#include "base/at.h"
#include "base/text.h"

namespace trainctl {

namespace {

/// The number of parts into which dim 0 is already cut.
std::int64_t cuts_of_rows(const ParamSpec& parameter) {
  return parameter.shape[0] > 0 ? parameter.global_shape[0] / parameter.shape[0] : 1;
}

OptimizerShard whole(const ParamSpec& parameter, std::string why) {
  return {.elements = parameter.shape.numel(), .why = std::move(why)};
}

OptimizerShard shard_rows(const ParallelOptimizerConfig& optimizer, const Mesh& mesh,
                          const ParamSpec& parameter) {
  const std::int64_t bytes = parameter.shape.numel() * size_of(DType::f32);
  const std::int64_t least = optimizer.threshold * 1024;
  const std::int64_t replicas = replicas_of(parameter, mesh);
  const std::int64_t given = optimizer.weight_shard_size;
  const bool divides = given >= 1 && replicas % given == 0;
  const std::int64_t ranks = divides ? given : replicas;
  const std::int64_t cuts = cuts_of_rows(parameter);
  const std::int64_t rows = parameter.global_shape[0];
  if (parameter.bias) return whole(parameter, "a bias");
  if (parameter.two_homes) return whole(parameter, "held by two stages");
  if (bytes < least) return whole(parameter, formatted("{} bytes, fewer than {}", bytes, least));
  if (replicas <= 1) return whole(parameter, "one replica");
  if (ranks == 1) return whole(parameter, "shared by one rank");
  if (rows % (cuts * ranks) != 0) {
    return whole(parameter,
                 formatted("{} rows % ({} cuts x {} ranks) is not 0", rows, cuts, ranks));
  }
  return {.kind = ShardKind::rows,
          .ranks = ranks,
          .mirrors = replicas / ranks,
          .rows = parameter.shape[0] / ranks,
          .elements = parameter.shape.numel() / ranks,
          .why = {}};
}

OptimizerShard deal(const Mesh& mesh, const ParamSpec& parameter, std::size_t index) {
  return {.kind = ShardKind::dealt,
          .ranks = mesh.dp,
          .owner = static_cast<std::int64_t>(index) % mesh.dp,
          .elements = parameter.shape.numel(),
          .why = {}};
}

OptimizerShard slice(const Mesh& mesh, const ParamSpec& parameter) {
  const std::int64_t ranks = parameter.expert ? mesh.edp : mesh.dp * mesh.cp;
  if (ranks == 1) return whole(parameter, "one replica");
  return {.kind = ShardKind::bucket, .ranks = ranks, .why = {}};
}

}  // namespace

std::int64_t replicas_of(const ParamSpec& parameter, const Mesh& mesh) {
  if (parameter.expert) return mesh.edp;
  const bool cut = at(parameter.split_dim, Axis::tp) >= 0;
  return mesh.dp * mesh.cp * (cut ? parameter.tp_copies : mesh.tp);
}

std::vector<OptimizerShard> shard_optimizer(ParallelMode mode,
                                            const ParallelOptimizerConfig& optimizer,
                                            BucketRule rule, const Mesh& mesh,
                                            const std::vector<ParamSpec>& parameters) {
  std::vector<OptimizerShard> shards;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const ParamSpec& parameter = parameters[i];
    if (!optimizer.enable) {
      shards.push_back(whole(parameter, "the parallel optimizer is off"));
    } else if (mode == ParallelMode::stand_alone) {
      shards.push_back(whole(parameter, "parallel_mode is stand_alone"));
    } else if (rule == BucketRule::megatron) {
      shards.push_back(slice(mesh, parameter));
    } else if (mode == ParallelMode::data_parallel) {
      shards.push_back(mesh.dp > 1 ? deal(mesh, parameter, i) : whole(parameter, "one replica"));
    } else {
      shards.push_back(shard_rows(optimizer, mesh, parameter));
    }
  }
  return shards;
}

namespace {

/// The largest part of [begin, end) between two neighbouring multiples of `length`.
std::int64_t max_in_one_slice(std::int64_t begin, std::int64_t end, std::int64_t length) {
  const std::int64_t first = begin / length;
  const std::int64_t last = (end - 1) / length;
  if (first == last) return end - begin;
  if (last - first > 1) return length;
  return std::max(last * length - begin, end - last * length);
}

}  // namespace

void measure_slices(std::vector<OptimizerShard>& shards, const std::vector<ParamSpec>& parameters,
                    const FlatBuffer& flat) {
  for (const Bucket& bucket : flat.buckets) {
    for (const int index : bucket.parameters) {
      const auto at = static_cast<std::size_t>(index);
      if (shards[at].kind != ShardKind::bucket) continue;
      const std::int64_t begin = flat.offset[at] - bucket.offset;
      shards[at].elements = max_in_one_slice(begin, begin + parameters[at].shape.numel(),
                                             bucket.length / shards[at].ranks);
    }
  }
}

}  // namespace trainctl
