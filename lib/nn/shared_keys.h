// Attention of this rank's queries with the keys and values of all ranks that hold tokens of the
// same sequences: gathered from all ranks, or passed on around a ring, block by block (Liu et al.
// 2023), while the rank works on the block before. Without context parallelism, attention itself.
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
  std::int64_t rank = 0;         // in the group
  std::int64_t batch_ranks = 1;  // neighbours whose queries the batch has
  Group* heads = nullptr;
  Group* ring = nullptr;
  Group* gather = nullptr;
  Tensor packed{};  // see Reshard, for the exchange of heads

  /// The part of a row of the batch with the queries of this layer's neighbourhood.
  Tensor local_queries(const Tensor& all) const;
};

/// The context-parallel groups of all layers of a stage.
struct StageContext {
  ContextSplits splits{};
  TokenPieces tokens{};
  std::int64_t length_step = 0;
  std::int64_t rank = 0;
  Group* whole = nullptr;  // all ranks
  Group* heads = nullptr;  // a neighbourhood
  Group* ring = nullptr;   // of neighbourhoods
  Tensor packed{};

  /// The groups of a block's unit.
  ContextParallel of_unit(int unit) const;
};

class SharedKeys {
 public:
  /// A block of keys, or of their gradients.
  struct Pair {
    Tensor k, v;  // [K, features]
  };
  /// Rows of the activation table, empty where they are not used. K keys of a rank (of all ranks
  /// that exchange heads with it), and its Q queries.
  struct Buffers {
    Pair all, d_all;        // gathered: [ranks K, features]; around a ring: [2 K, features]
    Pair part;              // [K, features] what this rank adds to the gradient of a block
    Tensor part_q;          // [Q, features] the result with one block, or what that adds to dq
    Tensor part_logsumexp;  // as the logsumexp, in any shape
  };

  SharedKeys() = default;
  /// For micro-batches of `sequences` sequences.
  SharedKeys(const ContextParallel& context, std::int64_t sequences);

  /// The shape with the runs of this rank's queries.
  AttentionShape of_queries(const AttentionShape& shape) const { return shape_with(shape, 0); }

  /// k and v are this rank's own. The runs of args.shape, and its key_length, are set here.
  void forward(const Pass& pass, AttentionArgs args, const Buffers& buffers) const;
  /// dk and dv are those of the own keys and values, from all ranks' queries; none of the gradients
  /// may share memory with d_out.
  void backward(const Pass& pass, AttentionArgs args, const Buffers& buffers) const;

 private:
  using Messages = std::array<Event, 4>;
  /// Where the tokens of micro-batches of one length lie.
  struct Runs {
    TokenRuns form;  // of all lists below, without the runs
    std::vector<TokenRun> queries;
    std::vector<std::vector<TokenRun>> keys;  // by rank of the ring; gathered: one list
  };
  static Runs runs_at(const ContextParallel& context, std::int64_t sequences, std::int64_t length);

  bool around_ring() const { return ring_ != nullptr; }
  /// The shape with the keys of one rank of the ring, or with all that are gathered.
  AttentionShape shape_with(AttentionShape shape, std::size_t source) const;
  /// The source of the block that this rank works on in a step.
  std::size_t source_in(int step) const;
  void forward_around(const Pass& pass, const AttentionArgs& args, const Buffers& buffers) const;
  void backward_around(const Pass& pass, const AttentionArgs& args, const Buffers& buffers) const;
  /// Sends a block to the next rank and receives one from the rank before.
  Messages pass_on(const Pass& pass, const Pair& from, const Pair& to, int tag) const;
  static void await(const Pass& pass, const Messages& messages);

  Reshard gather_;
  Group* ring_ = nullptr;
  std::vector<Runs> runs_;       // by length; empty: one run, as the shape says
  std::int64_t query_step_ = 1;  // queries by which neighbours of `runs_` differ
};

}  // namespace trainctl
