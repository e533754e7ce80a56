#include "plan/gradients/buckets.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/at.h"
#include "base/integers.h"

namespace trainctl {

namespace {

constexpr std::int64_t alignment = 64;  // elements

/// The parameters of one buffer in buffer order: of one chunk, and all dense or all experts.
struct Buffer {
  std::vector<int> parameters;
  bool expert = false;
  std::size_t chunk = 0;
  bool scattered = false;  // its gradients are reduce-scattered
};

/// The alignment of parameters and buckets, in elements.
struct Padding {
  std::int64_t start = 1, length = 1;
  bool shared_alone = true;  // whether a tied embedding is a bucket of its own
};

/// Places parameters one after the other and closes buckets.
class Builder {
 public:
  explicit Builder(const std::vector<ParamSpec>& parameters) : parameters_(parameters) {
    layout_.offset.resize(parameters.size());
  }

  void open(Padding padding, bool expert) {
    padding_ = padding;
    expert_ = expert;
    bucket_ = Bucket{.offset = end_, .length = 0, .parameters = {}, .expert = expert};
  }
  void place(int index) {
    const auto at = static_cast<std::size_t>(index);
    const ParamSpec& parameter = parameters_[at];
    if (parameter.two_homes && padding_.shared_alone) close();
    layout_.offset[at] = round_up(end_, padding_.start);
    end_ = layout_.offset[at] + parameter.shape.numel();
    bucket_.ready_unit = empty() ? parameter.unit : std::min(bucket_.ready_unit, parameter.unit);
    bucket_.parameters.push_back(index);
    if (parameter.two_homes && padding_.shared_alone) close();
  }
  void close() {
    if (empty()) return;
    bucket_.length = round_up(end_ - bucket_.offset, padding_.length);
    end_ = bucket_.offset + bucket_.length;
    layout_.buckets.push_back(bucket_);
    open(padding_, expert_);
  }
  bool empty() const { return bucket_.parameters.empty(); }
  std::int64_t filled() const { return end_ - bucket_.offset; }
  int ready_unit() const { return bucket_.ready_unit; }
  const ParamSpec& spec(int index) const { return at(parameters_, index); }
  FlatBuffer take() {
    layout_.length = end_;
    return std::move(layout_);
  }

