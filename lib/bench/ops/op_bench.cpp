#include "bench/ops/op_bench.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "device/host_values.h"
#include "ops/elementwise.h"

namespace trainctl {

OpSizes::OpSizes(const Plan& plan)
    : model(plan.model),
      compute(plan.compute),
      attention(layer_form(model, 0).attention),
      ffn(model.kind(0).ffn),
      sequences(plan.micro_batch_size),
      tokens(sequences * model.seq_length),
      head_rows(std::min<std::int64_t>(tokens, 4096)),
      experts(model.experts > 1 ? model.experts : 8),
      topk(model.experts > 1 ? model.topk : 2),
      expert_ffn(model.experts > 1 ? model.expert_ffn : ffn),
      parameters(std::min(plan.stages.front().flat.length, std::int64_t{1} << 26)) {}

OpBench::OpBench(const Plan& plan, const OpContext& ops) : ops_(ops), sizes_(plan) {}

Tensor OpBench::zeros(const std::string& name, const Shape& shape, DType dtype) const {
  const auto found = slabs_.find(name);
  if (found != slabs_.end()) {
    const Tensor tensor = found->second.at(name);
    require(tensor.shape == shape && tensor.dtype == dtype, ExitCode::internal,
            "two cases have different tensors '" + name + "'");
    return tensor;
  }
  return slabs_.emplace(name, Slab(ops_.stream->device(), {{name, shape, dtype}}))
      .first->second.at(name);
}

Tensor OpBench::values(const std::string& name, const Shape& shape) const {
  return values(name, shape, sizes_.compute);
}

Tensor OpBench::values(const std::string& name, const Shape& shape, DType dtype) const {
  const bool is_new = !slabs_.contains(name);
  const Tensor tensor = zeros(name, shape, dtype);
  if (!is_new) return tensor;
  const std::int64_t count = tensor.numel();
  const auto number = static_cast<std::uint64_t>(slabs_.size());
  if (dtype == DType::f32) {
    normal_fill(ops_, {.x = tensor.view({count}), .seed = 1, .stream = number});
    ops_.stream->synchronize();
    return tensor;
  }
  const Slab wide(tensor.device, {{"wide", {count}, DType::f32}});
  normal_fill(ops_, {.x = wide.at("wide"), .seed = 1, .stream = number});
  cast(ops_, {.x = wide.at("wide"), .y = tensor.view({count})});
  ops_.stream->synchronize();
  return tensor;
}

StepState* OpBench::state(const std::string& name) const {
  constexpr auto bytes = static_cast<std::int64_t>(sizeof(StepState));
  StepState first{.learning_rate = 1e-4F, .bias_correction1 = 0.1F, .bias_correction2 = 0.05F};
  const Tensor tensor = zeros(name, {bytes}, DType::u8);
  store({&first, {bytes}, DType::u8, DeviceKind::cpu}, tensor);
  return static_cast<StepState*>(tensor.data);
}

void OpBench::store(const Tensor& from, const Tensor& to) const {
  ops_.stream->synchronize();
  copy_now(to, from);
}

void OpBench::add(const std::string& kernel, const std::string& more, double bytes, double flops,
                  std::function<void()> run) {
  cases_.push_back(
      {kernel, more.empty() ? kernel : kernel + " " + more, bytes, flops, std::move(run)});
}

}  // namespace trainctl
