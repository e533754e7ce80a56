// The rounding in messages between stages where their dtype is not the layers': it rounds the
// residual stream and its gradient, at the cuts between stages. A single rank that rounds there in
// the same way computes the same values as the stages.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "engine/engine_input.h"
#include "engine/parameters/param_store.h"
#include "plan/plan.h"
#include "plan/rules/resolve.h"
#include "verify/own/router.h"
#include "verify/own/step_numbers.h"

namespace trainctl {

struct MessageRounding {
  std::set<int> cuts;  // the units whose output is sent to another stage; empty: nothing is rounded
  DType dtype = DType::f32;
  std::int64_t factor = 1;  // of the gradients that are rounded: GradientRule::factor
  auto operator<=>(const MessageRounding&) const = default;
};

/// Nothing where messages keep every number of the layers: in the layers' own dtype, and in fp32.
MessageRounding message_rounding(const Plan& plan);

/// For a single rank: rounds as the messages would, and then calls `hooks`. `now`: what they round
/// when a hook is called; the rounding must outlive that call.
Hooks with_rounding(Hooks hooks, const MessageRounding& rounding);
Hooks with_rounding(Hooks hooks, std::function<const MessageRounding&()> now);

// The values that a single rank computed, step by step.

/// Whole tensors of one kind, in fp32, by parameter name.
using WholeTensors = std::map<std::string, std::vector<float>>;

/// The training state between two steps: masters, then the optimizer's values.
using RecordedState = std::vector<WholeTensors>;

/// The forward output of a unit in one step: the residual stream of all its sequences; or the
/// logits of a layer's router.
struct RecordedStream {
  std::string name;  // of the unit, or the layer
  Shape shape;       // [sequence, token, hidden or experts]
  std::vector<float> values;
  double largest = 0;   // largest absolute value
  double rounding = 0;  // in 16 bits: the largest distance from those of the step rounded otherwise
};

struct RecordedStep {
  double loss = 0;
  double norm = 0;  // that the engine found
  double largest_gradient = 0;
  std::vector<RecordedStream> streams;  // by unit
  std::vector<RecordedStream> routers;  // by layer; empty where it has no experts
  std::vector<float> scores;            // Engine::largest_scores
  own::StepNumbers numbers;             // that are not the engine's
  WholeTensors gradients;
  // By name of the biases of experts: by how much the step moves each.
  std::map<std::string, std::vector<double>> bias_steps;
  std::vector<own::RouterSums> router_sums;  // of each layer with experts
  double real_tokens = 0;
  // By parameter, in 16 bits: the largest distance of its gradient from that of the step rounded
  // otherwise, or not at all.
  std::map<std::string, double> roundings;
};

struct Record {
  std::vector<RecordedState> states;  // before each step, and after the last
  std::vector<RecordedStep> steps;
  int optimizer_states = 0;
  LossScaling loss_scaling;
  MessageRounding rounding;  // of the recorded rank
};

/// Elements [part.begin, part.end) of a rank's shard of a parameter.
struct HeldPart {
  Tensor values;
  Slice part;
};

/// All of a shard; what a rank holds of the values of kind `kind`: 0 the master, then the
/// optimizer's values.
HeldPart whole_part(const Tensor& shard);
HeldPart held_part(const ParamStore& store, int parameter, int kind);
/// The elements of a tensor of any float type.
std::vector<float> values_of(const Tensor& tensor);
/// Back into such a tensor, rounded to its type.
void set_values(const Tensor& tensor, std::vector<float>& values);
/// As a tensor of that type has them.
std::vector<float> rounded(std::vector<float> values, DType dtype);
RecordedState record_state(const ParamStore& store, int optimizer_states);
WholeTensors record_gradients(const ParamStore& store);
/// Multiplies all that record_gradients reads.
void scale_gradients(const ParamStore& store, double factor);
/// With room for `sequences` of them after each unit.
std::vector<RecordedStream> empty_streams(const ModelShape& model, std::int64_t sequences);
/// Puts `part` at elements [begin, ..).
void record_part(RecordedStream& stream, std::int64_t begin, const Tensor& part);
/// Takes in how far the same part of the step rounded otherwise is from what is recorded.
void record_rounding(RecordedStream& stream, std::int64_t begin, const Tensor& part);
double largest_of(const WholeTensors& tensors);
double largest_of(const std::vector<float>& values);
/// Infinite where one is not a number.
double difference_of(double found, double expected);
/// The largest difference between elements, of each tensor.
std::map<std::string, double> distances(const WholeTensors& one, const WholeTensors& other);

/// Fills a rank's part from the whole tensor, or only its elements from number `first` of the whole
/// one on.
void load_part(const ParamSpec& spec, const Mesh& mesh, std::int64_t rank,
               const std::vector<float>& whole, const HeldPart& held, std::int64_t first = 0);
/// A rank's part, with 0 from number `end` of the whole tensor on.
std::vector<float> part_before(const ParamSpec& spec, const Mesh& mesh, std::int64_t rank,
                               const HeldPart& held, std::int64_t end);

// The logits of routers, by token. Which experts a token goes to, and whether it has a place there,
// may follow from how its logits are rounded; so a layout compares its logits with those of the
// single rank and then routes by the single rank's, as each step starts from the single rank's
// parameters.

/// Rows [begin, end) of a rank: neighbouring tokens, the first of which is number `token` of the
/// step.
struct RoutedTokens {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t token = 0;
};

/// Calls `body` for the rows of `tokens` ([T] i64: numbers in the data) that are among the `count`
/// tokens from number `first` on.
void for_routed_tokens(const Tensor& tokens, std::int64_t first, std::int64_t count,
                       const std::function<void(const RoutedTokens&)>& body);

/// Does this for the tokens of step number `step` (0 for the first) of a run of `plan`.
void for_step_tokens(const Plan& plan, std::int64_t step, const Tensor& tokens,
                     const std::function<void(const RoutedTokens&)>& body);

/// With room for the tokens of `sequences` in each layer that has experts; the others stay empty.
std::vector<RecordedStream> empty_routers(const ModelShape& model, std::int64_t sequences);
/// Logits of a token in all layers.
std::int64_t expert_logits(const ModelShape& model);
/// Number of tokens of such a record.
std::int64_t tokens_of(const RecordedStream& router);

/// Puts the logits of a run of tokens there.
void record_logits(RecordedStream& router, const RoutedTokens& run, const Tensor& logits);
/// Makes `logits`, of the tokens of a run, those that were recorded.
void route_as_recorded(const RecordedStream& router, const RoutedTokens& run, const Tensor& logits);

}  // namespace trainctl
