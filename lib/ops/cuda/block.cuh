// Everything that kernels need and C++ lacks: launches, shared memory, tensor-core products and
// asynchronous copies. Only this file and conversions.cuh contain PTX, and this one replaces
// <<<>>>. All other kernel sources are plain C++; tests/cuda_on_host has versions of these two
// files for the host.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "device/cuda_check.h"

namespace trainctl::cuda {

/// The blocks of a launch, the threads per block, and the block's dynamic shared memory.
struct Grid {
  dim3 blocks;
  dim3 threads;
  std::size_t shared_bytes = 0;
};

/// Enqueues kernel(args...), converting arguments to the kernel's parameter types. Throws like
/// CUDA_CHECK. A block may use as much shared memory as the device has.
template <class... Params, class... Args>
void launch(void (*kernel)(Params...), const Grid& grid, cudaStream_t stream, const Args&... args) {
  constexpr std::size_t without_asking = 32 << 10;  // leaves room for static memory within 48 KiB
  if (grid.shared_bytes > without_asking) {
    CUDA_CHECK(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                    cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(grid.shared_bytes)));
  }
  cudaLaunchConfig_t config{};
  config.gridDim = grid.blocks;
  config.blockDim = grid.threads;
  config.dynamicSmemBytes = grid.shared_bytes;
  config.stream = stream;
  CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...));
}

/// The block's dynamic shared memory, 128-byte aligned, initially undefined.
template <class T>
__device__ T* dynamic_shared() {
  extern __shared__ __align__(128) unsigned char dynamic_shared_bytes[];
  return reinterpret_cast<T*>(dynamic_shared_bytes);
}

/// An array in shared memory, distinct for each `Use`, T and count; initially undefined.
template <class Use, class T, int count>
__device__ T* static_shared() {
  __shared__ __align__(16) T elements[count];
  return elements;
}

/// Marks a pointer that was loaded from memory as one to global memory; otherwise the compiler must
/// assume any kind of memory.
template <class T>
__device__ T* global_pointer(T* pointer) {
  __builtin_assume(__isGlobal(pointer));
  return pointer;
}

/// c += a b for one warp: a [16, 16] and b [16, 8] in 16 bits, c [16, 8] in fp32, in the fragments
/// of PTX's mma.sync.m16n8k16.
template <class T>
__device__ void multiply_fragments(float (&c)[4], const std::uint32_t (&a)[4],
                                   const std::uint32_t (&b)[2]);
template <>
__device__ inline void multiply_fragments<bf16>(float (&c)[4], const std::uint32_t (&a)[4],
                                                const std::uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
template <>
__device__ inline void multiply_fragments<fp16>(float (&c)[4], const std::uint32_t (&a)[4],
                                                const std::uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// Loads four 8 x 8 matrices of 16-bit elements from shared memory: lane 8 i + r gives the address
/// of row r of matrix i, aligned to 16 bytes; each lane gets two elements of row lane / 4 of each
/// matrix (PTX: ldmatrix).
__device__ inline void load_matrices(std::uint32_t (&to)[4], const void* row) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

/// Like load_matrices(), with each matrix transposed.
__device__ inline void load_matrices_transposed(std::uint32_t (&to)[4], const void* row) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

/// Starts a copy of 16 bytes from global to shared memory, both 16-byte aligned; if `present` is
/// false, writes zeros without reading. The starting thread sees the bytes after commit_copies and
/// wait_for_copies, other threads after a barrier in addition.
__device__ inline void start_copy(void* shared, const void* global, bool present) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(global),
               "r"(present ? 16 : 0)
               : "memory");
}

/// Groups the copies that this thread started since the last group.
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/// Waits until at most the newest `pending` groups of this thread are incomplete.
template <int pending>
__device__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

}  // namespace trainctl::cuda
