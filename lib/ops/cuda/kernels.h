// The kernels of the CUDA module. All are enqueued on the context's stream, whose device must be
// that of the calling thread.
#pragma once

#include "ops/cuda_libraries.h"
#include "ops/kernels.h"

namespace trainctl::cuda {

#define KERNEL(entry, Args) void entry(const OpContext& context, const Args& args);
#include "ops/kernels.def"
#undef KERNEL

/// Attention by cuDNN if it was prepared for the call, else by the kernels above. Without cuDNN's
/// headers, cudnn/absent.cpp replaces the other files of that folder.
void chosen_attention_forward(const OpContext& context, const AttentionArgs& args);
void chosen_attention_backward(const OpContext& context, const AttentionArgs& args);

extern const CudaAttention attention_part_of_module;

}  // namespace trainctl::cuda
