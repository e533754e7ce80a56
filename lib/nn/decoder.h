// Next-token logits with a KV cache: the training layers' own forward code on a few tokens at a
// time, their k and v rows being rows of the cache. Over tensor-parallel ranks as in training but
// for sequence parallelism: there are too few tokens to split. Each pipeline stage has a decoder of
// its own units.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "device/slab.h"
#include "nn/saved.h"
#include "plan/tables/activations.h"

namespace trainctl {

class Decoder {
 public:
  virtual ~Decoder() = default;
  /// Appends tokens after those already seen; returns the logits [vocab] (fp32, host) that follow
  /// the last one, on the last stage; nothing on the others. seen() + tokens.size() must not exceed
  /// capacity(). Collective over the groups.
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
  Mesh mesh{};
  std::optional<UnitRange> units{};  // of this rank's stage; not given: all
  Group* tp = nullptr;               // null: alone
  Group* pp = nullptr;               // null: alone
  bool split_vocabulary = false;
};

std::unique_ptr<Decoder> make_decoder(const DecoderInput& input);

}  // namespace trainctl
