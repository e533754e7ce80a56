// The spelling of the configuration's choices in YAML.
#pragma once

#include <span>
#include <string_view>

#include "config/schema/word_lists.h"

namespace trainctl {

namespace detail {
inline constexpr Word score_function_words[] = {{"softmax", ScoreFunction::softmax},
                                                {"sigmoid", ScoreFunction::sigmoid}};
inline constexpr Word load_balancing_words[] = {{"aux_loss", LoadBalancing::aux_loss},
                                                {"round_aux_loss", LoadBalancing::round_aux_loss},
                                                {"none", LoadBalancing::none}};
inline constexpr Word overflow_words[] = {{"position", Overflow::position},
                                          {"probability", Overflow::probability},
                                          {"token", Overflow::token}};
inline constexpr Word expert_choice_words[] = {{"topk", ExpertChoice::topk},
                                               {"rounds", ExpertChoice::rounds}};
inline constexpr Word expert_weights_words[] = {
    {"all", ExpertWeights::all}, {"chosen", ExpertWeights::chosen}, {"kept", ExpertWeights::kept}};
inline constexpr Word expert_group_words[] = {{"sequence", ExpertGroup::sequence},
                                              {"micro_batch", ExpertGroup::micro_batch}};
inline constexpr Word balance_counts_words[] = {{"chosen", BalanceCounts::chosen},
                                                {"free", BalanceCounts::free}};
}  // namespace detail

/// The words of a choice.
template <class Choice>
inline constexpr std::span<const Word> words_of;
template <>
inline constexpr std::span<const Word> words_of<Family> = detail::family_words;
template <>
inline constexpr std::span<const Word> words_of<ParallelMode> = detail::parallel_mode_words;
template <>
inline constexpr std::span<const Word> words_of<OptimizerType> = detail::optimizer_words;
template <>
inline constexpr std::span<const Word> words_of<MuonSet> = detail::muon_set_words;
template <>
inline constexpr std::span<const Word> words_of<MuonScale> = detail::muon_scale_words;
template <>
inline constexpr std::span<const Word> words_of<MuonProducts> = detail::muon_products_words;
template <>
inline constexpr std::span<const Word> words_of<MuonItem> = detail::muon_item_words;
template <>
inline constexpr std::span<const Word> words_of<LrStyle> = detail::lr_style_words;
template <>
inline constexpr std::span<const Word> words_of<DecayStyle> = detail::decay_style_words;
template <>
inline constexpr std::span<const Word> words_of<WeightDecayStyle> = detail::weight_decay_words;
template <>
inline constexpr std::span<const Word> words_of<WeightDecayForm> = detail::decay_form_words;
template <>
inline constexpr std::span<const Word> words_of<ComputeType> = detail::compute_words;
template <>
inline constexpr std::span<const Word> words_of<SplitStyle> = detail::split_words;
template <>
inline constexpr std::span<const Word> words_of<OnBadLoss> = detail::bad_loss_words;
template <>
inline constexpr std::span<const Word> words_of<ChangedData> = detail::changed_data_words;
template <>
inline constexpr std::span<const Word> words_of<PipelineScheduler> = detail::scheduler_words;
template <>
inline constexpr std::span<const Word> words_of<SearchMode> = detail::search_words;
template <>
inline constexpr std::span<const Word> words_of<AttentionBackend> = detail::attention_backend_words;
template <>
inline constexpr std::span<const Word> words_of<ProductChoice> = detail::product_choice_words;
template <>
inline constexpr std::span<const Word> words_of<GraphChoice> = detail::graph_choice_words;
template <>
inline constexpr std::span<const Word> words_of<DeviceSharing> = detail::device_sharing_words;
template <>
inline constexpr std::span<const Word> words_of<FusionMode> = detail::fusion_words;
template <>
inline constexpr std::span<const Word> words_of<BucketRule> = detail::bucket_words;
template <>
inline constexpr std::span<const Word> words_of<SplitBy> = detail::split_by_words;
template <>
inline constexpr std::span<const Word> words_of<CpCommType> = detail::cp_comm_words;
template <>
inline constexpr std::span<const Word> words_of<EntropyFusion> = detail::entropy_words;
template <>
inline constexpr std::span<const Word> words_of<BootstrapBackend> = detail::bootstrap_words;
template <>
inline constexpr std::span<const Word> words_of<PipelineCommBackend> =
    detail::pipeline_backend_words;
template <>
inline constexpr std::span<const Word> words_of<GradSyncStart> = detail::grad_sync_words;
template <>
inline constexpr std::span<const Word> words_of<ParamSyncStart> = detail::param_sync_words;
template <>
inline constexpr std::span<const Word> words_of<NoSync> = detail::no_sync_words;
template <>
inline constexpr std::span<const Word> words_of<OptimizerLevel> = detail::optimizer_level_words;
template <>
inline constexpr std::span<const Word> words_of<GradScale> = detail::grad_scale_words;
template <>
inline constexpr std::span<const Word> words_of<ScoreFunction> = detail::score_function_words;
template <>
inline constexpr std::span<const Word> words_of<LoadBalancing> = detail::load_balancing_words;
template <>
inline constexpr std::span<const Word> words_of<Overflow> = detail::overflow_words;
template <>
inline constexpr std::span<const Word> words_of<ExpertChoice> = detail::expert_choice_words;
template <>
inline constexpr std::span<const Word> words_of<ExpertWeights> = detail::expert_weights_words;
template <>
inline constexpr std::span<const Word> words_of<BalanceCounts> = detail::balance_counts_words;
template <>
inline constexpr std::span<const Word> words_of<ExpertGroup> = detail::expert_group_words;
template <>
inline constexpr std::span<const Word> words_of<Activation> = detail::activation_words;
template <>
inline constexpr std::span<const Word> words_of<NormPlacement> = detail::norm_placement_words;
template <>
inline constexpr std::span<const Word> words_of<QkNormForm> = detail::qk_norm_words;
template <>
inline constexpr std::span<const Word> words_of<SoftmaxType> = detail::softmax_words;
template <>
inline constexpr std::span<const Word> words_of<RopeType> = detail::rope_type_words;
template <>
inline constexpr std::span<const Word> words_of<LogLevelName> = detail::log_level_words;

/// The spelling we write for a choice.
template <class Choice>
constexpr std::string_view word_of(Choice choice) {
  for (const Word& word : words_of<Choice>) {
    if (word.value == static_cast<int>(choice)) return word.text;
  }
  return "?";
}

}  // namespace trainctl
