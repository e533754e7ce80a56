// The rounding in messages between stages whose dtype differs from that of the layers: it rounds
// the residual stream and its gradient at the cuts between stages. A single rank that rounds at the
// same places computes the same values as the stages.
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
  std::set<int> cuts;  // units that send their output to another stage; nothing rounds if empty
  DType dtype = DType::f32;
  std::int64_t factor = 1;  // GradientRule::factor of the gradients that are rounded
  auto operator<=>(const MessageRounding&) const = default;
};

/// Empty if messages round nothing: in fp32, and in the layers' own dtype.
MessageRounding message_rounding(const Plan& plan);

/// Hooks for a single rank: round as the messages would, then call `hooks`. `now` returns the
/// rounding at the time of a hook's call; the rounding must outlive that call.
Hooks with_rounding(Hooks hooks, const MessageRounding& rounding);
Hooks with_rounding(Hooks hooks, std::function<const MessageRounding&()> now);

// The recorded values of a single rank, step by step.

/// Whole tensors of one kind, in fp32, by parameter name.
using WholeTensors = std::map<std::string, std::vector<float>>;

/// The training state between two steps: masters, then each optimizer state.
using RecordedState = std::vector<WholeTensors>;

/// The residual stream after a unit's forward in one step, for all sequences; or the logits of a
/// layer's router.
struct RecordedStream {
  std::string name;  // name of the unit or layer
  Shape shape;       // [sequence, token, hidden or experts]
  std::vector<float> values;
  double largest = 0;   // largest absolute value
  double rounding = 0;  // in 16 bits: largest distance from a step that rounds differently
};

struct RecordedStep {
  double loss = 0;
  double norm = 0;  // computed by the engine
  double largest_gradient = 0;
  std::vector<RecordedStream> streams;  // one stream per unit
  std::vector<RecordedStream> routers;  // one stream per layer; empty for layers without experts
  std::vector<float> scores;            // Engine::largest_scores
  own::StepNumbers numbers;             // computed by verify, not by the engine
  WholeTensors gradients;
  // Changes of the experts' biases by the step, by name of the bias.
  std::map<std::string, std::vector<double>> bias_steps;
  std::vector<own::RouterSums> router_sums;  // one per layer with experts
  double real_tokens = 0;
  // In 16 bits, by parameter: the largest distance of its gradient from the gradient in a step that
  // is rounded differently, or not at all.
  std::map<std::string, double> roundings;
};

struct Record {
  std::vector<RecordedState> states;  // the state before each step, and after the last
  std::vector<RecordedStep> steps;
  int optimizer_states = 0;
  LossScaling loss_scaling;
  MessageRounding rounding;  // the rounding in messages that the recorded rank applied
};

/// Elements [part.begin, part.end) of a rank's shard of a parameter.
struct HeldPart {
  Tensor values;
  Slice part;
};

/// whole_part covers all of a shard. held_part gives the elements that a rank holds of kind `kind`
/// of a parameter's values: 0 for the master, then the optimizer states.
HeldPart whole_part(const Tensor& shard);
HeldPart held_part(const ParamStore& store, int parameter, int kind);
/// The elements of a tensor of any float type, as floats.
std::vector<float> values_of(const Tensor& tensor);
/// Writes values to a tensor, rounded to its type.
void set_values(const Tensor& tensor, std::vector<float>& values);
/// The values rounded to `dtype`.
std::vector<float> rounded(std::vector<float> values, DType dtype);
RecordedState record_state(const ParamStore& store, int optimizer_states);
WholeTensors record_gradients(const ParamStore& store);
/// Multiplies all gradients that record_gradients reads.
void scale_gradients(const ParamStore& store, double factor);
/// One stream per unit, with room for this number of sequences.
std::vector<RecordedStream> empty_streams(const ModelShape& model, std::int64_t sequences);
/// Writes `part` to the stream's elements from `begin` on.
void record_part(RecordedStream& stream, std::int64_t begin, const Tensor& part);
/// Raises stream.rounding to the largest difference between `part` and the recorded elements.
void record_rounding(RecordedStream& stream, std::int64_t begin, const Tensor& part);
double largest_of(const WholeTensors& tensors);
double largest_of(const std::vector<float>& values);
/// |found - expected|, or infinity if that is not finite.
double difference_of(double found, double expected);
/// The largest difference between elements, for each tensor.
std::map<std::string, double> distances(const WholeTensors& one, const WholeTensors& other);

/// Fills a rank's part from the whole tensor, but only elements whose index in the whole tensor is
/// at least `first`.
void load_part(const ParamSpec& spec, const Mesh& mesh, std::int64_t rank,
               const std::vector<float>& whole, const HeldPart& held, std::int64_t first = 0);
/// A rank's part, with zeros for elements whose index in the whole tensor is at least `end`.
std::vector<float> part_before(const ParamSpec& spec, const Mesh& mesh, std::int64_t rank,
                               const HeldPart& held, std::int64_t end);

// The logits of routers, by token. The rounding of its logits may decide which experts a token goes
// to, and whether it gets a place there. A layout therefore compares its logits with those of the
// single rank, then routes by the latter, just as each step starts from the single rank's
// parameters.

/// Called with logits of neighbouring tokens, whose first element is number `begin` in the stream
/// of the layer.
using TakeLogits = std::function<void(std::int64_t begin, const Tensor& rows)>;

/// Calls `take` for each run of rows of `logits` whose tokens are among the `count` tokens from
/// number `first` on. `tokens` is [T] i64, the numbers of the rows' tokens in the data.
void for_routed_tokens(const Tensor& tokens, const Tensor& logits, std::int64_t first,
                       std::int64_t count, const TakeLogits& take);

/// Calls for_routed_tokens for the tokens of step `step` (0 for the first) of a run of `plan`.
void for_step_tokens(const Plan& plan, std::int64_t step, const Tensor& tokens,
                     const Tensor& logits, const TakeLogits& take);

/// Room for the tokens of `sequences` in each layer with experts; other layers stay empty.
std::vector<RecordedStream> empty_routers(const ModelShape& model, std::int64_t sequences);
/// The number of logits of a token in all layers.
std::int64_t expert_logits(const ModelShape& model);
/// The number of tokens in a layer's record.
std::int64_t tokens_of(const RecordedStream& router);

/// Overwrites logits by the recorded ones from element `begin` on.
void route_as_recorded(const RecordedStream& router, std::int64_t begin, const Tensor& rows);

}  // namespace trainctl
