// The parts of the cases of `trainctl bench ops`: tensors of a configuration's sizes, on the CPU or
// a device, and the list of cases over them.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bench/bench_setup.h"
#include "bench/op_times.h"
#include "device/slab.h"
#include "device/tensor.h"
#include "ops/attention.h"
#include "ops/context.h"
#include "plan/model/form.h"

namespace trainctl {

/// One call: the bytes that it reads and writes, its FLOPs, and a function that makes it.
struct OpCase {
  std::string kernel;  // the entry in the table of kernels
  std::string name;    // the entry, and a word for the case
  double bytes = 0;
  double flops = 0;
  std::function<void()> run;
};

/// A micro-batch of the configuration on one rank.
struct OpSizes {
  explicit OpSizes(const Plan& plan);
  ModelShape model;
  DType compute;
  AttentionForm attention;  // form of the first layer
  std::int64_t ffn;         // MLP width of that layer's kind, also if it has experts
  std::int64_t sequences, tokens;
  std::int64_t head_rows;   // rows of logits that exist at a time, at most 4096
  std::int64_t experts;     // number in the model; 8 if it has none
  std::int64_t topk;        // 2 without experts
  std::int64_t expert_ffn;  // `ffn` without experts
  std::int64_t parameters;  // number on the rank, at most 2^26: far beyond every cache
};

class OpBench {
 public:
  OpBench(const Plan& plan, const OpContext& ops);
  OpBench(const OpBench&) = delete;
  OpBench& operator=(const OpBench&) = delete;

  const OpContext& ops() const { return ops_; }
  const OpSizes& sizes() const { return sizes_; }

  /// The tensor with that name, created by the first call: of normal random values in the compute
  /// type or `dtype`, of zeros, or of the values at(i).
  Tensor values(const std::string& name, const Shape& shape) const;
  Tensor values(const std::string& name, const Shape& shape, DType dtype) const;
  Tensor zeros(const std::string& name, const Shape& shape, DType dtype) const;
  template <class T>
  Tensor filled(const std::string& name, const Shape& shape,
                const std::function<T(std::int64_t)>& at) const {
    const Tensor tensor = zeros(name, shape, dtype_of<T>);
    std::vector<T> list;
    for (std::int64_t i = 0; i < tensor.numel(); ++i) list.push_back(at(i));
    store(host_tensor(list.data(), tensor.numel()), tensor);
    return tensor;
  }
  /// Step values in the memory of the device, as in a first step without clipping.
  StepState* state(const std::string& name) const;

  /// Copies one tensor into another, after all enqueued work.
  void store(const Tensor& from, const Tensor& to) const;

  /// Adds a case; `more` distinguishes it from others of the same kernel.
  void add(const std::string& kernel, const std::string& more, double bytes, double flops,
           std::function<void()> run);
  void add(OpCase one) { cases_.push_back(std::move(one)); }
  const std::vector<OpCase>& cases() const { return cases_; }

 private:
  const OpContext& ops_;
  OpSizes sizes_;
  mutable std::map<std::string, Slab> slabs_;
  std::vector<OpCase> cases_;
};

// Every entry of the table of kernels has at least one case in one of these functions.
void add_row_cases(OpBench& bench);  // norms, activations, elementwise, embedding
void add_attention_cases(OpBench& bench);
/// The model's products, and squares up to the size that takes 10 ms at `rate` FLOP/s.
void add_product_cases(OpBench& bench, double rate);
/// Adds products in TF32 and FP8, as far as a device has these formats.
void add_rate_cases(OpBench& bench);
void add_expert_cases(OpBench& bench);  // router, rows; products where the model has experts
void add_step_cases(OpBench& bench);    // cross-entropy, optimizers, the end of a step

// Causal attention over whole sequences, as benchmarks call it.

/// Each token attends to itself and the earlier ones in its sequence of `length` tokens.
AttentionShape causal_shape(std::int64_t sequences, std::int64_t length, std::int64_t heads,
                            std::int64_t kv_heads, std::int64_t head_dim);

/// The arguments of the forward and the backward pass, on operands of `bench` whose names end with
/// `name`. The bench must outlive them.
AttentionArgs attention_args(const OpBench& bench, const AttentionShape& shape,
                             const std::string& name);

}  // namespace trainctl
