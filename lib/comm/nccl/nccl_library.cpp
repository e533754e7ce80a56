// The functions of NCCL that the module calls, as nccl.h declares them: each passes its arguments
// on to the library.
#include "comm/nccl/nccl_check.h"

#include <dlfcn.h>
#include <nccl.h>

#include "base/error.h"

namespace trainctl {
namespace {

struct Library {
  void* handle = nullptr;
  std::string failure;
};

/// The library, which is never closed: its threads may run until the process ends.
const Library& library() {
  static const Library opened = [] {
    void* handle = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    return Library{handle, handle == nullptr ? dlerror() : ""};
  }();
  return opened;
}

void* symbol(const char* name) {
  if (!nccl_missing().empty()) throw Error(ExitCode::unavailable, "[nccl] " + nccl_missing());
  void* address = dlsym(library().handle, name);
  if (address == nullptr) {
    throw Error(ExitCode::unavailable,
                "[nccl] libnccl.so.2 has no " + std::string(name) + ": it is older than 2.18");
  }
  return address;
}

/// Calls the library's function of that name, which is looked up once.
template <auto declared, class... Arguments>
auto pass_on(const char* name, Arguments... arguments) {
  static const auto there = reinterpret_cast<decltype(declared)>(symbol(name));
  return there(arguments...);
}

}  // namespace

std::string nccl_missing() { return library().failure; }

}  // namespace trainctl

using trainctl::pass_on;

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  return pass_on<ncclGetVersion>("ncclGetVersion", version);
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  return pass_on<ncclGetUniqueId>("ncclGetUniqueId", id);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  return pass_on<ncclCommInitRankConfig>("ncclCommInitRankConfig", comm, size, id, rank, config);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int colour, int key, ncclComm_t* child,
                           ncclConfig_t* config) {
  return pass_on<ncclCommSplit>("ncclCommSplit", comm, colour, key, child, config);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  return pass_on<ncclCommGetAsyncError>("ncclCommGetAsyncError", comm, state);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return pass_on<ncclCommFinalize>("ncclCommFinalize", comm);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  return pass_on<ncclCommDestroy>("ncclCommDestroy", comm);
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  return pass_on<ncclCommAbort>("ncclCommAbort", comm);
}

ncclResult_t ncclGroupStart() { return pass_on<ncclGroupStart>("ncclGroupStart"); }

ncclResult_t ncclGroupEnd() { return pass_on<ncclGroupEnd>("ncclGroupEnd"); }

const char* ncclGetErrorString(ncclResult_t result) {
  return pass_on<ncclGetErrorString>("ncclGetErrorString", result);
}

const char* ncclGetLastError(ncclComm_t comm) {
  return pass_on<ncclGetLastError>("ncclGetLastError", comm);
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclRedOp_t sum, ncclComm_t comm, cudaStream_t stream) {
  return pass_on<ncclAllReduce>("ncclAllReduce", from, to, count, type, sum, comm, stream);
}

ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type,
                               ncclRedOp_t sum, ncclComm_t comm, cudaStream_t stream) {
  return pass_on<ncclReduceScatter>("ncclReduceScatter", from, to, count, type, sum, comm, stream);
}

ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return pass_on<ncclAllGather>("ncclAllGather", from, to, count, type, comm, stream);
}

ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return pass_on<ncclBroadcast>("ncclBroadcast", from, to, count, type, root, comm, stream);
}

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return pass_on<ncclSend>("ncclSend", data, count, type, peer, comm, stream);
}

ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return pass_on<ncclRecv>("ncclRecv", data, count, type, peer, comm, stream);
}

}  // extern "C"
