// Attention by cuDNN in a module built without cuDNN's headers: preparing fails, and all calls use
// our own kernels.
#include "base/error.h"
#include "ops/cuda/kernels.h"

namespace trainctl::cuda {
namespace {

[[noreturn]] void refuse() {
  throw Error(ExitCode::unavailable, "the CUDA module was built without cuDNN's headers");
}

}  // namespace

void chosen_attention_forward(const OpContext& context, const AttentionArgs& args) {
  cuda::attention_forward(context, args);
}

void chosen_attention_backward(const OpContext& context, const AttentionArgs& args) {
  cuda::attention_backward(context, args);
}

const CudaAttention attention_part_of_module{
    .version = []() -> std::int64_t { refuse(); },
    .prepare = [](const AttentionExtents&, const AttentionExtents&, DType) { refuse(); },
    .check = [](const AttentionExtents&, DType, const std::string&) -> std::int64_t { refuse(); }};

}  // namespace trainctl::cuda
