#include "verify/switches/layout_switches.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include "config/schema/words.h"
#include "plan/rules/resolve.h"
#include "plan/tables/splits.h"

namespace trainctl {

namespace {

using Words = std::vector<std::string>;

/// Sets `key` to true if `word` is `own`, the only word of a switch; returns whether it is.
bool set_by_word(std::string_view word, std::string_view own, bool& key) {
  if (word == own) key = true;
  return word == own;
}

/// Sets the number of ranks with different experts, which are cut or ("wep") whole. Replaces the
/// file's own settings, which fit only its own sizes.
bool apply_experts(std::string_view word, Config& config) {
  const bool whole = word.starts_with("wep");
  const auto ranks = number_in(word, whole ? "wep" : "ep");
  if (!ranks) return false;
  config.parallel.expert_parallel = *ranks;
  if (whole) config.parallel.expert_tensor_parallel = 1;
  return true;
}

/// With experts cut differently from dense layers, tensor-parallel ranks may be replicas too.
Words expert_words(const Config& config, const LayoutSizes& sizes) {
  Words words{""};
  const std::int64_t replicas = sizes.replicas() * sizes.tp;
  for (std::int64_t ranks = 1; config.moe.num_experts > 1 && ranks <= replicas; ++ranks) {
    if (replicas % ranks != 0 || config.moe.num_experts % ranks != 0) continue;
    if (ranks > 1) words.push_back("ep" + std::to_string(ranks));
    if (sizes.tp > 1) words.push_back("wep" + std::to_string(ranks));
  }
  return words;
}

/// Sets the number of chunks in which rows go to experts of other ranks and back.
bool apply_expert_chunks(std::string_view word, Config& config) {
  const auto count = number_in(word, "echunks");
  if (!count) return false;
  config.moe.comp_comm_parallel = true;
  config.moe.comp_comm_parallel_degree = *count;
  return true;
}

Words expert_chunk_words(const Config& config, const LayoutSizes& sizes) {
  const bool exchanges = config.moe.num_experts > 1 && sizes.replicas() * sizes.tp > 1;
  return exchanges ? Words{"", "echunks2", "echunks3"} : Words{""};
}

/// Sends rows during passes of other micro-batches.
bool apply_expert_overlap(std::string_view word, Config& config) {
  return set_by_word(word, "ep_overlap", config.moe.overlap_expert_parallel_comm);
}

Words expert_overlap_words(const Config& config, const LayoutSizes& sizes) {
  const bool exchanges = config.moe.num_experts > 1 && sizes.replicas() * sizes.tp > 1;
  return exchanges ? Words{"", "ep_overlap"} : Words{""};
}

/// Sets the number of ranks that cut each expert, or makes ranks that cut dense layers send shares.
bool apply_expert_parts(std::string_view word, Config& config) {
  const auto count = number_in(word, "etp");
  if (!count && word != "group_a2a") return false;
  config.parallel.expert_tensor_parallel = count;
  config.moe.group_wise_a2a = !count;
  return true;
}

Words expert_part_words(const Config& config, const LayoutSizes& sizes) {
  if (config.moe.num_experts == 1 || sizes.replicas() * sizes.tp == 1) return {""};
  return sizes.tp > 1 ? Words{"", "etp1", "etp2", "group_a2a"} : Words{"", "etp2"};
}

void by_operator(Config& config) {
  config.parallel.parallel_mode = ParallelMode::semi_auto_parallel;
}

/// The layers' splits that a word gives after `prefix`: one for all, or "mixed".
std::optional<std::string> splits_in(std::string_view word, std::string_view prefix,
                                     const Config& config) {
  if (!word.starts_with(prefix)) return std::nullopt;
  word.remove_prefix(prefix.size());
  if (const auto split = parse_split(word)) return std::string(word_of(*split));
  if (word != "mixed") return std::nullopt;
  std::vector<SplitBy> splits;
  for (std::int64_t layer = 0; layer < config.model.num_layers; ++layer) {
    splits.push_back(all_splits[static_cast<std::size_t>(layer + 1) % std::size(all_splits)]);
  }
  return layer_splits_text(splits);
}

bool apply_layers(std::string_view word, std::string_view prefix,
                  std::optional<std::string> OperatorSplitsConfig::*member, Config& config) {
  auto splits = splits_in(word, prefix, config);
  if (!splits) return false;
  by_operator(config);
  config.parallel.operator_splits.*member = std::move(splits);
  return true;
}

/// Sets a mode that splits the model, unless the config has such a mode.
void split_model(Config& config) {
  auto& mode = config.parallel.parallel_mode;
  if (mode != ParallelMode::semi_auto_parallel) mode = ParallelMode::hybrid_parallel;
}

/// Splits token table and logits: by vocab_emb_dp, or by the same split or separate splits.
bool apply_vocabulary(std::string_view word, Config& config) {
  ParallelConfig& parallel = config.parallel;
  OperatorSplitsConfig& splits = parallel.operator_splits;
  if (word == "vocab_tp" || word == "vocab_dp") {
    parallel.vocab_emb_dp = word == "vocab_dp";
    splits.embedding = splits.head = std::nullopt;
    return true;
  }
  const std::size_t end = word.find('_');
  const std::string_view what = word.substr(0, end);
  if (what != "vocab" && what != "emb" && what != "head") return false;
  const auto split =
      end == std::string_view::npos ? std::nullopt : parse_split(word.substr(end + 1));
  if (!split) return false;
  by_operator(config);
  parallel.vocab_emb_dp.reset();
  if (what != "head") splits.embedding = split;
  if (what != "emb") splits.head = split;
  return true;
}

/// vocab_dp splits by tokens with sequence parallelism, and not at all without.
Words vocabulary_words(const Config& config, const LayoutSizes& sizes) {
  if (sizes.tp == 1) return {""};
  Words words{"vocab_tp", "vocab_dp", sizes.sequence_parallel ? "vocab_whole" : "vocab_tokens"};
  const bool tied = config.model.tie_word_embeddings.value_or(config.model.family == "gpt2");
  if (tied) return words;
  words.emplace_back(sizes.sequence_parallel ? "emb_whole" : "emb_tokens");
  words.emplace_back(sizes.sequence_parallel ? "head_tokens" : "head_whole");
  return words;
}

/// Splits the attention of all layers in one way, or ("mixed") cycles through the three ways.
bool apply_attention_split(std::string_view word, Config& config) {
  return apply_layers(word, "attn_", &OperatorSplitsConfig::attention, config);
}

/// Mixed layers include every split.
Words attention_split_words(const Config&, const LayoutSizes& sizes) {
  if (sizes.tp == 1) return {""};
  return sizes.cp > 1 ? Words{"", "attn_whole"} : Words{"", "attn_mixed"};
}

bool apply_mlp_split(std::string_view word, Config& config) {
  return apply_layers(word, "mlp_", &OperatorSplitsConfig::feed_forward, config);
}

Words mlp_split_words(const Config&, const LayoutSizes& sizes) {
  return sizes.tp > 1 ? Words{"", "mlp_mixed"} : Words{""};
}

/// Exchanges tokens for heads in one all-to-all.
bool apply_moves(std::string_view word, Config& config) {
  return set_by_word(word, "alltoall", config.parallel.enable_alltoall);
}

Words move_words(const Config&, const LayoutSizes& sizes) {
  return sizes.tp > 1 && sizes.cp == 1 ? Words{"", "alltoall"} : Words{""};
}

/// Sets the scheduler, and at least the number of chunks that it needs.
bool apply_scheduler(std::string_view word, Config& config) {
  for (const ScheduleTraits& row : schedules) {
    if (row.word != word) continue;
    config.parallel.pipeline.scheduler = row.value;
    std::int64_t& chunks = config.parallel.virtual_pipeline_stages;
    chunks = std::max<std::int64_t>(chunks, row.min_chunks);
    return true;
  }
  return false;
}

Words scheduler_words(const Config&, const LayoutSizes& sizes) {
  Words words;
  for (const ScheduleTraits& row : schedules) words.emplace_back(row.word);
  return sizes.pp > 1 ? words : Words{""};
}

bool apply_chunks(std::string_view word, Config& config) {
  const auto count = number_in(word, "vp");
  if (!count) return false;
  config.parallel.virtual_pipeline_stages = *count;
  config.parallel.pipeline.interleave.reset();
  config.parallel.pipeline.microbatch_group_size_per_vp_stage.reset();
  return true;
}

/// Includes an odd number of chunks if there are enough layers.
Words chunk_words(const Config& config, const LayoutSizes& sizes) {
  if (sizes.pp == 1) return {""};
  const bool three = config.model.num_layers >= 3 * sizes.pp;
  return three ? Words{"", "vp2", "vp3"} : Words{"", "vp2"};
}

/// Sets how stages exchange messages.
bool apply_messages(std::string_view word, Config& config) {
  if (word != "batched" && word != "single" && word != "overlapped") return false;
  PipelineConfig& pipeline = config.parallel.pipeline;
  pipeline.batch_p2p_comm = word == "batched";
  pipeline.overlap_p2p_comm = word == "overlapped";
  pipeline.overlap_p2p_comm_warmup_flush = false;
  return true;
}

Words message_words(const Config&, const LayoutSizes& sizes) {
  return sizes.pp > 1 ? Words{"", "batched", "single", "overlapped"} : Words{""};
}

bool apply_outputs(std::string_view word, Config& config) {
  return set_by_word(word, "deallocated", config.parallel.pipeline.deallocate_outputs);
}

Words output_words(const Config&, const LayoutSizes& sizes) {
  return sizes.pp > 1 ? Words{"", "deallocated"} : Words{""};
}

std::string send_word(ComputeType type) { return "send_" + std::string(word_of(type)); }

/// Sets the type in which stages send messages.
bool apply_message_type(std::string_view word, Config& config) {
  for (const ComputeType type : {ComputeType::fp32, ComputeType::bf16, ComputeType::fp16}) {
    if (word != send_word(type)) continue;
    config.parallel.pipeline.dtype = type;
    return true;
  }
  return false;
}

/// A type narrower or wider than the config's own.
Words message_type_words(const Config& config, const LayoutSizes& sizes) {
  const ComputeType said =
      config.parallel.pipeline.dtype.value_or(resolve_compute(config.precision));
  const ComputeType other = said == ComputeType::fp32 ? ComputeType::bf16 : ComputeType::fp32;
  return sizes.pp > 1 ? Words{"", send_word(other)} : Words{""};
}

bool apply_microbatches(std::string_view word, Config& config) {
  const auto count = number_in(word, "m");
  if (!count) return false;
  config.train.micro_batch_size.reset();
  config.train.micro_batch_num = count;
  return true;
}

/// A pipeline needs at least one micro-batch per stage.
Words microbatch_words(const Config& config, const LayoutSizes& sizes) {
  const std::int64_t local = std::max<std::int64_t>(1, config.train.global_batch_size / sizes.dp);
  std::set<std::int64_t> counts;
  for (const std::int64_t count : {sizes.pp, 2 * sizes.pp, local}) {
    if (local % count == 0 && (count >= sizes.pp || count == local)) counts.insert(count);
  }
  Words words;
  for (const std::int64_t count : counts) words.push_back("m" + std::to_string(count));
  return words;
}

constexpr std::pair<std::string_view, OptimizerLevel> levels[] = {
    {"zero1", OptimizerLevel("level1")},
    {"zero2", OptimizerLevel("level2")},
    {"zero3", OptimizerLevel("level3")}};

/// Also cuts small parameters. zero2 needs a mode that divides gradients by rows: split_model().
bool apply_parallel_optimizer(std::string_view word, Config& config) {
  for (const auto& [name, level] : levels) {
    if (word != name) continue;
    ParallelOptimizerConfig& optimizer = config.parallel.parallel_optimizer;
    optimizer.enable = true;
    optimizer.threshold = 0;
    optimizer.optimizer_level = level;
    optimizer.gradient_accumulation_shard = level != "level1";
    if (level == "level2") split_model(config);
    return true;
  }
  return false;
}

Words parallel_optimizer_words(const Config&, const LayoutSizes& sizes) {
  return sizes.replicas() > 1 ? Words{"", "zero1", "zero2", "zero3"} : Words{""};
}

/// N ranks share a copy of the weights, cut by rows in every mode; zero1 if otherwise off.
bool apply_shard_size(std::string_view word, Config& config) {
  const auto ranks = number_in(word, "shard");
  if (!ranks) return false;
  if (!config.parallel.parallel_optimizer.enable) apply_parallel_optimizer("zero1", config);
  split_model(config);
  config.parallel.parallel_optimizer.weight_shard_size = *ranks;
  return true;
}

Words shard_size_words(const Config&, const LayoutSizes& sizes) {
  const std::int64_t replicas = sizes.replicas();
  return replicas > 1 && replicas % 2 == 0 ? Words{"", "shard2"} : Words{""};
}

/// Sums gradients after every micro-batch.
bool apply_sums(std::string_view word, Config& config) {
  if (word != "each_sum") return false;
  config.hooks.no_sync = "never";
  return true;
}

Words sum_words(const Config&, const LayoutSizes& sizes) {
  return sizes.replicas() * sizes.tp > 1 ? Words{"", "each_sum"} : Words{""};
}

/// Makes gradients larger than those of the mean loss: by the number of replicas, or by the number
/// of ranks that compute the same loss.
bool apply_factor(std::string_view word, Config& config) {
  if (word != "summed" && word != "repeated") return false;
  config.parallel.gradients_mean = word != "summed";
  config.parallel.loss_repeated_mean = word != "repeated";
  return true;
}

/// In fp16, larger gradients overflow at a loss scale that fits a single rank.
Words factor_words(const Config& config, const LayoutSizes& sizes) {
  Words words{""};
  if (resolve_compute(config.precision) == ComputeType::fp16) return words;
  if (sizes.dp > 1) words.emplace_back("summed");
  if (sizes.tp > 1) words.emplace_back("repeated");
  return words;
}

/// Sets the rule by which gradients form buckets. Options of the rule that the file lacks are set
/// so that a small model has several buckets.
bool apply_buckets(std::string_view word, Config& config) {
  ParallelConfig& parallel = config.parallel;
  if (word == "megatron") {
    parallel.bucket_rule = BucketRule::megatron;
  } else if (word == "fusion") {
    parallel.bucket_rule = BucketRule::comm_fusion;
    FusionConfig& fusion = parallel.comm_fusion.allreduce;
    if (!fusion.mode) fusion = {FusionMode("index"), {std::nullopt, IntList{1, 6}}};
  } else if (word == "layers") {
    parallel.bucket_rule = BucketRule::layers;
    if (!parallel.gradient_aggregation_group) parallel.gradient_aggregation_group = 2;
  } else {
    return false;
  }
  return true;
}

Words bucket_words(const Config&, const LayoutSizes& sizes) {
  return sizes.replicas() > 1 ? Words{"", "fusion", "layers", "megatron"} : Words{""};
}

/// Recomputes everything of every layer, or only some parts; or adds one option about kept tensors.
bool apply_recompute(std::string_view word, Config& config) {
  constexpr std::string_view words[] = {"recompute", "selective", "kept_sums", "sliced", "partial"};
  if (std::find(std::begin(words), std::end(words), word) == std::end(words)) return false;
  RecomputeConfig& recompute = config.recompute;
  recompute = {};
  recompute.enable = true;
  if (word == "selective") recompute.select = "norms+attention+activations";
  recompute.mp_comm_recompute = word != "kept_sums";
  recompute.slice_activation = word == "sliced";
  if (word == "partial") recompute.num_microbatches_with_partial_activation_checkpoints = 1;
  return true;
}

Words recompute_words(const Config&, const LayoutSizes& sizes) {
  Words words{"", "recompute", "selective"};
  if (sizes.tp > 1) words.emplace_back(sizes.sequence_parallel ? "kept_sums" : "sliced");
  if (sizes.pp > 1) words.emplace_back("partial");
  return words;
}

/// Defers the head's weight gradient to the end of the step: of all micro-batches or the first.
bool apply_deferral(std::string_view word, Config& config) {
  const auto limit =
      word == "deferred" ? std::optional<std::int64_t>(0) : number_in(word, "deferred");
  if (!limit) return false;
  config.parallel.gradient_accumulation_fusion = true;
  config.parallel.pipeline.defer_embedding_wgrad_compute = true;
  config.parallel.pipeline.wgrad_deferral_limit = *limit;
  return true;
}

Words deferral_words(const Config&, const LayoutSizes& sizes) {
  return sizes.pp > 1 ? Words{"", "deferred", "deferred1"} : Words{""};
}

/// Offloads the activations or the weights of all layers but the last, through one buffer or two.
bool apply_offload(std::string_view word, Config& config) {
  constexpr std::string_view words[] = {"offload", "offload2", "offloadw", "offloadw2"};
  if (std::find(std::begin(words), std::end(words), word) == std::end(words)) return false;
  config.offload = {};
  config.offload.weights = word.starts_with("offloadw");
  config.offload.activations = !config.offload.weights;
  config.offload.enable = true;
  config.offload.num_layers = std::max<std::int64_t>(0, config.model.num_layers - 1);
  config.offload.double_buffering = word.ends_with("2");
  return true;
}

Words offload_words(const Config& config, const LayoutSizes&) {
  Words words{"", "offload", "offload2"};
  const bool copies = resolve_compute(config.precision) != ComputeType::fp32;
  if (copies) words.insert(words.end(), {"offloadw", "offloadw2"});
  return words;
}

/// Overlaps collectives of tensor-parallel ranks with products; in the backward pass in one piece
/// or in chunks.
bool apply_tensor_overlap(std::string_view word, Config& config) {
  if (word != "tpoverlap" && word != "tpoverlap_dgrad") return false;
  config.parallel.tp_comm_overlap = {};
  config.parallel.tp_comm_overlap.enable = true;
  config.parallel.tp_comm_overlap.rs_dgrad = word == "tpoverlap_dgrad";
  return true;
}

Words tensor_overlap_words(const Config&, const LayoutSizes& sizes) {
  if (sizes.tp == 1 || !sizes.sequence_parallel) return {""};
  return {"", "tpoverlap", "tpoverlap_dgrad"};
}

bool apply_late_weights(std::string_view word, Config& config) {
  return set_by_word(word, "delayw", config.parallel.delay_wgrad_compute);
}

Words late_weight_words(const Config&, const LayoutSizes& sizes) {
  return sizes.pp > 1 ? Words{"", "delayw"} : Words{""};
}

constexpr std::pair<std::string_view, CpCommType> key_exchanges[] = {
    {"p2p", CpCommType::p2p},
    {"all_gather", CpCommType::all_gather},
    {"a2a", CpCommType::a2a},
    {"a2a_p2p", CpCommType::a2a_p2p}};

/// Sets how context-parallel ranks share attention. With two levels, pairs exchange heads.
/// "cp_mixed" alternates by layer: a2a first, then the other ways.
bool apply_keys(std::string_view word, Config& config) {
  for (const auto& [name, type] : key_exchanges) {
    if (word != name) continue;
    ParallelConfig& parallel = config.parallel;
    parallel.cp_comm_type = type;
    parallel.hierarchical_context_parallel_sizes.reset();
    if (type == CpCommType::a2a_p2p) {
      parallel.hierarchical_context_parallel_sizes = IntList{2, parallel.context_parallel / 2};
    }
    return true;
  }
  if (word != "cp_mixed") return false;
  ParallelConfig& parallel = config.parallel;
  const bool two_levels = parallel.context_parallel > 2 && parallel.context_parallel % 2 == 0;
  parallel.cp_comm_type.layers.clear();
  for (std::int64_t layer = 0; layer < config.model.num_layers; ++layer) {
    const std::int64_t kinds = two_levels ? 4 : 3;
    parallel.cp_comm_type.layers.push_back(key_exchanges[(layer + 2) % kinds].second);
  }
  parallel.hierarchical_context_parallel_sizes.reset();
  if (two_levels && parallel.cp_comm_type.has(CpCommType::a2a_p2p)) {
    parallel.hierarchical_context_parallel_sizes = IntList{2, parallel.context_parallel / 2};
  }
  return true;
}

Words key_words(const Config&, const LayoutSizes& sizes) {
  if (sizes.cp == 1) return {""};
  Words words{"p2p", "all_gather", "a2a", "cp_mixed"};
  if (sizes.cp > 2 && sizes.cp % 2 == 0) words.emplace_back("a2a_p2p");
  return words;
}

/// Shortens micro-batches to their longest document, if each sequence has one document.
bool apply_lengths(std::string_view word, Config& config) {
  return set_by_word(word, "variable", config.parallel.pipeline.variable_seq_lengths);
}

Words length_words(const Config& config, const LayoutSizes&) {
  return config.data.packing ? Words{""} : Words{"", "variable"};
}

/// Limits the number of tokens whose logits are computed at a time.
bool apply_head_chunk(std::string_view word, Config& config) {
  const auto tokens = number_in(word, "head_chunk");
  if (!tokens) return false;
  config.parallel.head_chunk = *tokens;
  return true;
}

/// Tried only if a layout names it.
Words head_chunk_words(const Config&, const LayoutSizes&) { return {""}; }

constexpr LayoutSwitch switches[] = {
    {"vocabulary",
     "vocab_dp, vocab_tp, vocab_tokens, vocab_whole, emb_tokens, emb_whole, head_tokens, "
     "head_whole",
     "tensor ranks", apply_vocabulary, vocabulary_words},
    {"scheduler", "1f1b, gpipe, zb-h1, zb-v", "pipeline stages", apply_scheduler, scheduler_words},
    {"messages", "batched, single, overlapped", "pipeline stages", apply_messages, message_words},
    {"outputs", "deallocated", "pipeline stages", apply_outputs, output_words},
    {"message type", "send_fp32, send_bf16, send_fp16", "pipeline stages", apply_message_type,
     message_type_words},
    {"m", "mN", "", apply_microbatches, microbatch_words},
    {"zero1", "zero1, zero2, zero3", "replicas", apply_parallel_optimizer,
     parallel_optimizer_words},
    {"buckets", "fusion, layers, megatron", "replicas", apply_buckets, bucket_words},
    {"chunks", "vpN", "pipeline stages", apply_chunks, chunk_words},
    {"recompute", "recompute, selective, kept_sums, sliced, partial", "", apply_recompute,
     recompute_words},
    {"offload", "offload, offload2, offloadw, offloadw2", "", apply_offload, offload_words},
    {"shard", "shardN", "replicas", apply_shard_size, shard_size_words},
    {"sums", "each_sum", "replicas", apply_sums, sum_words},
    {"head chunks", "head_chunkN", "", apply_head_chunk, head_chunk_words},
    {"deferral", "deferred, deferredN", "pipeline stages", apply_deferral, deferral_words},
    {"tensor overlap", "tpoverlap, tpoverlap_dgrad", "sequence parallelism", apply_tensor_overlap,
     tensor_overlap_words},
    {"late weights", "delayw", "pipeline stages", apply_late_weights, late_weight_words},
    {"lengths", "variable", "", apply_lengths, length_words},
    {"keys", "p2p, all_gather, a2a, a2a_p2p, cp_mixed", "context ranks", apply_keys, key_words},
    {"experts", "epN, wepN", "replicas", apply_experts, expert_words},
    {"expert parts", "etpN, group_a2a", "tensor ranks or replicas", apply_expert_parts,
     expert_part_words},
    {"expert chunks", "echunksN", "experts of other ranks", apply_expert_chunks,
     expert_chunk_words},
    {"expert overlap", "ep_overlap", "experts of other ranks", apply_expert_overlap,
     expert_overlap_words},
    {"attention split", "attn_features, attn_tokens, attn_whole, attn_mixed", "tensor ranks",
     apply_attention_split, attention_split_words},
    {"feed-forward split", "mlp_features, mlp_tokens, mlp_whole, mlp_mixed", "tensor ranks",
     apply_mlp_split, mlp_split_words},
    {"moves", "alltoall", "tensor ranks", apply_moves, move_words},
    {"factor", "summed, repeated", "replicas or tensor ranks", apply_factor, factor_words},
};

}  // namespace

std::span<const LayoutSwitch> layout_switches() { return switches; }

std::optional<std::int64_t> number_in(std::string_view word, std::string_view prefix) {
  return word.starts_with(prefix) ? number_behind(word, prefix.size()) : std::nullopt;
}

std::optional<std::int64_t> number_behind(std::string_view word, std::size_t skip) {
  std::int64_t value = 0;
  const char* end = word.data() + word.size();
  const auto [stop, status] = std::from_chars(word.data() + skip, end, value);
  if (status != std::errc() || stop != end || value < 1 || value > max_layout_ranks) return {};
  if (word[skip] == '0') return {};
  return value;
}

}  // namespace trainctl
