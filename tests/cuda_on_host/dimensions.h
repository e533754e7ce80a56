// CUDA's built-in variables: of the thread that runs.
#pragma once

#include <cuda_runtime_api.h>

extern uint3 threadIdx;
extern uint3 blockIdx;
extern dim3 blockDim;
extern dim3 gridDim;
