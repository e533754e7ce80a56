// The kernels that the CUDA module has. All are enqueued on the context's stream, whose device must
// be the calling thread's.
#pragma once

#include "ops/cuda_libraries.h"
#include "ops/kernels.h"

namespace trainctl::cuda {

#define KERNEL(entry, Args) void entry(const OpContext& context, const Args& args);
#include "ops/kernels.def"
#undef KERNEL

/// Attention by cuDNN where it was prepared for it, else by the kernels above. Where cuDNN's
/// headers are not there, cudnn/absent.cpp takes the place of the other files of that folder.
void chosen_attention_forward(const OpContext& context, const AttentionArgs& args);
void chosen_attention_backward(const OpContext& context, const AttentionArgs& args);

extern const CudaAttention attention_part_of_module;

}  // namespace trainctl::cuda
