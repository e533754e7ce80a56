#include "graph_values.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/dtype.h"

namespace cuda_on_host {
namespace {

using trainctl::bf16;
using trainctl::fp16;

Extents position_of(std::int64_t element, const Extents& extents) {
  Extents at{};
  for (int i = 3; i >= 0; --i) {
    at[static_cast<std::size_t>(i)] = element % extents[static_cast<std::size_t>(i)];
    element /= extents[static_cast<std::size_t>(i)];
  }
  return at;
}

std::int64_t packed_place(const Extents& at, const Extents& extents) {
  return ((at[0] * extents[1] + at[1]) * extents[2] + at[2]) * extents[3] + at[3];
}

/// The element of a tensor with fewer ones that goes with `at` of `whole`: neighbours share it.
std::int64_t shared_place(const Extents& at, const Extents& whole, const Extents& part) {
  Extents own{};
  for (std::size_t i = 0; i < 4; ++i) own[i] = at[i] * part[i] / whole[i];
  return packed_place(own, part);
}

float rounded(float value, cudnnDataType_t type) {
  if (type == CUDNN_DATA_BFLOAT16) return trainctl::to_float(trainctl::to_bf16(value));
  if (type == CUDNN_DATA_HALF) return trainctl::to_float(trainctl::to_fp16(value));
  return value;
}

float read(const void* data, std::int64_t at, cudnnDataType_t type) {
  if (type == CUDNN_DATA_FLOAT) return static_cast<const float*>(data)[at];
  const std::uint16_t bits = static_cast<const std::uint16_t*>(data)[at];
  return type == CUDNN_DATA_BFLOAT16 ? trainctl::to_float(bf16{bits})
                                     : trainctl::to_float(fp16{bits});
}

void write(void* data, std::int64_t at, cudnnDataType_t type, float value) {
  if (type == CUDNN_DATA_FLOAT) {
    static_cast<float*>(data)[at] = value;
  } else {
    static_cast<std::uint16_t*>(data)[at] =
        type == CUDNN_DATA_BFLOAT16 ? trainctl::to_bf16(value).bits : trainctl::to_fp16(value).bits;
  }
}

float apply(int mode, const float* x) {
  switch (mode) {
    case CUDNN_POINTWISE_ADD: return x[0] + x[1];
    case CUDNN_POINTWISE_SUB: return x[0] - x[1];
    case CUDNN_POINTWISE_MUL: return x[0] * x[1];
    case CUDNN_POINTWISE_DIV: return x[0] / x[1];
    case CUDNN_POINTWISE_EXP: return std::exp(x[0]);
    case CUDNN_POINTWISE_LOG: return std::log(x[0]);
    case CUDNN_POINTWISE_IDENTITY: return x[0];
    case CUDNN_POINTWISE_CMP_GE: return x[0] >= x[1] ? 1.0F : 0.0F;
    case CUDNN_POINTWISE_BINARY_SELECT: return x[2] != 0 ? x[0] : x[1];
    default: return std::numeric_limits<float>::quiet_NaN();
  }
}

std::size_t operands_of(int mode) {
  switch (mode) {
    case CUDNN_POINTWISE_ADD:
    case CUDNN_POINTWISE_SUB:
    case CUDNN_POINTWISE_MUL:
    case CUDNN_POINTWISE_DIV:
    case CUDNN_POINTWISE_CMP_GE: return 2;
    case CUDNN_POINTWISE_EXP:
    case CUDNN_POINTWISE_LOG:
    case CUDNN_POINTWISE_IDENTITY:
    case CUDNN_POINTWISE_GEN_INDEX: return 1;
    case CUDNN_POINTWISE_BINARY_SELECT: return 3;
    default: return 0;
  }
}

bool shares(const GraphTensor& part, const GraphTensor& whole) {
  for (std::size_t i = 0; i < 4; ++i) {
    if (whole.extents[i] % part.extents[i] != 0) return false;
    if (part.extents[i] != whole.extents[i] && part.extents[i] != 1 && i != 1) return false;
  }
  return true;
}

std::string flaw_of(const GraphOperation& step) {
  const GraphTensor& to = step.to;
  switch (step.kind) {
    case GraphOperation::Kind::multiply: {
      const Extents& a = step.from[0].extents;
      const Extents& b = step.from[1].extents;
      const bool fits = a[3] == b[2] && to.extents[2] == a[2] && to.extents[3] == b[3] &&
                        to.extents[0] == a[0] && a[0] == b[0] && to.extents[1] == a[1] &&
                        a[1] % b[1] == 0;
      if (to.adds && (to.is_inner || to.type != CUDNN_DATA_FLOAT)) return "sums are not in fp32";
      return fits ? "" : "extents of a product do not fit";
    }
    case GraphOperation::Kind::each:
      if (step.from.size() != operands_of(step.mode)) return "an operation lacks an operand";
      if (to.adds) return "an operation adds up that does not multiply";
      for (const GraphTensor& from : step.from) {
        if (!shares(from, to)) return "extents of an operation do not fit";
      }
      return "";
    case GraphOperation::Kind::reduce: return shares(to, step.from[0]) ? "" : "a sum does not fit";
    case GraphOperation::Kind::reshape:
      return to.reach() == step.from[0].reach() ? "" : "a reshaped tensor has other elements";
  }
  return "an operation that is not known on the host";
}

class Values {
 public:
  Values(const std::map<std::int64_t, void*>& data, const std::map<std::int64_t, float>& numbers)
      : data_(data), numbers_(numbers) {}

