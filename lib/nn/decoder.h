// Next-token logits with a KV cache: the training layers' own forward code on a few tokens at a
// time, their k and v rows being rows of the cache.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "device/slab.h"
#include "nn/saved.h"
#include "plan/activations.h"

namespace trainctl {

class Decoder {
 public:
  virtual ~Decoder() = default;
  /// Appends tokens after those already seen; returns the logits [vocab] (fp32, host) that follow
  /// the last one. seen() + tokens.size() must not exceed capacity().
  virtual std::span<const float> advance(const OpContext& ops,
                                         std::span<const std::int32_t> tokens) = 0;
  /// Forgets everything.
  virtual void reset() = 0;
  virtual std::int64_t seen() const = 0;
  virtual std::int64_t capacity() const = 0;  // positions of the model
};

struct DecoderInput {
  ModelShape model;
  DType compute = DType::f32;
  Tensor rope_table;
  WeightSource weights;  // values only
};

std::unique_ptr<Decoder> make_decoder(const DecoderInput& input);

}  // namespace trainctl
