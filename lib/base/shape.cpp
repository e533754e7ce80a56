#include "base/shape.h"

namespace trainctl {

std::string Shape::to_string() const {
  std::string text = "[";
  for (int dim = 0; dim < rank_; ++dim) {
    if (dim > 0) text += ", ";
    text += std::to_string((*this)[dim]);
  }
  return text + "]";
}

}  // namespace trainctl