  const Elements& of(const GraphTensor& tensor) {
    const auto made = made_.find(tensor.id);
    // An outer tensor may be given by other extents elsewhere.
    if (made != made_.end() && tensor.is_inner) return made->second;
    Elements& all = made_[tensor.id];
    all.assign(static_cast<std::size_t>(tensor.numel()), 0);
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i] = tensor.by_value ? numbers_.at(tensor.id)
                               : read(data_.at(tensor.id),
                                      tensor.place(static_cast<std::int64_t>(i)), tensor.type);
    }
    return all;
  }

  void put(const GraphTensor& tensor, Elements all) {
    for (float& value : all) value = rounded(value, tensor.type);
    for (std::size_t i = 0; i < all.size() && !tensor.is_inner; ++i) {
      write(data_.at(tensor.id), tensor.place(static_cast<std::int64_t>(i)), tensor.type, all[i]);
    }
    if (tensor.is_inner) made_[tensor.id] = std::move(all);
  }

 private:
  const std::map<std::int64_t, void*>& data_;
  const std::map<std::int64_t, float>& numbers_;
  std::map<std::int64_t, Elements> made_;
};

Elements product(const GraphOperation& step, const Elements& a, const Elements& b) {
  const Extents& extents = step.to.extents;
  const std::int64_t inner = step.from[0].extents[3];
  const std::int64_t b_heads = step.from[1].extents[1];
  Elements all(static_cast<std::size_t>(step.to.numel()), 0.0F);
  for (std::int64_t matrix = 0; matrix < extents[0] * extents[1]; ++matrix) {
    const std::int64_t sequence = matrix / extents[1];
    const std::int64_t head = matrix % extents[1] * b_heads / extents[1];
    const float* left = a.data() + matrix * extents[2] * inner;
    const float* right = b.data() + (sequence * b_heads + head) * inner * extents[3];
    float* to = all.data() + matrix * extents[2] * extents[3];
    for (std::int64_t row = 0; row < extents[2]; ++row) {
      for (std::int64_t i = 0; i < inner; ++i) {
        const float factor = left[row * inner + i];
        for (std::int64_t column = 0; column < extents[3]; ++column) {
          to[row * extents[3] + column] += factor * right[i * extents[3] + column];
        }
      }
    }
  }
  return all;
}

void add(Elements& to, const Elements& more) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] += more[i];
}

