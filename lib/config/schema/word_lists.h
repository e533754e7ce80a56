// The words of each choice (of experts: words.h); words.h says which list belongs to which choice.
// The first word of a value is the one we write; the others are accepted: those of MindFormers,
// torch and older files.
#pragma once

#include <array>
#include <cstddef>
#include <iterator>
#include <string_view>
#include <utility>

#include "config/schema/choices.h"
#include "config/schema/muon_config.h"
#include "config/schema/schedules.h"

namespace trainctl {

struct Word {
  enum class Standing { usual, alias };
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
    {"hybrid_parallel", ParallelMode::hybrid_parallel},
    {"semi_auto_parallel", ParallelMode::semi_auto_parallel},
    {"auto_parallel", ParallelMode::auto_parallel},
    {"STAND_ALONE", ParallelMode::stand_alone, Word::Standing::alias},  // MindFormers, as below
    {"DATA_PARALLEL", ParallelMode::data_parallel, Word::Standing::alias},
    {"HYBRID_PARALLEL", ParallelMode::hybrid_parallel, Word::Standing::alias},
    {"SEMI_AUTO_PARALLEL", ParallelMode::semi_auto_parallel, Word::Standing::alias},
    {"AUTO_PARALLEL", ParallelMode::auto_parallel, Word::Standing::alias},
    {"0", ParallelMode::data_parallel, Word::Standing::alias},
    {"1", ParallelMode::semi_auto_parallel, Word::Standing::alias},
    {"2", ParallelMode::auto_parallel, Word::Standing::alias},
    {"3", ParallelMode::hybrid_parallel, Word::Standing::alias}};
inline constexpr Word optimizer_words[] = {{"adamw", OptimizerType::adamw},
                                           {"AdamW", OptimizerType::adamw, Word::Standing::alias},
                                           {"sgd", OptimizerType::sgd},
                                           {"lion", OptimizerType::lion},
                                           {"muon", OptimizerType::muon}};
inline constexpr Word muon_set_words[] = {{"simple", MuonSet::simple},
                                          {"quintic", MuonSet::quintic},
                                          {"polar_express", MuonSet::polar_express},
                                          {"deepseek_v4", MuonSet::deepseek_v4}};
inline constexpr Word muon_scale_words[] = {{"match_adamw", MuonScale::match_adamw},
                                            {"spectral", MuonScale::spectral},
                                            {"shape", MuonScale::shape},
                                            {"unit_rms", MuonScale::unit_rms}};
inline constexpr Word muon_products_words[] = {
    {"auto", MuonProducts::automatic}, {"fp32", MuonProducts::fp32}, {"bf16", MuonProducts::bf16}};
inline constexpr Word muon_item_words[] = {{"gate_up", MuonItem::gate_up},
                                           {"qkv", MuonItem::qkv},
                                           {"heads", MuonItem::heads},
                                           {"mla_parts", MuonItem::mla_parts}};
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
inline constexpr Word decay_form_words[] = {{"decoupled", WeightDecayForm::decoupled},
                                            {"coupled", WeightDecayForm::coupled}};
inline constexpr Word compute_words[] = {
    {"fp32", ComputeType::fp32},
    {"bf16", ComputeType::bf16},
    {"fp16", ComputeType::fp16},
    {"float32", ComputeType::fp32, Word::Standing::alias},
    {"torch.float32", ComputeType::fp32, Word::Standing::alias},
    {"bfloat16", ComputeType::bf16, Word::Standing::alias},
    {"torch.bfloat16", ComputeType::bf16, Word::Standing::alias},
    {"float16", ComputeType::fp16, Word::Standing::alias},
    {"half", ComputeType::fp16, Word::Standing::alias},
    {"torch.float16", ComputeType::fp16, Word::Standing::alias}};
inline constexpr Word split_words[] = {{"tail", SplitStyle::tail}, {"blocks", SplitStyle::blocks}};
inline constexpr Word bad_loss_words[] = {{"stop", OnBadLoss::stop}, {"skip", OnBadLoss::skip}};
inline constexpr Word changed_data_words[] = {{"refuse", ChangedData::refuse},
                                              {"allow", ChangedData::allow}};
/// First the words of the table, then the names that differ from them.
constexpr Word scheduler_word(std::size_t index) {
  if (index < std::size(schedules)) return {schedules[index].word, schedules[index].value};
  index -= std::size(schedules);
  for (const ScheduleTraits& row : schedules) {
    if (row.name != row.word && index-- == 0) return {row.name, row.value, Word::Standing::alias};
  }
  return {"", PipelineScheduler::one_f_one_b};
}
constexpr std::size_t scheduler_word_count() {
  std::size_t count = std::size(schedules);
  for (const ScheduleTraits& row : schedules) count += row.name != row.word ? 1 : 0;
  return count;
}
template <std::size_t... Index>
constexpr std::array<Word, sizeof...(Index)> scheduler_word_list(std::index_sequence<Index...>) {
  return {scheduler_word(Index)...};
}
inline constexpr auto scheduler_words =
    scheduler_word_list(std::make_index_sequence<scheduler_word_count()>());
inline constexpr Word search_words[] = {
    {"recursive_programming", SearchMode::recursive_programming},
    {"sharding_propagation", SearchMode::sharding_propagation},
    {"dynamic_programming", SearchMode::dynamic_programming}};
inline constexpr Word attention_backend_words[] = {{"auto", AttentionBackend::automatic},
                                                   {"own", AttentionBackend::own},
                                                   {"cudnn", AttentionBackend::cudnn}};
inline constexpr Word product_choice_words[] = {{"proposed", ProductChoice::proposed},
                                                {"timed", ProductChoice::timed}};
inline constexpr Word graph_choice_words[] = {
    {"auto", GraphChoice::automatic}, {"true", GraphChoice::yes}, {"false", GraphChoice::no}};
inline constexpr Word device_sharing_words[] = {{"false", DeviceSharing::none},
                                                {"true", DeviceSharing::without_nccl},
                                                {"nccl", DeviceSharing::nccl}};
inline constexpr Word fusion_words[] = {
    {"auto", FusionMode::automatic}, {"size", FusionMode::size}, {"index", FusionMode::index}};
inline constexpr Word bucket_words[] = {{"size", BucketRule::size},
                                        {"megatron", BucketRule::megatron},
                                        {"comm_fusion", BucketRule::comm_fusion},
                                        {"layers", BucketRule::layers}};
inline constexpr Word split_by_words[] = {
    {"features", SplitBy::features}, {"tokens", SplitBy::tokens}, {"whole", SplitBy::whole}};
inline constexpr Word cp_comm_words[] = {{"p2p", CpCommType::p2p},
                                         {"all_gather", CpCommType::all_gather},
                                         {"a2a", CpCommType::a2a},
                                         {"a2a+p2p", CpCommType::a2a_p2p},
                                         {"colossalai_cp", CpCommType::p2p, Word::Standing::alias},
                                         {"ulysses_cp", CpCommType::a2a, Word::Standing::alias},
                                         {"hybrid_cp", CpCommType::a2a_p2p, Word::Standing::alias}};
inline constexpr Word entropy_words[] = {{"native", EntropyFusion::native},
                                         {"te", EntropyFusion::te}};
inline constexpr Word bootstrap_words[] = {{"nccl", BootstrapBackend::nccl},
                                           {"mpi", BootstrapBackend::mpi},
                                           {"gloo", BootstrapBackend::gloo}};
inline constexpr Word pipeline_backend_words[] = {{"nccl", PipelineCommBackend::nccl},
                                                  {"ucc", PipelineCommBackend::ucc}};
inline constexpr Word grad_sync_words[] = {{"overlap", GradSyncStart::overlap},
                                           {"after_backward", GradSyncStart::after_backward}};
inline constexpr Word param_sync_words[] = {{"overlap", ParamSyncStart::overlap},
                                            {"before_forward", ParamSyncStart::before_forward}};
inline constexpr Word no_sync_words[] = {{"last_microbatch", NoSync::last_microbatch},
                                         {"never", NoSync::never}};
inline constexpr Word optimizer_level_words[] = {{"level1", OptimizerLevel::level1},
                                                 {"level2", OptimizerLevel::level2},
                                                 {"level3", OptimizerLevel::level3}};
inline constexpr Word grad_scale_words[] = {{"loss_scale", GradScale::loss_scale},
                                            {"none", GradScale::none}};
inline constexpr Word log_level_words[] = {{"debug", LogLevelName::debug},
                                           {"info", LogLevelName::info},
                                           {"warning", LogLevelName::warning},
                                           {"error", LogLevelName::error}};
inline constexpr Word activation_words[] = {{"gelu", Activation::gelu},
                                            {"silu", Activation::silu},
                                            {"relu2", Activation::relu2},
                                            {"quick_gelu", Activation::quick_gelu},
                                            {"sigmoid", Activation::sigmoid}};
inline constexpr Word norm_placement_words[] = {
    {"pre", NormPlacement::pre}, {"post", NormPlacement::post}, {"both", NormPlacement::both}};
inline constexpr Word qk_norm_words[] = {
    {"head", QkNormForm::head}, {"whole", QkNormForm::whole}, {"l2", QkNormForm::l2}};
inline constexpr Word softmax_words[] = {{"vanilla", SoftmaxType::vanilla},
                                         {"learnable", SoftmaxType::learnable}};
inline constexpr Word rope_type_words[] = {
    {"none", RopeType::none}, {"linear", RopeType::linear},     {"llama3", RopeType::llama3},
    {"yarn", RopeType::yarn}, {"longrope", RopeType::longrope}, {"alpha", RopeType::alpha}};
}  // namespace detail

}  // namespace trainctl
