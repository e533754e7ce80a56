#include "base/integers.h"

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <map>
#include <optional>
#include <type_traits>

#include "config/schema/fields.h"
#include "plan/prepare/hash.h"

namespace trainctl {

namespace {

/// Hashes values in an order and form that is equal on all machines: integers as 8 little-endian
/// bytes, reals by their bits, strings with their length.
class Digest {
 public:
  template <class T>
  requires(std::integral<T> || IsChoice<T>) void add(T value) {
    const auto wide = static_cast<std::uint64_t>(value);
    std::array<char, 8> bytes{};
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<char>((wide >> (8 * i)) & 0xffU);
    }
    state_ = fnv1a({bytes.data(), bytes.size()}, state_);
  }
  void add(double value) { add(std::bit_cast<std::uint64_t>(value)); }
  void add(const std::string& text) { add(std::string_view(text)); }
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
  template <class T>
  void add(const std::vector<T>& values) {
    add(values.size());
    for (const T& value : values) add(value);
  }
  void add(const DatasetSplit& split) { add(std::string_view(split.word), split.splits); }
  void add(const CpCommTypes& types) { add(types.layers); }
  void add(const NetworkLevels& levels) { add(levels.size()); }
  /// Adds nothing without groups, so that the hashes of such plans are unchanged.
  void add(const OptimizerGroups& groups) {
    for (const OptimizerGroup& group : groups) {
      add(group.match, group.type, group.lr_mult, group.wd_mult);
    }
  }
  void add(const FusionValue& value) { add(value.size, value.index); }
  void add(const MuonCoefficients& value) {
    add(value.set, value.list.size());
    for (const MuonTriple& triple : value.list) add(triple[0], triple[1], triple[2]);
  }
  template <class... T>
  requires(sizeof...(T) > 1) void add(const T&... values) { (add(values), ...); }

  std::uint64_t state() const { return state_; }

