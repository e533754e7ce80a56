// Attention by cuDNN or by our kernels. Where cuDNN's headers are not there, no_cudnn.cpp takes
// the place of the folder cudnn.
#pragma once

#include "ops/attention.h"
#include "ops/cuda_attention.h"

namespace trainctl::cuda {

/// By cuDNN what was prepared for it, else by our kernels.
void chosen_attention_forward(const OpContext& context, const AttentionForward& args);
void chosen_attention_backward(const OpContext& context, const AttentionBackward& args);

extern const CudaAttention attention_part_of_module;

}  // namespace trainctl::cuda
