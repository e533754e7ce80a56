// The fixed choices of the configuration. words.h has the words of the enumerations in YAML.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/kinds.h"

namespace trainctl {

/// The words of a key, "stop|skip", as an argument of a template.
template <std::size_t size>
struct WordList {
  char text[size]{};
  consteval WordList(const char (&words)[size]) { std::ranges::copy(words, text); }
};

/// Takes the first word from `list`, with the bar after it. A loop, because GCC 12 cannot evaluate
/// string_view::find at compile time under the sanitizer of undefined behaviour.
constexpr std::string_view take_word(std::string_view& list) {
  std::size_t size = 0;
  while (size < list.size() && list[size] != '|') ++size;
  const std::string_view word = list.substr(0, size);
  list.remove_prefix(std::min(size + 1, list.size()));
  return word;
}

/// The first words of a list, such as the names of an enumeration's values.
template <std::size_t count>
constexpr std::array<std::string_view, count> take_words(std::string_view list) {
  std::array<std::string_view, count> words{};
  for (std::string_view& word : words) word = take_word(list);
  return words;
}

/// The value of a key that takes one word of a list; the first word is the default. `key == "skip"`
/// and `key = "skip"` compile only with a word of the list. A key is an enumeration instead if code
/// distinguishes its values by `switch`, or if a value has several words.
template <WordList words>
class OneOf {
 public:
  constexpr OneOf() = default;
  consteval OneOf(const char* word) {
    const std::string_view wanted(word);
    for (std::string_view rest(words.text); !rest.empty(); ++number_) {
      if (take_word(rest) == wanted) return;
    }
    throw "the list has no such word";
  }
  /// The value that is word `number` of the list, from 0.
  explicit constexpr OneOf(int number) : number_(number) {}
  template <std::integral Number>
  explicit constexpr operator Number() const {
    return static_cast<Number>(number_);
  }
  friend constexpr bool operator==(OneOf, OneOf) = default;

 private:
  int number_ = 0;
};

template <class Value>
inline constexpr bool is_one_of = false;
template <WordList words>
inline constexpr bool is_one_of<OneOf<words>> = true;
/// A type whose values have words in YAML.
template <class Value>
concept IsChoice = std::is_enum_v<Value> || is_one_of<Value>;

using Family = OneOf<"gpt2|llama">;
enum class ParallelMode {
  stand_alone,
  data_parallel,
  semi_auto_parallel,
  auto_parallel,
  hybrid_parallel
};
enum class LrStyle { constant, linear, cosine, inverse_square_root, wsd };
using DecayStyle = OneOf<"linear|cosine|exponential|minus_sqrt">;
using WeightDecayStyle = OneOf<"constant|linear|cosine">;
using WeightDecayForm = OneOf<"decoupled|coupled">;
enum class ComputeType { fp32, bf16, fp16 };
using SplitStyle = OneOf<"tail|blocks">;
using OnBadLoss = OneOf<"stop|skip">;
using ChangedData = OneOf<"refuse|allow">;
using SearchMode = OneOf<"recursive_programming|sharding_propagation|dynamic_programming">;
using AttentionBackend = OneOf<"auto|own|cudnn">;
using ProductChoice = OneOf<"proposed|timed">;
using GraphChoice = OneOf<"auto|true|false">;
using FusionMode = OneOf<"auto|size|index">;
enum class BucketRule { size, megatron, comm_fusion, layers };
enum class SplitBy { features, tokens, whole };
enum class CpCommType { p2p, all_gather, a2a, a2a_p2p };
using EntropyFusion = OneOf<"native|te">;
using BootstrapBackend = OneOf<"nccl|mpi|gloo">;
using PipelineCommBackend = OneOf<"nccl|ucc">;
using GradSyncStart = OneOf<"overlap|after_backward">;
using ParamSyncStart = OneOf<"overlap|before_forward">;
using NoSync = OneOf<"last_microbatch|never">;
using OptimizerLevel = OneOf<"level1|level2|level3">;
using GradScale = OneOf<"loss_scale|none">;
using ScoreFunction = OneOf<"softmax|sigmoid">;
using LoadBalancing = OneOf<"aux_loss|round_aux_loss|none">;
using ExpertChoice = OneOf<"topk|rounds">;
using BalanceCounts = OneOf<"chosen|free">;
using SoftmaxType = OneOf<"vanilla|learnable">;
using ExpertGroup = OneOf<"sequence|micro_batch">;

/// How context-parallel ranks share attention: one type for all layers, or one for each layer.
struct CpCommTypes {
  std::vector<CpCommType> layers{CpCommType::p2p};

  CpCommTypes() = default;
  CpCommTypes(CpCommType all) : layers{all} {}
  CpCommType of(std::int64_t layer) const {
    return layers[layers.size() == 1 ? 0 : static_cast<std::size_t>(layer)];
  }
  bool has(CpCommType type) const { return std::ranges::find(layers, type) != layers.end(); }
  bool operator==(const CpCommTypes&) const = default;
};

// The pipeline schedules, with their names and features. The rules, the choice of generators,
// `trainctl verify` and the tests read this table.

enum class PipelineScheduler : std::uint8_t { one_f_one_b, gpipe, zb_h1, zb_v };

/// The stage of each chunk of the model, in the order of the forward pass.
///   round_robin  from the first stage to the last, then again from the first
///   down_and_up  from the first stage to the last, then back to the first
using ChunkRoute = OneOf<"round_robin|down_and_up">;

struct ScheduleTraits {
  PipelineScheduler value = PipelineScheduler::one_f_one_b;
  std::string_view word;          // spelling in YAML
  std::string_view name;          // name in a plan; also accepted in YAML
  std::string_view chunked_name;  // name in a plan with several chunks per stage
  int min_chunks = 1;             // chunks per stage
  int max_chunks = 1 << 20;
  ChunkRoute route = "round_robin";
  bool groups = false;          // several chunks are executed in groups of micro-batches
  bool overlaps = true;         // messages may overlap with computation if a stage has one chunk
  bool batches = true;          // messages may be exchanged in batches
  bool apart = false;           // with several chunks, messages are by default exchanged one by one
  bool places_weights = false;  // weight gradients are computed apart, to fill gaps
};

/// Rows in the order of the enumerators.
inline constexpr ScheduleTraits schedules[] = {
    {.value = PipelineScheduler::one_f_one_b,
     .word = "1f1b",
     .name = "1f1b",
     .chunked_name = "interleaved_1f1b",
     .groups = true,
     .overlaps = false},
    {.value = PipelineScheduler::gpipe, .word = "gpipe", .name = "gpipe", .chunked_name = "gpipe"},
    {.value = PipelineScheduler::zb_h1,
     .word = "zb-h1",
     .name = "zb_h1",
     .chunked_name = "interleaved_zb_h1",
     .groups = true,
     .overlaps = false,
     .apart = true,
     .places_weights = true},
    {.value = PipelineScheduler::zb_v,
     .word = "zb-v",
     .name = "zb_v",
     .chunked_name = "zb_v",
     .min_chunks = 2,
     .max_chunks = 2,
     .route = "down_and_up",
     .batches = false,
     .places_weights = true},
};

constexpr const ScheduleTraits& traits_of(PipelineScheduler scheduler) {
  return schedules[static_cast<int>(scheduler)];
}

}  // namespace trainctl
