// Declarations that the functions of the CUDA runtime share.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace cuda_on_host {

/// `status`; an error is the calling thread's last one, with the message.
cudaError_t report(cudaError_t status, const std::string& message = "");
/// The failure of the calling thread's device. Under the machine's lock.
cudaError_t device_error();
/// Under the machine's lock, too: the first call on a device makes its default stream.
cudaStream_t stream_or_default(cudaStream_t stream);

}  // namespace cuda_on_host
