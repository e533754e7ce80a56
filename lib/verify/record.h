// The values that a single rank computed, step by step.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/parameters/param_store.h"
#include "plan/rules/resolve.h"
#include "verify/message_rounding.h"
#include "verify/own/router.h"
#include "verify/own/step_numbers.h"

namespace trainctl {

/// Whole tensors of one kind, in fp32, by parameter name.
using WholeTensors = std::map<std::string, std::vector<float>>;

/// The training state between two steps: masters, then the optimizer's values.
struct RecordedState {
  std::vector<WholeTensors> kinds;
};

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

}  // namespace trainctl
