#include "verify/switches/layout_splits.h"

#include "config/schema/words.h"
#include "plan/tables/splits.h"

namespace trainctl {

using Words = std::vector<std::string>;

namespace {

void by_operator(Config& config) {
  config.parallel.parallel_mode = ParallelMode::semi_auto_parallel;
}

/// The part of the word behind `prefix` as splits of all layers.
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

}  // namespace

void split_model(Config& config) {
  auto& mode = config.parallel.parallel_mode;
  if (mode != ParallelMode::semi_auto_parallel) mode = ParallelMode::hybrid_parallel;
}

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

/// vocab_dp is by tokens with sequence parallelism and whole without.
Words vocabulary_words(const Config& config, const LayoutSizes& sizes) {
  if (sizes.tp == 1) return {""};
  Words words{"vocab_tp", "vocab_dp", sizes.sequence_parallel ? "vocab_whole" : "vocab_tokens"};
  const bool tied = config.model.tie_word_embeddings.value_or(config.model.family == Family::gpt2);
  if (tied) return words;
  words.emplace_back(sizes.sequence_parallel ? "emb_whole" : "emb_tokens");
  words.emplace_back(sizes.sequence_parallel ? "head_tokens" : "head_whole");
  return words;
}

bool apply_attention_split(std::string_view word, Config& config) {
  return apply_layers(word, "attn_", &OperatorSplitsConfig::attention, config);
}

/// Mixed layers have every split.
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

bool apply_moves(std::string_view word, Config& config) {
  if (word != "alltoall") return false;
  config.parallel.enable_alltoall = true;
  return true;
}

Words move_words(const Config&, const LayoutSizes& sizes) {
  return sizes.tp > 1 && sizes.cp == 1 ? Words{"", "alltoall"} : Words{""};
}

}  // namespace trainctl
