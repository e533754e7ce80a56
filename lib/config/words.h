// How the configuration's choices are spelt in YAML. The first word of a value is the one we
// write; the others are accepted.
#pragma once

#include <span>
#include <string_view>

#include "config/choices.h"

namespace trainctl {

struct Word {
  enum class Standing { usual, alias, not_built };
  std::string_view text;
  int value = 0;
  Standing standing = Standing::usual;

  template <class Choice>
  constexpr Word(std::string_view spelt, Choice choice, Standing how = Standing::usual)
      : text(spelt), value(static_cast<int>(choice)), standing(how) {}
};

namespace detail {
inline constexpr Word family_words[] = {{"gpt2", Family::gpt2}, {"llama", Family::llama}};
inline constexpr Word parallel_mode_words[] = {
    {"stand_alone", ParallelMode::stand_alone},
    {"data_parallel", ParallelMode::data_parallel},
    {"semi_auto_parallel", ParallelMode::semi_auto_parallel, Word::Standing::not_built},
    {"auto_parallel", ParallelMode::auto_parallel, Word::Standing::not_built},
    {"hybrid_parallel", ParallelMode::hybrid_parallel, Word::Standing::not_built}};
inline constexpr Word optimizer_words[] = {{"adamw", OptimizerType::adamw},
                                           {"sgd", OptimizerType::sgd}};
inline constexpr Word lr_style_words[] = {
    {"constant", LrStyle::constant},
    {"linear", LrStyle::linear},
    {"cosine", LrStyle::cosine},
    {"inverse-square-root", LrStyle::inverse_square_root},
    {"WSD", LrStyle::wsd},
    {"inverse_square_root", LrStyle::inverse_square_root, Word::Standing::alias},
    {"wsd", LrStyle::wsd, Word::Standing::alias}};
inline constexpr Word decay_style_words[] = {{"linear", DecayStyle::linear},
                                             {"cosine", DecayStyle::cosine},
                                             {"exponential", DecayStyle::exponential},
                                             {"minus_sqrt", DecayStyle::minus_sqrt}};
inline constexpr Word weight_decay_words[] = {{"constant", WeightDecayStyle::constant},
                                              {"linear", WeightDecayStyle::linear},
                                              {"cosine", WeightDecayStyle::cosine}};
inline constexpr Word compute_words[] = {
    {"fp32", ComputeType::fp32}, {"bf16", ComputeType::bf16}, {"fp16", ComputeType::fp16}};
inline constexpr Word split_words[] = {{"tail", SplitStyle::tail}, {"blocks", SplitStyle::blocks}};
inline constexpr Word bad_loss_words[] = {{"stop", OnBadLoss::stop}, {"skip", OnBadLoss::skip}};
inline constexpr Word log_level_words[] = {{"debug", LogLevelName::debug},
                                           {"info", LogLevelName::info},
                                           {"warning", LogLevelName::warning},
                                           {"error", LogLevelName::error}};
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
inline constexpr std::span<const Word> words_of<LrStyle> = detail::lr_style_words;
template <>
inline constexpr std::span<const Word> words_of<DecayStyle> = detail::decay_style_words;
template <>
inline constexpr std::span<const Word> words_of<WeightDecayStyle> = detail::weight_decay_words;
template <>
inline constexpr std::span<const Word> words_of<ComputeType> = detail::compute_words;
template <>
inline constexpr std::span<const Word> words_of<SplitStyle> = detail::split_words;
template <>
inline constexpr std::span<const Word> words_of<OnBadLoss> = detail::bad_loss_words;
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
