// Attention by cuDNN or by our kernels. Where cuDNN's headers are not there, cudnn/absent.cpp takes
// the place of the other files of that folder.
#pragma once

#include "ops/attention.h"
#include "ops/cuda_attention.h"

namespace trainctl::cuda {

/// By cuDNN what was prepared for it, else by our kernels.
void chosen_attention_forward(const OpContext& context, const AttentionForward& args);
void chosen_attention_backward(const OpContext& context, const AttentionBackward& args);

extern const CudaAttention attention_part_of_module;

}  // namespace trainctl::cuda
