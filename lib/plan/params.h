// The parameter table: one row per parameter, from which initialisation, allocation, gradient
// reduction, norm, checkpoint and the memory estimate are all read. Order is model order
// (embedding, layers, head).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"
#include "plan/layout.h"
#include "plan/mesh.h"
#include "plan/model.h"

namespace trainctl {

/// Which numbers a kernel sees: matrices (and embeddings) are in the compute dtype, vectors always
/// fp32.
enum class DTypeRole : std::uint8_t { matrix, vector };
enum class InitKind : std::uint8_t { normal, zeros, ones };

struct ParamSpec {
  std::string name;  // "layers.3.attention.q.weight"; the full list is in docs/architecture.md
  Shape global_shape;
  Shape shape;  // of this rank's shard
  DTypeRole role = DTypeRole::matrix;
  InitKind init = InitKind::normal;
  double init_deviation = 0;
  bool decay = false;
  int unit =
      0;  // 0 embedding, 1..layers blocks, layers + 1 head: where its gradient is finished last
  bool split[axis_count] = {};         // sharded over the axis (on the dim its layout says)
  bool gradient_sum[axis_count] = {};  // gradient summed over the axis
};

/// Parameter names, all families (a tied head has no row of its own):
///   embedding.token.weight [padded_vocab, hidden]   embedding.position.weight [positions, hidden]
///   (gpt2) layers.N.norm1.weight/.bias   layers.N.attention.{q,k,v,out}.weight/.bias
///   layers.N.attention.{q,k}_norm.weight layers.N.norm2.weight/.bias
///   layers.N.mlp.{up,down}.weight/.bias (gpt2)   layers.N.mlp.{gate,up,down}.weight
///   final_norm.weight/.bias       head.weight [padded_vocab, hidden] (untied)
/// Every matrix is [out, in]. Norm biases exist in gpt2 only.
std::vector<ParamSpec> make_parameters(const ModelShape& model, const Mesh& mesh);

/// A contiguous piece of one parameter.
struct ParamRange {
  int parameter = 0;  // index into the table
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// Gradients that are reduced together. Buckets partition the flat gradient buffer, which holds the
/// parameters in reverse model order, each start padded to 64 elements; a bucket's length is a
/// multiple of 64 x dp.
struct Bucket {
  std::int64_t offset = 0;  // elements into the flat buffer
  std::int64_t length = 0;
  std::vector<int> parameters;  // in flat order
  int ready_unit = 0;           // the bucket is complete once this unit's backward has run
};

struct FlatLayout {
  std::vector<std::int64_t> offset;  // per parameter, elements
  std::vector<Bucket> buckets;       // in flat order = order of readiness
  std::int64_t length = 0;           // elements
};

FlatLayout make_flat_layout(const std::vector<ParamSpec>& parameters, std::int64_t bucket_size,
                            std::int64_t data_parallel);

/// The parts of each parameter that one optimizer shard updates; shard i of n (n = 1: everything).
std::vector<ParamRange> owned_ranges(const std::vector<ParamSpec>& parameters,
                                     const FlatLayout& layout, std::int64_t shard,
                                     std::int64_t shards);

}  // namespace trainctl
