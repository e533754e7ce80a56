#include "base/hash.h"

#include <array>
#include <bit>
#include <concepts>
#include <optional>
#include <type_traits>

#include "plan/prepare/hash.h"
#include "plan/rules/loss_scaling.h"

namespace trainctl {

namespace {

/// Folds values in an order and a form that no machine changes: integers as 8 little-endian bytes,
/// reals by their bits, strings with their length.
class Digest {
 public:
  template <class T>
  requires(std::integral<T> || std::is_enum_v<T>) void add(T value) {
    const auto wide = static_cast<std::uint64_t>(value);
    std::array<char, 8> bytes{};
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<char>((wide >> (8 * i)) & 0xffU);
    }
    state_ = fnv1a({bytes.data(), bytes.size()}, state_);
  }
  void add(double value) { add(std::bit_cast<std::uint64_t>(value)); }
  void add(std::string_view text) {
    add(text.size());
    state_ = fnv1a(text, state_);
  }
  template <class T>
  void add(const std::optional<T>& value) {
    add(value.has_value());
    if (value) add(*value);
  }
  void add(const Shape& shape) {
    add(shape.rank());
    for (int dim = 0; dim < shape.rank(); ++dim) add(shape[dim]);
  }
  template <class... T>
  requires(sizeof...(T) > 1) void add(const T&... values) { (add(values), ...); }

  std::uint64_t state() const { return state_; }

 private:
  std::uint64_t state_ = fnv_offset;
};

void add_model(Digest& digest, const ModelShape& m) {
  digest.add(m.family, m.layers, m.hidden, m.ffn, m.heads, m.kv_heads, m.head_dim);
  digest.add(m.seq_length, m.positions, m.vocab, m.padded_vocab);
  digest.add(m.tied, m.linear_bias, m.qkv_bias, m.qk_norm, m.norm_epsilon, m.rotary_base);
  digest.add(m.rope_scaling.factor, m.rope_scaling.low_freq_factor, m.rope_scaling.high_freq_factor,
             m.rope_scaling.original_max_position_embeddings);
  digest.add(m.hidden_dropout, m.attention_dropout, m.embedding_dropout, m.init_std);
  digest.add(m.experts, m.topk, m.expert_ffn, m.capacity_factor);
}

void add_sizes(Digest& digest, const Plan& plan) {
  const Mesh& mesh = plan.mesh;
  digest.add(mesh.tp, mesh.cp, mesh.dp, mesh.pp, mesh.etp, mesh.ep, mesh.edp);
  for (const Axis axis : mesh.order) digest.add(axis);
  // Threads are among them: they decide the order of sums within a rank.
  digest.add(plan.compute, plan.micro_batch_size, plan.microbatches, plan.threads_per_rank);
  digest.add(plan.mode, plan.sequence_parallel, plan.split_vocabulary, plan.group_size);
  digest.add(std::string_view(plan.schedule));
  digest.add(plan.messages.mode, plan.messages.keeps_outputs, plan.message_dtype,
             plan.result_broadcast);
  digest.add(plan.fp32_sums, plan.full_batch, plan.broadcast_parameters);
  digest.add(plan.gradient.buckets, plan.gradient.dtype, plan.gradient.factor, plan.gradient.fused);
}

void add_parameters(Digest& digest, const StagePlan& stage) {
  for (const ParamSpec& row : stage.parameters) {
    digest.add(std::string_view(row.name));
    digest.add(row.global_shape, row.shape, row.role, row.init, row.init_deviation);
    digest.add(row.decay, row.unit, row.expert, row.tp_copies, row.two_homes, row.second_home);
    for (std::size_t axis = 0; axis < axis_count; ++axis) {
      digest.add(row.split_dim[axis], row.gradient_sum[axis]);
    }
  }
  for (std::int64_t offset : stage.flat.offset) digest.add(offset);
  for (const Bucket& bucket : stage.flat.buckets) {
    digest.add(bucket.offset, bucket.length, bucket.ready_unit, bucket.parameters.size(),
               bucket.expert);
  }
}

void add_stage(Digest& digest, const StagePlan& stage) {
  digest.add(stage.units.size());
  for (const UnitRange& range : stage.units) digest.add(range.begin, range.end);
  add_parameters(digest, stage);
  for (const ActivationSpec& row : stage.activations) {
    digest.add(std::string_view(row.name));
    digest.add(row.shape, row.dtype, row.lifetime);
  }
  for (const GatherBlock& block : stage.gathers) {
    digest.add(block.parameters.size(), block.bucket);
    for (const int index : block.parameters) digest.add(index);
  }
  digest.add(stage.slots);
  for (const Action& row : stage.actions) {
    digest.add(row.kind, row.chunk, row.microbatch, row.begin, row.end, row.bucket);
  }
}

void add_settings(Digest& digest, const Config& config) {
  const TrainConfig& train = config.train;
  digest.add(train.steps, train.seed, train.validate_every, train.on_bad_loss,
             train.check_replicas_every);
  const LossScaling scaling = resolve_loss_scaling(config.precision);
  digest.add(scaling.on, scaling.initial, scaling.least, scaling.growth, scaling.backoff,
             scaling.window, scaling.hysteresis);
  const OptimizerConfig& o = config.optimizer;
  digest.add(o.type, o.beta1, o.beta2, o.eps, o.weight_decay, o.start_weight_decay);
  digest.add(o.end_weight_decay, o.weight_decay_incr_style, o.momentum, o.clip_grad_norm);
  const LrScheduleConfig& lr = config.lr_schedule;
  digest.add(lr.style, lr.max_lr, lr.min_lr, lr.init_lr, lr.warmup_steps);
  digest.add(lr.decay_steps, lr.wsd_decay_steps, lr.wsd_decay_style);
  const DataConfig& data = config.data;
  for (const DataSource& source : data.train) digest.add(source.weight);
  digest.add(data.train.size());
  // "sentencepiece:MODEL" without its path, which may differ between hosts.
  digest.add(std::string_view(data.tokenizer).substr(0, data.tokenizer.find(':')));
  digest.add(data.validation.path.has_value(), data.validation.fraction, data.validation.split,
             data.validation.max_sequences);
  digest.add(data.shuffle, data.reset_attention_mask, data.reset_position_ids, data.eod_mask_loss);
  digest.add(data.eod_token);
  const ParallelConfig& parallel = config.parallel;
  digest.add(std::string_view(parallel.device));
  digest.add(parallel.parallel_optimizer.enable, parallel.parallel_optimizer.threshold,
             parallel.parallel_optimizer.weight_shard_size);
  digest.add(parallel.cp_comm_type);
  digest.add(config.moe.aux_loss_factor, config.recompute.enable, config.offload.enable);
}

}  // namespace

std::uint64_t plan_hash(const Plan& plan, const Config& config) {
  Digest digest;
  digest.add(std::string_view("trainctl plan 2"));
  add_model(digest, plan.model);
  add_sizes(digest, plan);
  digest.add(plan.stages.size());
  for (const StagePlan& stage : plan.stages) add_stage(digest, stage);
  add_settings(digest, config);
  return digest.state();
}

}  // namespace trainctl