 private:
  std::uint64_t state_ = fnv_offset;
};

/// Adds the kinds of layers that a config names. For a single kind, its values are hashed among the
/// sizes of the model.
void add_kinds(Digest& digest, const ModelShape& m) {
  digest.add(m.kinds.size(), m.ropes.size());
  for (const LayerKind& kind : m.kinds) {
    digest.add(kind.ffn, kind.kv_heads, kind.qk_norm, kind.experts, kind.rope);
  }
  for (const RopeForm& rope : m.ropes) {
    digest.add(rope.size, rope.base);
    digest.add(rope.scaling.factor, rope.scaling.low_freq_factor, rope.scaling.high_freq_factor,
               rope.scaling.original_max_position_embeddings);
  }
  digest.add(m.kind_of_layer);
}

void add_model(Digest& digest, const ModelShape& m, const Config& config) {
  const LayerKind& first = m.kinds.front();
  const RopeScalingConfig& scaling = config.model.rope_scaling;
  digest.add(m.family, m.layers, m.hidden, first.ffn, m.heads, first.kv_heads, m.head_dim);
  digest.add(m.seq_length, m.positions, m.vocab, m.padded_vocab);
  digest.add(m.tied, m.mlp_bias, m.qkv_bias, config.model.qk_layernorm, m.norm_epsilon,
             config.model.rotary_base);
  digest.add(scaling.factor, scaling.low_freq_factor, scaling.high_freq_factor,
             scaling.original_max_position_embeddings);
  digest.add(m.hidden_dropout, m.attention_dropout, m.embedding_dropout, m.init_std);
  digest.add(m.experts, m.topk, m.expert_ffn, config.moe.first_dense_layers,
             std::max<std::int64_t>(1, config.moe.layer_frequency));
  digest.add(m.pre_softmax, m.routing_group, m.capacity_factor, m.overflow, m.balance_factor,
             m.z_factor);
  digest.add(m.rounds, m.weights, m.capacity_group, m.free_counts);
  digest.add(m.sigmoid_scores, m.topk_scaling, m.expert_groups, m.group_topk, m.expert_bias,
             m.bias_rate, m.shared_ffn, m.shared_gate);
  if (!config.model.layers.empty()) add_kinds(digest, m);
}

/// Adds values only if they differ from the family's usual model, so that the digests of usual
/// models are unchanged.
void add_forms(Digest& digest, const ModelShape& m) {
  ModelConfig family;
  family.family = m.family;
  const ModelShape usual = model_shape(family);
  const auto add = [&](std::string_view name, const auto& value, const auto& common) {
    if (value == common) return;
    digest.add(name);
    digest.add(value);
  };
  add("out_bias", m.out_bias, m.mlp_bias);
  add("activation", m.activation, usual.activation);
  add("gated", m.gated_mlp, usual.gated_mlp);
  add("gate_offset", m.gate_offset, 0.0);
  add("gate_limit", m.gate_limit, 0.0);
  add("norm_placement", m.norm_placement, usual.norm_placement);
  add("qk_norm_form", m.qk_norm_form, usual.qk_norm_form);
  add("qk_norm_after_rope", m.qk_norm_after_rope, m.qk_norm_form == QkNormForm::l2);
  add("zero_centered_norm", m.zero_centered_norm, false);
  add("embedding_multiplier", m.embedding_multiplier, 1.0);
  add("residual_multiplier", m.residual_multiplier, 1.0);
  add("logit_scale", m.logit_scale, 1.0);
  add("logit_cap", m.logit_cap, 0.0);
  add("softmax_scale", m.softmax_scale, default_softmax_scale(m.head_dim));
  add("attention_cap", m.attention_cap, 0.0);
  for (std::size_t i = 0; i < m.kinds.size(); ++i) {
    const LayerKind& kind = m.kinds[i];
    const std::string of = i == 0 ? "" : std::to_string(i);  // number of the kind, except the first
    add(of + "window", kind.limits.window, std::int64_t{0});
    add(of + "chunk", kind.limits.chunk, std::int64_t{0});
    add(of + "temperature", kind.temperature, -1);
    add(of + "sinks", kind.sinks, false);
  }
  for (const TemperatureConfig& one : m.temperatures) digest.add(one.beta, one.floor, one.add);
  add("output_gate", m.output_gate, false);
  const RopeScalingConfig none;
  for (const RopeForm& rope : m.ropes) {
    const RopeScalingConfig& scaling = rope.scaling;
    add("rotary", rope.size, m.head_dim);
    add("interleaved", rope.interleaved, false);
    add("rope_type", rope.type, scaling.factor > 1 ? RopeType::llama3 : RopeType::none);
    add("amplitude", rope.amplitude, 1.0);
    add("beta_fast", scaling.beta_fast, none.beta_fast);
    add("beta_slow", scaling.beta_slow, none.beta_slow);
    add("truncate", scaling.truncate, none.truncate);
    add("alpha", scaling.alpha, none.alpha);
    add("pair_factor", rope.pair_factor, std::vector<double>{});
  }
}

void add_sizes(Digest& digest, const Plan& plan) {
  const Mesh& mesh = plan.mesh;
  digest.add(mesh.tp, mesh.cp, mesh.dp, mesh.pp, mesh.etp, mesh.ep, mesh.edp);
  for (const Axis axis : mesh.order) digest.add(axis);
  // Threads are included, since they determine the order of sums within a rank.
  digest.add(plan.compute, plan.micro_batch_size, plan.microbatches, plan.threads_per_rank);
  digest.add(plan.head_tokens);
  digest.add(plan.mode, plan.sequence_parallel, plan.group_size);
  digest.add(plan.splits.embedding, plan.splits.head, plan.splits.moves_at_once);
  for (const BlockSplit& block : plan.splits.blocks) {
    digest.add(block.attention, block.feed_forward);
  }
  digest.add(plan.map.route);
  digest.add(std::string_view(plan.schedule));
  digest.add(plan.messages.mode, plan.messages.keeps_outputs, plan.message_dtype,
             plan.result_broadcast);
  digest.add(plan.device, plan.cuda_graphs, plan.cudnn.has_value(), plan.fp32_sums, plan.full_batch,
             plan.broadcast_parameters);
  if (shares(plan.share_devices)) digest.add(plan.share_devices);
  if (plan.product_sm_margin > 0) digest.add(plan.product_sm_margin);
  digest.add(plan.exchange.chunks, plan.exchange.by_stream, plan.exchange.by_slice,
             plan.exchange.parts, plan.exchange.beside_passes);
  digest.add(plan.gradient.buckets, plan.gradient.dtype, plan.gradient.kept, plan.gradient.factor,
             plan.gradient.fused);
}

void add_parameters(Digest& digest, const StagePlan& stage) {
  for (const ParamSpec& row : stage.parameters) {
    digest.add(std::string_view(row.name));
    digest.add(row.global_shape, row.shape, row.is_vector, row.init, row.init_deviation);
    if (row.master != DType::f32) digest.add(row.master);
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
    digest.add(row.shape, row.dtype, row.storage, row.from, row.until, row.kind);
  }
  for (const GatherBlock& block : stage.gathers) {
    digest.add(block.parameters.size(), block.bucket, block.freed);
    for (const int index : block.parameters) digest.add(index);
  }
  digest.add(stage.activation_slots.bytes, stage.activation_slots.host_bytes);
  for (const Ring* ring : {&stage.gradient_ring, &stage.weight_ring}) {
    for (const int slot : ring->slot) digest.add(slot);
    digest.add(ring->length);
  }
  for (const Action& row : stage.actions) {
    digest.add(row.kind, row.chunk, row.microbatch, row.begin, row.end, row.bucket, row.visit,
               row.leg);
  }
}

/// Settings that are not hashed by their values.
struct Exception {
  // given: whether it is set; changed: only if not the default; word: up to the first ':'
  enum class Hashed { nothing, given, changed, word };
  std::string_view path;  // of a key, or of a section with all keys
  std::string_view reason;
  Hashed hashed = Hashed::nothing;
};

constexpr std::string_view as_it_was = "a plan without it has the hash that it had";
constexpr std::string_view model_forms = "Plan::model says it, where it is not the family's usual";
constexpr std::string_view elsewhere = "hosts may keep it elsewhere";
constexpr std::string_view on_its_own = "each rank does it on its own";
constexpr std::string_view in_plan = "a member of Plan says what it means";
constexpr std::string_view only_first = "only the first rank uses it";
constexpr std::string_view no_wait = "a file that no rank waits for";
constexpr std::string_view predicts = "it only predicts times or a cost";

/// The first row that covers a key decides.
constexpr Exception exceptions[] = {
    {"model.preset", "its values are hashed themselves"},
    {"model.layers", "add_kinds says what they mean"},
    {"model.layer_pattern", "add_kinds says what it means"},
    {"model.use_rope", as_it_was, Exception::Hashed::changed},
    {"log.max_attention_logit", as_it_was, Exception::Hashed::changed},
    {"optimizer.qk_clip_threshold", as_it_was, Exception::Hashed::changed},
    {"optimizer.qk_clip_alpha", as_it_was, Exception::Hashed::changed},
    {"model.from", elsewhere, Exception::Hashed::given},
    {"model.rope_scaling.type", model_forms},
    {"model.rope_scaling.attention_factor", model_forms},
    {"model.rope_scaling.beta_fast", model_forms},
    {"model.rope_scaling.beta_slow", model_forms},
    {"model.rope_scaling.mscale", model_forms},
    {"model.rope_scaling.mscale_all_dim", model_forms},
    {"model.rope_scaling.truncate", model_forms},
    {"model.rope_scaling.alpha", model_forms},
    {"model.rope_scaling.short_factor", model_forms},
    {"model.rope_scaling.long_factor", model_forms},
    {"model.rotary_percent", model_forms},
    {"model.rotary_interleaved", model_forms},
    {"model.softmax_scale", model_forms},
    {"model.sliding_window", model_forms},
    {"model.attention_chunk_size", model_forms},
    {"model.attn_logit_softcapping", model_forms},
    {"model.attention_temperature", model_forms},
    {"model.softmax_type", model_forms},
    {"model.attention_output_gate", model_forms},
    {"model.final_logit_softcapping", model_forms},
    {"model.add_out_bias", model_forms},
    {"model.add_mlp_bias", model_forms},
    {"model.activation", model_forms},
    {"model.gated_linear_unit", model_forms},
    {"model.glu_linear_offset", model_forms},
    {"model.activation_func_clamp_value", model_forms},
    {"model.norm_placement", model_forms},
    {"model.qk_layernorm_form", model_forms},
    {"model.qk_layernorm_after_rope", model_forms},
    {"model.zero_centered_norm", model_forms},
    {"model.embedding_multiplier", model_forms},
    {"model.residual_multiplier", model_forms},
    {"model.logit_scale", model_forms},
    {"data.train.path", elsewhere},
    {"data.validation.path", elsewhere, Exception::Hashed::given},
    {"data.tokenizer", elsewhere, Exception::Hashed::word},
    {"data.cache_dir", elsewhere},
    {"data.prefetch", on_its_own},
    {"parallel.device", in_plan},
    {"parallel.attention_backend", in_plan},
    {"parallel.product_algorithms", "all ranks take that of rank 0"},
    {"parallel.cuda_graphs", in_plan},
    {"parallel.head_chunk", in_plan},
    {"parallel.share_devices", in_plan},
    {"parallel.product_sm_margin", in_plan},
    {"parallel.global_rank", "only `plan` uses it"},
    {"parallel.deadline_seconds", "it changes no result"},
    {"parallel.check_collectives", "it takes effect before the ranks compare plans"},
    {"parallel.strategy_ckpt_config", no_wait},
    {"parallel.group_ckpt_save_file", no_wait},
    {"cluster.device", predicts},
    {"cluster.software", predicts},
    {"cluster.levels", predicts},
    {"cluster.price_per_hour", predicts},
    {"cluster", "the rates only predict; whether they are given decides what all ranks measure",
     Exception::Hashed::given},
    {"log.level", on_its_own},
    {"log.color", on_its_own},
    {"log.trace", "only the first rank uses the path; all ranks send their rows",
     Exception::Hashed::given},
    {"output.dir", elsewhere},
    {"output.overwrite", only_first},
    {"output.tensorboard", only_first},
    {"checkpoint.keep", only_first},
    {"checkpoint.keep_every", only_first},
    {"checkpoint.keep_best", only_first}};

const Exception* find_exception(std::string_view path) {
  const auto covers = [path](const Exception& row) {
    const bool longer = path.size() > row.path.size();
    return path.starts_with(row.path) && (!longer || path[row.path.size()] == '.');
  };
  const auto found = std::ranges::find_if(exceptions, covers);
  return found == std::end(exceptions) ? nullptr : &*found;
}

/// The digest of the default value at `path`.
std::uint64_t digest_of_default(const std::string& path) {
  static const auto states = [] {
    std::map<std::string, std::uint64_t, std::less<>> all;
    visit_values(Config{},
                 [&]<class Value>(const std::string& key, const Value& value, const Field&) {
                   if constexpr (!std::is_same_v<Value, std::vector<DataSource>> &&
                                 !std::is_same_v<Value, std::vector<LayerEntry>>) {
                     Digest alone;
                     alone.add(value);
                     all[key] = alone.state();
                   }
                 });
    return all;
  }();
  return states.find(path)->second;
}

/// Adds every setting, except as `exceptions` says.
struct SettingsDigest {
  Digest& digest;
  bool has_muon;  // false = all keys are defaults and are left out of the hash

