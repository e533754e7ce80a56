// The kernels that the CUDA module has. All are enqueued on the context's stream, whose device must
// be the calling thread's.
#pragma once

#include "ops/kernels.h"

namespace trainctl::cuda {

void matmul(const OpContext& context, const Matmul& args);
void rmsnorm_forward(const OpContext& context, const RmsNormForward& args);
void rmsnorm_backward(const OpContext& context, const RmsNormBackward& args);
void adamw(const OpContext& context, const AdamW& args);

}  // namespace trainctl::cuda