 private:
  const std::vector<ParamSpec>& parameters_;
  FlatBuffer layout_;
  Padding padding_;
  Bucket bucket_;
  bool expert_ = false;
  std::int64_t end_ = 0;
};

std::size_t chunk_of(int unit, const std::vector<UnitRange>& units) {
  for (std::size_t chunk = 0; chunk < units.size(); ++chunk) {
    if (units[chunk].begin <= unit && unit < units[chunk].end) return chunk;
  }
  return 0;
}

/// Whether the gradient of a parameter is reduce-scattered, in a bucket without other gradients.
bool is_scattered(const BucketInput& input, std::size_t parameter) {
  return input.rule != BucketRule::megatron && parameter < input.scattered.size() &&
         input.scattered[parameter];
}

/// Order: dense before experts, last chunk first, scattered first, each in reverse model order.
std::vector<Buffer> buffers_of(const std::vector<ParamSpec>& parameters, const BucketInput& input) {
  std::vector<Buffer> buffers;
  const std::size_t chunks = std::max<std::size_t>(1, input.units.size());
  for (const bool expert : {false, true}) {
    for (std::size_t left = 2 * chunks; left > 0; --left) {
      const bool scattered = left % 2 == 0;
      Buffer buffer{
          .parameters = {}, .expert = expert, .chunk = (left - 1) / 2, .scattered = scattered};
      for (std::size_t i = parameters.size(); i > 0; --i) {
        const ParamSpec& row = parameters[i - 1];
        if (row.expert != expert || chunk_of(row.unit, input.units) != buffer.chunk) continue;
        if (is_scattered(input, i - 1) != scattered) continue;
        buffer.parameters.push_back(static_cast<int>(i - 1));
      }
      if (!buffer.parameters.empty()) buffers.push_back(buffer);
    }
  }
  return buffers;
}

std::int64_t replicas_of(const Buffer& buffer, const BucketInput& input) {
  return buffer.expert ? input.expert_replicas : input.replicas;
}

void lay_by_size(Builder& builder, const Buffer& buffer, std::int64_t bucket_size) {
  for (const int index : buffer.parameters) {
    const ParamSpec& parameter = builder.spec(index);
    // A parameter that fills a bucket and is ready later would delay the gradients before it, so it
    // starts a new bucket, unless they are too few for a sum of their own.
    const bool later = !builder.empty() && parameter.unit != builder.ready_unit();
    const bool worth_it = builder.filled() >= bucket_size / 4;
    if (later && worth_it && parameter.shape.numel() >= bucket_size) builder.close();
    builder.place(index);
    if (builder.filled() >= bucket_size) builder.close();
  }
  builder.close();
}

/// megatron.core.distributed.param_and_grad_buffer: a bucket is full when its elements, with gaps,
/// reach the size, which is equal for dense and expert buffers. (There, a tied embedding is a
/// bucket of its own only with the distributed optimizer; here always.)
void lay_as_megatron(Builder& builder, const Buffer& buffer, const BucketInput& input) {
  const std::int64_t given = input.bucket_size > 0
                                 ? input.bucket_size
                                 : default_bucket_size(BucketRule::megatron, input.replicas);
  const bool cut = input.overlap && input.stage == 0 && buffer.chunk == 0;
  for (const int index : buffer.parameters) {
    builder.place(index);
    if (cut && builder.filled() >= given) builder.close();
  }
  builder.close();
}

/// Makes a bucket of consecutive parameters with the same block number.
void lay_by_blocks(Builder& builder, const Buffer& buffer, const std::vector<int>& block) {
  for (std::size_t i = 0; i < buffer.parameters.size(); ++i) {
    if (i > 0 && block[i] != block[i - 1]) builder.close();
    builder.place(buffer.parameters[i]);
  }
  builder.close();
}

/// The block of each parameter of a buffer by comm_fusion. `first`: number of collectives of
/// earlier buffers, since the index rule counts those of the whole rank.
std::vector<int> fusion_of(const Builder& builder, const Buffer& buffer, const BucketInput& input,
                           std::size_t first) {
  const std::size_t count = buffer.parameters.size();
  std::vector<int> blocks(count);
  std::iota(blocks.begin(), blocks.end(), 0);
  if (!input.fusion.openstate) return blocks;
  // Indices count the all-reduces of a run without a parallel optimizer.
  const FusionConfig none;
  const FusionConfig& given =
      buffer.scattered ? input.fusion.reducescatter : input.fusion.allreduce;
  const bool counts = given.mode == FusionMode("index");
  const FusionConfig& rule = counts && input.parallel_optimizer ? none : given;
  if (rule.mode == FusionMode("index")) {
    const std::vector<int> all = index_blocks(first + count, rule.config.index.value_or(IntList{}));
    return {all.begin() + static_cast<std::ptrdiff_t>(first), all.end()};
  }
  std::vector<std::int64_t> elements;
  for (const int index : buffer.parameters) elements.push_back(builder.spec(index).shape.numel());
  return fusion_blocks(elements, fusion_threshold(rule));
}

/// Sorts the parameters by group, in the order in which groups become ready; returns the groups.
std::vector<int> group_layers(const Builder& builder, Buffer& buffer, const BucketInput& input) {
  const bool whole =
      input.units.empty() || (input.units.size() == 1 && input.units[0].begin == 0 &&
                              input.units[0].end == static_cast<int>(input.layers) + 2);
  const auto group = [&](int index) {
    return static_cast<int>(
        aggregation_group(builder.spec(index).unit, input.layers, input.aggregation_groups, whole));
  };
  std::map<int, int> ready;  // unit that completes each group
  for (const int index : buffer.parameters) {
    const int unit = builder.spec(index).unit;
    const auto [at, fresh] = ready.try_emplace(group(index), unit);
    if (!fresh) at->second = std::min(at->second, unit);
  }
  std::ranges::stable_sort(buffer.parameters, {}, [&](int index) { return -ready[group(index)]; });
  std::vector<int> blocks;
  for (const int index : buffer.parameters) blocks.push_back(group(index));
  return blocks;
}

Padding padding_of(const Buffer& buffer, const BucketInput& input) {
  const std::int64_t replicas = replicas_of(buffer, input);
  if (input.rule != BucketRule::megatron) return {alignment, alignment * replicas};
  if (!input.parallel_optimizer) return {1, 1, false};
  return {alignment, std::lcm(replicas, std::int64_t{128})};
}

}  // namespace

std::int64_t default_bucket_size(BucketRule rule, std::int64_t replicas) {
  if (rule != BucketRule::megatron) return 4'000'000;
  return std::max<std::int64_t>(40'000'000, 1'000'000 * replicas);
}

std::int64_t fusion_threshold(const FusionConfig& config) {
  const bool sized = config.mode == FusionMode("size") && config.config.size;
  const std::int64_t megabytes = sized ? *config.config.size : 64;
  return megabytes * 1024 * 1024 / 4;
}

std::vector<int> fusion_blocks(const std::vector<std::int64_t>& elements, std::int64_t threshold) {
  std::vector<int> blocks;
  std::int64_t remaining = threshold;
  int block = 0;
  for (std::size_t i = 0; i < elements.size(); ++i) {
    if (i > 0 && elements[i] < remaining) {
      remaining -= elements[i];
    } else if (i > 0) {
      ++block;
      remaining = threshold;
    }
    blocks.push_back(block);
  }
  return blocks;
}

std::vector<int> index_blocks(std::size_t count, const IntList& last) {
  std::vector<int> blocks;
  std::size_t next = 0;
  for (std::size_t i = 0; i < count; ++i) {
    while (next < last.size() && static_cast<std::int64_t>(i) > last[next]) ++next;
    blocks.push_back(static_cast<int>(next));
  }
  return blocks;
}

std::int64_t aggregation_group(int unit, std::int64_t layers, std::int64_t groups, bool whole) {
  const std::int64_t together =
      std::max<std::int64_t>(1, layers / std::max<std::int64_t>(1, groups));
  const bool block = unit >= 1 && unit <= layers;
  if (!block && whole) return groups;
  const std::int64_t layer =
      std::clamp<std::int64_t>(unit - 1, 0, std::max<std::int64_t>(0, layers - 1));
  return layer / together + 1;
}

FlatBuffer make_flat_layout(const std::vector<ParamSpec>& parameters, const BucketInput& input) {
  Builder builder(parameters);
  std::size_t placed = 0;
  for (Buffer& buffer : buffers_of(parameters, input)) {
    builder.open(padding_of(buffer, input), buffer.expert);
    switch (input.rule) {
      case BucketRule::size:
        lay_by_size(builder, buffer,
                    input.bucket_size > 0 ? input.bucket_size : default_bucket_size(input.rule, 1));
        break;
      case BucketRule::megatron: lay_as_megatron(builder, buffer, input); break;
      case BucketRule::comm_fusion:
        lay_by_blocks(builder, buffer, fusion_of(builder, buffer, input, placed));
        break;
      case BucketRule::layers: {
        const std::vector<int> groups = group_layers(builder, buffer, input);
        lay_by_blocks(builder, buffer, groups);
      }
    }
    placed += buffer.parameters.size();
  }
  return builder.take();
}

bool is_partial(const ParamSpec& parameter, bool copies) {
  return copies ? parameter.tp_copies > 1 : at(parameter.gradient_sum, Axis::tp);
}

std::int64_t partial_elements(const std::vector<ParamSpec>& parameters, const Bucket& bucket,
                              bool copies) {
  std::int64_t count = 0;
  for (const int index : bucket.parameters) {
    const ParamSpec& row = at(parameters, index);
    if (is_partial(row, copies)) count += row.shape.numel();
  }
  return count;
}

std::int64_t packed_elements(const std::vector<ParamSpec>& parameters, const FlatBuffer& layout,
                             bool casts) {
  std::int64_t most = 0;
  for (const Bucket& bucket : layout.buckets) {
    if (casts) most = std::max(most, bucket.length);
    for (const bool copies : {false, true}) {
      most = std::max(most, partial_elements(parameters, bucket, copies));
    }
  }
  return most;
}

}  // namespace trainctl
