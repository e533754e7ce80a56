// The kernels that the CUDA module has. All are enqueued on the context's stream, whose device must
// be the calling thread's.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "ops/kernels.h"

namespace trainctl::cuda {

/// No kernel here takes fp16 yet: throws Error{unavailable} naming `op`.
inline void refuse_fp16(std::string_view op, DType type) {
  if (type != DType::f16) return;
  throw Error(ExitCode::unavailable, "[" + std::string(op) + "] is not built for fp16 on cuda yet");
}

void matmul(const OpContext& context, const Matmul& args);
void rmsnorm_forward(const OpContext& context, const RmsNormForward& args);
void rmsnorm_backward(const OpContext& context, const RmsNormBackward& args);
void adamw(const OpContext& context, const AdamW& args);

}  // namespace trainctl::cuda
