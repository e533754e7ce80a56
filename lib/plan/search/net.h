// The graph for recursive_programming: the matrix products of a pipeline stage and the data that
// they read (docs/auto-parallel.md). It leaves out products of experts and routers, attention's own
// two products, norms and look-ups.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/shape.h"
#include "config/schema/choices.h"
#include "plan/tables/model.h"
#include "plan/tables/splits.h"

namespace trainctl {

/// The extents of a product A (i x k) by B (k x j), where B holds the k x j weights, or the number
/// of parts of each extent.
struct Extents {
  std::int64_t i = 1, k = 1, j = 1;
  friend bool operator==(const Extents&, const Extents&) = default;
};

/// The operators that operator_splits names.
using SearchOperator = OneOf<"attention|feed_forward|head">;

/// Denotes the data in a list of producers or in the order of visits.
inline constexpr int data_node = -1;

struct SearchProduct {
  std::string name;        // name in strategy files, such as "layers.0.attention.q"
  std::int64_t layer = 0;  // index in the model; 0 for the head
  SearchOperator of = "head";
  bool sums = false;  // true for products `out` and `down`: a split by features cuts k
  Extents extents{};
  std::vector<int> producers{};  // products that make the first input (indices), or data_node
  std::optional<int> second{};   // for `gate`: index of `up`, the second factor
};

struct SearchNet {
  std::vector<SearchProduct> products;  // in the order of the model
  Shape data{1, 1};        // [rows, columns] of the whole tensor, before ranks divide it
  std::vector<int> order;  // order of visits in a round: indices of products, and data_node once
};

/// The part of a model for which a graph is made: a stage, or all.
struct NetInput {
  const ModelShape& model;
  std::vector<std::int64_t> layers{};  // indices in the model, ascending
  bool head = false;
  std::int64_t rows = 1;   // i: number of tokens of a micro-batch on all replicas of the stage
  Shape data{1, 1};        // shape of token ids, or of a received tensor
  bool data_last = false;  // whether the data is visited after all products
};

/// Makes the graph with MindSpore 2.10's order of visits: the reverse of a depth-first walk
/// backwards from the loss, with inputs from last to first.
SearchNet make_net(const NetInput& input);

}  // namespace trainctl
