// The graph on which recursive_programming decides: the matrix products of a pipeline stage, and
// the data that they read (docs/auto-parallel.md). Products of experts and routers, attention's own
// two products, norms and look-ups are not in it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/tables/model.h"
#include "plan/tables/splits.h"

namespace trainctl {

/// The extents of a product A (i x k) by B (k x j): B holds the weights, k x j of them.
struct Extents {
  std::int64_t i = 1, k = 1, j = 1;
  friend bool operator==(const Extents&, const Extents&) = default;
};

/// Rows and columns of a whole tensor.
struct MatrixShape {
  std::int64_t rows = 1, columns = 1;
  friend bool operator==(const MatrixShape&, const MatrixShape&) = default;
};

/// The operators that the words of operator_splits name.
enum class SearchOperator : std::uint8_t { attention, feed_forward, head };

/// Stands for the data where a product's producer, or the next to visit, is not a product.
inline constexpr int data_node = -1;

struct SearchProduct {
  std::string name;        // as strategy files call it: "layers.0.attention.q"
  std::int64_t layer = 0;  // of the model; 0 for the head
  SearchOperator of = SearchOperator::head;
  bool sums =
      false;  // reads what its operator makes: out, down; split by features it is cut along k
  Extents extents{};
  std::vector<int> producers{};  // of its first input: indices of products, or data_node
  std::optional<int> second{};   // the product of the second factor, up, where the first is gate
};

struct SearchNet {
  std::vector<SearchProduct> products;  // in the order of the model
  MatrixShape data;
  std::vector<int> order;  // of visits in a round: indices of products, and data_node once
};

/// A stage, or the whole model.
struct NetInput {
  const ModelShape& model;
  std::vector<std::int64_t> layers{};  // of the model, ascending
  bool head = false;
  std::int64_t rows = 1;   // i: the tokens of a micro-batch on all replicas of the stage
  MatrixShape data{};      // of ids, or of what the stage receives
  bool data_last = false;  // the data is visited after all products
};

/// The products are visited as MindSpore 2.10 does: the graph is walked backwards from the loss,
/// depth first, inputs from the last to the first; the order is the reverse of that in which they
/// are met.
SearchNet make_net(const NetInput& input);

}  // namespace trainctl