  template <class Value>
  void operator()(const std::string& path, const Value& value, const Field&) {
    if (!has_muon && path.starts_with("optimizer.muon.")) return;
    const Exception* exception = find_exception(path);
    if (exception == nullptr) return digest.add(value);
    if (exception->hashed == Exception::Hashed::given) add_given(value);
    if (exception->hashed == Exception::Hashed::changed) add_changed(path, value);
    if constexpr (std::is_same_v<Value, std::string>) {
      if (exception->hashed != Exception::Hashed::word) return;
      digest.add(std::string_view(value).substr(0, value.find(':')));
    }
  }
  void operator()(const std::string& path, const std::vector<DataSource>& sources, const Field&) {
    digest.add(sources.size());
    for (const DataSource& source : sources) visit_values(source, *this, path + ".");
  }
  // In `exceptions`: add_kinds() hashes the layers.
  void operator()(const std::string&, const std::vector<LayerEntry>&, const Field&) {}

 private:
  template <class Value>
  void add_given(const std::optional<Value>& value) {
    digest.add(value.has_value());
  }
  void add_given(const std::string& value) { digest.add(!value.empty()); }
  template <class Value>
  void add_given(const Value&) {}  // always given

  /// Adds the value with its path, so that two settings cannot be confused.
  template <class Value>
  void add_changed(const std::string& path, const Value& value) {
    Digest alone;
    alone.add(value);
    if (alone.state() != digest_of_default(path)) digest.add(path, value);
  }
};

}  // namespace

std::uint64_t plan_hash(const Plan& plan, const Config& config) {
  Digest digest;
  digest.add(std::string_view("trainctl plan 3"));
  add_model(digest, plan.model, config);
  add_forms(digest, plan.model);
  add_sizes(digest, plan);
  digest.add(plan.stages.size());
  for (const StagePlan& stage : plan.stages) add_stage(digest, stage);
  for (const Plan& smaller : plan.smaller) {
    digest.add(smaller.microbatches);
    for (const StagePlan& stage : smaller.stages) add_stage(digest, stage);
  }
  visit_values(config, SettingsDigest{digest, config.optimizer.muon != MuonConfig{}});
  return digest.state();
}

}  // namespace trainctl