Elements each(const GraphOperation& step, Values& values) {
  std::vector<Elements> from;
  for (const GraphTensor& tensor : step.from) from.push_back(values.of(tensor));
  Elements all(static_cast<std::size_t>(step.to.numel()));
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Extents at = position_of(static_cast<std::int64_t>(i), step.to.extents);
    if (step.mode == CUDNN_POINTWISE_GEN_INDEX) {
      all[i] = static_cast<float>(at[static_cast<std::size_t>(step.axis)]);
      continue;
    }
    float operands[3] = {};
    for (std::size_t j = 0; j < from.size(); ++j) {
      const auto place = shared_place(at, step.to.extents, step.from[j].extents);
      operands[j] = from[j][static_cast<std::size_t>(place)];
    }
    all[i] = apply(step.mode, operands);
  }
  return all;
}

Elements reduced(const GraphOperation& step, const Elements& from) {
  const bool adds = step.mode == CUDNN_REDUCE_TENSOR_ADD;
  Elements all(static_cast<std::size_t>(step.to.numel()),
               adds ? 0.0F : -std::numeric_limits<float>::infinity());
  const Extents& extents = step.from[0].extents;
  for (std::size_t i = 0; i < from.size(); ++i) {
    const Extents at = position_of(static_cast<std::int64_t>(i), extents);
    float& to = all[static_cast<std::size_t>(shared_place(at, extents, step.to.extents))];
    to = adds ? to + from[i] : std::max(to, from[i]);
  }
  return all;
}

Elements reshaped(const GraphOperation& step, const Elements& from) {
  Elements laid(static_cast<std::size_t>(step.to.reach()));
  for (std::size_t i = 0; i < from.size(); ++i) {
    laid[static_cast<std::size_t>(step.from[0].place(static_cast<std::int64_t>(i)))] = from[i];
  }
  Elements all(static_cast<std::size_t>(step.to.numel()));
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i] = laid[static_cast<std::size_t>(step.to.place(static_cast<std::int64_t>(i)))];
  }
  return all;
}

}  // namespace

std::int64_t GraphTensor::reach() const { return place(numel() - 1) + 1; }

std::int64_t GraphTensor::place(std::int64_t element) const {
  const Extents at = position_of(element, extents);
  std::int64_t place = 0;
  for (std::size_t i = 0; i < 4; ++i) place += at[i] * strides[i];
  return place;
}

std::string flaw_of(const Graph& graph) {
  std::map<std::int64_t, bool> made;
  for (const GraphOperation& step : graph) {
    for (const GraphTensor& from : step.from) {
      if (from.is_inner && !made[from.id]) return "a value is used before it is made";
    }
    const std::string flaw = flaw_of(step);
    if (!flaw.empty()) return flaw;
    if (step.to.by_value || made[step.to.id]) return "a value is made twice";
    made[step.to.id] = true;
  }
  return "";
}

std::map<std::int64_t, GraphTensor> outer_tensors(const Graph& graph) {
  std::map<std::int64_t, GraphTensor> found;
  const auto add = [&](const GraphTensor& tensor) {
    if (!tensor.is_inner) found[tensor.id] = tensor;
  };
  for (const GraphOperation& step : graph) {
    for (const GraphTensor& from : step.from) add(from);
    add(step.to);
  }
  return found;
}

void compute(const Graph& graph, const std::map<std::int64_t, void*>& data,
             const std::map<std::int64_t, float>& numbers) {
  Values values(data, numbers);
  for (const GraphOperation& step : graph) {
    switch (step.kind) {
      case GraphOperation::Kind::multiply: {
        const Elements a = values.of(step.from[0]);
        Elements to = product(step, a, values.of(step.from[1]));
        if (step.to.adds) add(to, values.of(step.to));
        values.put(step.to, std::move(to));
        break;
      }
      case GraphOperation::Kind::each: values.put(step.to, each(step, values)); break;
      case GraphOperation::Kind::reduce:
        values.put(step.to, reduced(step, values.of(step.from[0])));
        break;
      case GraphOperation::Kind::reshape:
        values.put(step.to, reshaped(step, values.of(step.from[0])));
        break;
    }
  }
}

}  // namespace cuda_on_host
