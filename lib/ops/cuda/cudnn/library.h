// cuDNN's functions, from a library that is opened when they are first asked for: a machine without
// it runs the module as well.
#pragma once

#include <cudnn_graph.h>

namespace trainctl::cuda {

struct Cudnn {
  decltype(&cudnnGetVersion) version;
  decltype(&cudnnGetErrorString) error_text;
  decltype(&cudnnGetLastErrorString) last_error;
  decltype(&cudnnCreate) create;
  decltype(&cudnnSetStream) set_stream;
  decltype(&cudnnBackendCreateDescriptor) create_descriptor;
  decltype(&cudnnBackendDestroyDescriptor) destroy_descriptor;
  decltype(&cudnnBackendFinalize) finalize;
  decltype(&cudnnBackendSetAttribute) set_attribute;
  decltype(&cudnnBackendGetAttribute) get_attribute;
  decltype(&cudnnBackendExecute) execute;
};

/// Opened once for the process: the file TRAINCTL_CUDNN_LIBRARY names, else libcudnn.so.9 where the
/// loader finds it. Throws Error{unavailable} with the loader's words where there is none.
const Cudnn& cudnn();

/// Throws Error{unavailable} with the call and cuDNN's words unless it returned success.
void check_cudnn(cudnnStatus_t status, const char* call);

}  // namespace trainctl::cuda
