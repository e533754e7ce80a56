// Attention of this rank's queries to the keys and values of all ranks with tokens of the same
// sequences. Blocks of keys and values are gathered, or passed around a ring (Liu et al. 2023)
// while each rank works on the previous block. Without context parallelism, plain attention.
#pragma once

#include <array>
#include <vector>

#include "nn/layer.h"
#include "nn/reshard.h"
#include "ops/attention.h"
#include "plan/tables/layout.h"

namespace trainctl {

/// The context-parallel groups of one layer's attention. A group of one rank may be null.
struct ContextParallel {
  ContextSplit split;
  TokenPieces tokens{};
  std::int64_t length_step = 0;  // Plan::length_step
  std::int64_t rank = 0;         // this rank in the group
  std::int64_t batch_ranks = 1;  // neighbouring ranks whose queries are in the batch
  Group* heads = nullptr;
  Group* ring = nullptr;
  Group* gather = nullptr;
  Tensor packed{};  // buffer like Reshard::packed, for the exchange of heads

  /// The queries of this layer's neighbourhood, taken from a batch row with one value per query.
  Tensor local_queries(const Tensor& all) const;
};

class SharedKeys {
 public:
  /// A block of keys and values, or of their gradients.
  struct Pair {
    Tensor k, v;  // [K, features]
  };
  /// Rows of the activation table; unused ones are empty. Sizes: K keys of a rank (or of all ranks
  /// that exchange heads with it), Q queries.
  struct Buffers {
    Pair all, d_all;        // gathered: [ranks K, features]; around a ring: [2 K, features]
    Pair part;              // [K, features] this rank's addend to a block's gradient
    Tensor part_q;          // [Q, features] the result for one block, or its addend to dq
    Tensor part_logsumexp;  // same number of elements as the logsumexp, any shape
  };

  SharedKeys() = default;
  /// `sequences` is the number of sequences in a micro-batch.
  SharedKeys(const ContextParallel& context, std::int64_t sequences);

  /// `shape` with the runs of this rank's queries.
  AttentionShape of_queries(const AttentionShape& shape) const { return shape_with(shape, 0); }

  /// `args` has this rank's own k and v. Sets the runs and the key_length of args.shape.
  void forward(const Pass& pass, AttentionArgs args, const Buffers& buffers) const;
  /// dk and dv are the gradients of this rank's own keys and values, from the queries of all ranks.
  /// No gradient may share memory with d_out.
  void backward(const Pass& pass, AttentionArgs args, const Buffers& buffers) const;

 private:
  using Messages = std::array<Event, 4>;
  /// The runs of tokens in micro-batches of one length.
  struct Runs {
    TokenRuns form;  // form of all runs below; its own list is empty
    std::vector<TokenRun> queries;
    std::vector<std::vector<TokenRun>> keys;  // per rank of the ring; if gathered, a single list
  };
  static Runs runs_at(const ContextParallel& context, std::int64_t sequences, std::int64_t length);

  bool around_ring() const { return ring_ != nullptr; }
  /// The shape with the keys of rank `source` of the ring, or with all gathered keys.
  AttentionShape shape_with(AttentionShape shape, std::size_t source) const;
  /// The rank whose keys and values this rank works on in this step of the ring.
  std::size_t source_in(int step) const;
  void forward_around(const Pass& pass, const AttentionArgs& args, const Buffers& buffers) const;
  void backward_around(const Pass& pass, const AttentionArgs& args, const Buffers& buffers) const;
  /// Sends a block to the next rank and receives one from the rank before.
  Messages pass_on(const Pass& pass, const Pair& from, const Pair& to, int tag) const;
  static void await(const Pass& pass, const Messages& messages);

  Reshard gather_;
  Group* ring_ = nullptr;
  std::vector<Runs> runs_;       // per length; if empty, the shape's single run is used
  std::int64_t query_step_ = 1;  // difference in queries between neighbours in `runs_`
};

}  // namespace trainctl
