// One rank's share of the model and of a micro-batch: the only place where sizes are divided by
// the axes of the mesh. (Shapes of parameters follow from ParamSpec::split_dim.)
#pragma once

#include <cstdint>

#include "base/device_kind.h"
#include "base/dtype.h"
#include "plan/model/form.h"
#include "plan/tables/layout.h"
#include "plan/tables/mesh.h"
#include "plan/tables/model.h"

namespace trainctl {

/// Tokens of a micro-batch on a rank.
struct StreamShape {
  std::int64_t tokens = 0;       // 1 / cp of them
  std::int64_t stream_rows = 0;  // of the residual stream: with sequence parallelism 1 / tp of them
};

/// What does not depend on the layer.
struct EndShape : StreamShape {
  std::int64_t vocabulary = 0;  // rows of the head
  std::int64_t head_rows = 0;   // tokens that the head takes
};

/// One layer. A layer without experts is one that sends every token to a single expert.
struct LocalShape : StreamShape {
  std::int64_t attention_rows = 0;  // tokens of which this rank makes q, k, v and the output
  std::int64_t heads = 0;           // of these products
  std::int64_t kv_heads = 0;    // at least 1: neighbouring ranks share one where there are fewer
  std::int64_t q = 0;           // features of the queries
  std::int64_t kv = 0;          // features of the keys, and of the values
  std::int64_t head_ranks = 1;  // tensor-parallel ranks that exchange tokens for heads, so that
                                // attention has all tokens
  std::int64_t mlp_rows = 0;    // tokens of the products of a plain MLP
  std::int64_t ffn = 0;
  std::int64_t experts = 1;         // held here
  std::int64_t routed_tokens = 0;   // whose experts this rank uses: all of the micro-batch, or
                                    // those of its residual stream
  std::int64_t sent_tokens = 0;     // of them, those that it sends to their experts
  std::int64_t met_tokens = 0;      // whose choices its experts work on each once, if all experts
                                    // are chosen equally often
  std::int64_t routing_ranks = 1;   // which route the tokens of all of them alike
  std::int64_t routing_groups = 0;  // of the tokens of its context-parallel group
  std::int64_t counted_rows = 0;    // of them: rows of numbers of choices (RouterChoice::counted)
  std::int64_t capacity = 0;        // most choices of such a group that an expert takes; 0: all
  std::int64_t routed_rows = 0;     // most choices of this rank's tokens that reach their expert
  std::int64_t expert_rows = 0;     // most rows that the experts held here get, from all ranks
  std::int64_t received_rows = 0;   // of them, the most that come to this rank before its parts of
                                    // experts share them (ExchangeRule::parts)
  std::int64_t gathered_rows = 0;   // as many with those of the others: parts of one length
  std::int64_t expert_ffn = 0;
  std::int64_t shared_ffn = 0;  // of the shared experts
};

/// What all layers of a stage know of the mesh.
struct MeshShare {
  const Mesh& mesh;
  std::int64_t micro_batch_size = 1;
  bool sequence_parallel = false;
};

/// Sizes that an axis does not divide (an error of the configuration) are rounded down, here and
/// below.
EndShape end_shape(const ModelShape& model, const MeshShare& share, SplitBy head);
LocalShape local_shape(const LayerForm& form, const MeshShare& share, BlockSplit split = {},
                       const ExchangeRule& exchange = {});

/// Most choices of a group of capacity_group tokens that one expert takes (base/expert_places.h); 0
/// without a limit, or without experts.
std::int64_t moe_capacity(const LayerForm& form);

/// What bounds the tokens of which the fused head has logits at a time.
struct HeadChunkRule {
  DeviceKind device = DeviceKind::cpu;
  std::int64_t most = 0;  // that the configuration gives; 0: by the device
};

/// Tokens of which a rank's head has logits at a time: all with whole_logits, else head_chunk.
std::int64_t head_tokens(const ModelShape& model, const EndShape& local, DType compute,
                         const HeadChunkRule& rule = {});

/// Tokens per chunk of the fused head over `vocabulary` rows; chunks are nearly equal, and no
/// larger than the rule says. On a CPU that is a quarter of the tokens (large chunks keep the
/// products fast), but logits of at most 256 MiB, and never fewer than 64 tokens. On a device it is
/// 8,192 tokens: each chunk reads and writes the fp32 gradient of the whole table.
std::int64_t head_chunk(std::int64_t vocabulary, std::int64_t tokens, DType compute,
                        const HeadChunkRule& rule = {});

}  // namespace trainctl
