// The words of the configuration's choices in YAML.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string_view>

#include "base/log.h"
#include "config/schema/choices.h"
#include "config/schema/muon_config.h"

namespace trainctl {

struct Word {
  static constexpr bool alias = true;
  std::string_view text;
  int value = 0;
  bool is_alias = false;  // accepted, but another word is written
  constexpr Word() = default;
  template <class Choice>
  constexpr Word(std::string_view spelt, Choice choice, bool other = false)
      : text(spelt), value(static_cast<int>(choice)), is_alias(other) {}
};

/// The words of a choice in YAML, one table for each enumeration. We write the first word of a
/// value; the other words, from MindFormers, torch and older files, are accepted.
template <class Choice>
inline constexpr std::nullptr_t word_table = nullptr;
template <>
inline constexpr Word word_table<ParallelMode>[] = {
    {"stand_alone", ParallelMode::stand_alone},
    {"data_parallel", ParallelMode::data_parallel},
    {"hybrid_parallel", ParallelMode::hybrid_parallel},
    {"semi_auto_parallel", ParallelMode::semi_auto_parallel},
    {"auto_parallel", ParallelMode::auto_parallel},
    {"STAND_ALONE", ParallelMode::stand_alone, Word::alias},  // MindFormers' spellings, as below
    {"DATA_PARALLEL", ParallelMode::data_parallel, Word::alias},
    {"HYBRID_PARALLEL", ParallelMode::hybrid_parallel, Word::alias},
    {"SEMI_AUTO_PARALLEL", ParallelMode::semi_auto_parallel, Word::alias},
    {"AUTO_PARALLEL", ParallelMode::auto_parallel, Word::alias},
    {"0", ParallelMode::data_parallel, Word::alias},
    {"1", ParallelMode::semi_auto_parallel, Word::alias},
    {"2", ParallelMode::auto_parallel, Word::alias},
    {"3", ParallelMode::hybrid_parallel, Word::alias}};
template <>
inline constexpr Word word_table<OptimizerType>[] = {{"adamw", OptimizerType::adamw},
                                                     {"AdamW", OptimizerType::adamw, Word::alias},
                                                     {"sgd", OptimizerType::sgd},
                                                     {"lion", OptimizerType::lion},
                                                     {"muon", OptimizerType::muon}};
template <>
inline constexpr Word word_table<LrStyle>[] = {
    {"constant", LrStyle::constant},
    {"linear", LrStyle::linear},
    {"cosine", LrStyle::cosine},
    {"inverse-square-root", LrStyle::inverse_square_root},
    {"WSD", LrStyle::wsd},
    {"inverse_square_root", LrStyle::inverse_square_root, Word::alias},
    {"wsd", LrStyle::wsd, Word::alias}};
template <>
inline constexpr Word word_table<ComputeType>[] = {
    {"fp32", ComputeType::fp32},
    {"bf16", ComputeType::bf16},
    {"fp16", ComputeType::fp16},
    {"float32", ComputeType::fp32, Word::alias},
    {"torch.float32", ComputeType::fp32, Word::alias},
    {"bfloat16", ComputeType::bf16, Word::alias},
    {"torch.bfloat16", ComputeType::bf16, Word::alias},
    {"float16", ComputeType::fp16, Word::alias},
    {"half", ComputeType::fp16, Word::alias},
    {"torch.float16", ComputeType::fp16, Word::alias}};
template <>
inline constexpr auto word_table<PipelineScheduler> = [] {
  constexpr auto has_name = [](const ScheduleTraits& row) { return row.name != row.word; };
  std::array<Word, std::size(schedules) + std::ranges::count_if(schedules, has_name)> words;
  auto next = words.begin();
  for (const ScheduleTraits& row : schedules) *next++ = {row.word, row.value};
  for (const ScheduleTraits& row : schedules) {
    if (has_name(row)) *next++ = {row.name, row.value, Word::alias};
  }
  return words;
}();
template <>
inline constexpr Word word_table<DeviceSharing>[] = {{"false", DeviceSharing::none},
                                                     {"true", DeviceSharing::without_nccl},
                                                     {"nccl", DeviceSharing::nccl}};
template <>
inline constexpr Word word_table<BucketRule>[] = {{"size", BucketRule::size},
                                                  {"megatron", BucketRule::megatron},
                                                  {"comm_fusion", BucketRule::comm_fusion},
                                                  {"layers", BucketRule::layers}};
template <>
inline constexpr Word word_table<SplitBy>[] = {
    {"features", SplitBy::features}, {"tokens", SplitBy::tokens}, {"whole", SplitBy::whole}};
template <>
inline constexpr Word word_table<CpCommType>[] = {{"p2p", CpCommType::p2p},
                                                  {"all_gather", CpCommType::all_gather},
                                                  {"a2a", CpCommType::a2a},
                                                  {"a2a+p2p", CpCommType::a2a_p2p},
                                                  {"colossalai_cp", CpCommType::p2p, Word::alias},
                                                  {"ulysses_cp", CpCommType::a2a, Word::alias},
                                                  {"hybrid_cp", CpCommType::a2a_p2p, Word::alias}};
template <>
inline constexpr Word word_table<LogLevel>[] = {{"debug", LogLevel::debug},
                                                {"info", LogLevel::info},
                                                {"warning", LogLevel::warning},
                                                {"error", LogLevel::error}};
template <>
inline constexpr Word word_table<Activation>[] = {{"gelu", Activation::gelu},
                                                  {"silu", Activation::silu},
                                                  {"relu2", Activation::relu2},
                                                  {"quick_gelu", Activation::quick_gelu},
                                                  {"sigmoid", Activation::sigmoid}};
template <>
inline constexpr Word word_table<NormPlacement>[] = {
    {"pre", NormPlacement::pre}, {"post", NormPlacement::post}, {"both", NormPlacement::both}};
template <>
inline constexpr Word word_table<QkNormForm>[] = {
    {"head", QkNormForm::head}, {"whole", QkNormForm::whole}, {"l2", QkNormForm::l2}};
template <>
inline constexpr Word word_table<RopeType>[] = {
    {"none", RopeType::none}, {"linear", RopeType::linear},     {"llama3", RopeType::llama3},
    {"yarn", RopeType::yarn}, {"longrope", RopeType::longrope}, {"alpha", RopeType::alpha}};
template <>
inline constexpr Word word_table<Overflow>[] = {{"position", Overflow::position},
                                                {"probability", Overflow::probability},
                                                {"token", Overflow::token}};
template <>
inline constexpr Word word_table<ExpertWeights>[] = {
    {"all", ExpertWeights::all}, {"chosen", ExpertWeights::chosen}, {"kept", ExpertWeights::kept}};
template <WordList list>
inline constexpr auto word_table<OneOf<list>> = [] {
  std::array<Word, std::ranges::count(list.text, '|') + 1> words;
  std::string_view rest(list.text);
  for (int number = 0; Word & word : words) word = {take_word(rest), number++};
  return words;
}();

template <class Choice>
inline constexpr std::span<const Word> words_of = word_table<Choice>;

/// The spelling written for a choice.
template <class Choice>
constexpr std::string_view word_of(Choice choice) {
  const auto found = std::ranges::find(words_of<Choice>, static_cast<int>(choice), &Word::value);
  return found == words_of<Choice>.end() ? "?" : found->text;
}

}  // namespace trainctl
