#include "ops/cuda/cudnn/library.h"

#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <string>

#include "base/error.h"

namespace trainctl::cuda {
namespace {

std::string loader_words() {
  const char* words = dlerror();
  return words != nullptr ? words : "the loader does not say why";
}

void* open_library() {
  const char* named = std::getenv("TRAINCTL_CUDNN_LIBRARY");
  const std::string file = named != nullptr && *named != '\0' ? named : "libcudnn.so.9";
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  require(library != nullptr, ExitCode::unavailable,
          library != nullptr ? "" : "cuDNN cannot be opened: " + loader_words());
  return library;
}

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  require(function != nullptr, ExitCode::unavailable,
          "cuDNN has no " + std::string(name) + ": it is older than 9.0");
}

Cudnn open() {
  void* library = open_library();
  Cudnn found{};
  find(library, "cudnnGetVersion", found.version);
  find(library, "cudnnGetErrorString", found.error_text);
  find(library, "cudnnGetLastErrorString", found.last_error);
  find(library, "cudnnCreate", found.create);
  find(library, "cudnnSetStream", found.set_stream);
  find(library, "cudnnBackendCreateDescriptor", found.create_descriptor);
  find(library, "cudnnBackendDestroyDescriptor", found.destroy_descriptor);
  find(library, "cudnnBackendFinalize", found.finalize);
  find(library, "cudnnBackendSetAttribute", found.set_attribute);
  find(library, "cudnnBackendGetAttribute", found.get_attribute);
  find(library, "cudnnBackendExecute", found.execute);
  return found;
}

}  // namespace

const Cudnn& cudnn() {
  static const Cudnn opened = open();
  return opened;
}

void check_cudnn(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  std::array<char, 512> words{};
  cudnn().last_error(words.data(), words.size());
  throw Error(ExitCode::unavailable,
              "[cudnn] " + std::string(call) + ": " + cudnn().error_text(status) +
                  (words[0] != '\0' ? " (" + std::string(words.data()) + ")" : std::string()));
}

}  // namespace trainctl::cuda
