// product_algorithms.json: the algorithms of matrix products that a run timed, in its directory and
// in each of its checkpoints (docs/checkpoints.md).
#pragma once

#include <string>
#include <vector>

#include "ops/cuda_libraries.h"

namespace trainctl {

/// Whose algorithms they are: another library or device may not have them, or not as the fastest.
struct ProductSite {
  std::int64_t library = 0;  // CudaProducts::version
  std::string device;        // name, compute capability and multiprocessors
  std::string to_string() const;
  friend bool operator==(const ProductSite&, const ProductSite&) = default;
};

struct AlgorithmTable {
  ProductSite site;
  std::vector<ProductAlgorithm> algorithms;
};

/// The text of the file. It ends with a hash of its own content.
std::string table_text(const AlgorithmTable& table);
/// Reads a text that table_text() wrote. Throws Error{bad_data}; `where` is the name of the file in
/// messages.
AlgorithmTable parse_table(const std::string& text, const std::string& where);

/// What one rank noted, as it tells it to the rank that times.
std::string noted_text(const std::vector<NotedProduct>& noted);
std::vector<NotedProduct> parse_noted(const std::string& text);

}  // namespace trainctl
