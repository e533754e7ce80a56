// One operation on one micro-batch, for `trainctl bench ops`.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "device/tensor.h"
#include "engine/memory/buffers.h"
#include "engine/parameters/param_store.h"
#include "ops/context.h"
#include "plan/plan.h"

namespace trainctl {

/// What it reads and writes, what it computes, how to run it.
struct OpCase {
  std::string name;
  double bytes = 0;
  double flops = 0;
  std::function<void()> run;
};

/// What the cases work on; all of it must outlive them.
struct OpTensors {
  const OpContext& ops;
  const Plan& plan;
  const Buffers& buffers;
  ParamStore& parameters;
  std::vector<OpCase>& cases;

  Tensor row(const std::string& name) const { return buffers.at(0, name); }
  void add(std::string name, double bytes, double flops, std::function<void()> run) const {
    cases.push_back({std::move(name), bytes, flops, std::move(run)});
  }
};

double bytes_of(std::initializer_list<Tensor> tensors);

}  // namespace trainctl
