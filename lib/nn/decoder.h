// Next-token logits with a KV cache: the forward code of the training layers on a few tokens at a
// time, with rows of the cache as k and v. Tensor parallelism works as in training, but without
// sequence parallelism, since there are too few tokens to split. Each pipeline stage has a decoder
// of its own units. Everything is allocated when it is made.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "device/slab.h"
#include "nn/saved.h"
#include "plan/model/activations.h"

namespace trainctl {

class Decoder {
 public:
  virtual ~Decoder() = default;
  /// Appends tokens to those already seen. On the last stage, returns the logits [vocab] (fp32,
  /// host) that follow the last token; on other stages, nothing. seen() + tokens.size() must not
  /// exceed capacity(). Waits for the device, at most twice the deadline. Collective over the
  /// groups.
  virtual std::span<const float> advance(const OpContext& ops,
                                         std::span<const std::int32_t> tokens) = 0;
  /// Forgets all tokens.
  virtual void reset() = 0;
  virtual std::int64_t seen() const = 0;
  virtual std::int64_t capacity() const = 0;  // positions of the model
};

struct DecoderInput {
  DeviceKind device = DeviceKind::cpu;  // of the weights, the groups and the context's stream
  ModelShape model;
  DType compute = DType::f32;
  std::vector<Tensor> rope_tables;  // as of StageInput
  WeightSource weights;  // values only
  Mesh mesh{};
  std::vector<UnitRange> units{};  // per chunk of this rank's stage; empty: all, in one
  ChunkPlaces places{};
  Group* tp = nullptr;      // null: alone
  Group* pp = nullptr;      // null: alone
  OperatorSplits splits{};  // tokens are not split here: for_decoding
  double deadline_seconds = 300;
};

/// Opens the lines of `pp`: collective over it.
std::unique_ptr<Decoder> make_decoder(const DecoderInput& input);

}  // namespace trainctl
