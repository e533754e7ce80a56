#include "ops/cuda/cudnn/descriptor.h"

namespace trainctl::cuda {

Descriptor::Descriptor(cudnnBackendDescriptorType_t type) {
  check_cudnn(cudnn().create_descriptor(type, &raw_), "cudnnBackendCreateDescriptor");
}

Descriptor::~Descriptor() {
  if (raw_ != nullptr) cudnn().destroy_descriptor(raw_);
}

void Descriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                     const void* values, std::int64_t count) {
  check_cudnn(cudnn().set_attribute(raw_, name, type, count, values), "cudnnBackendSetAttribute");
}

void Descriptor::finalize() { check_cudnn(cudnn().finalize(raw_), "cudnnBackendFinalize"); }

std::int64_t Descriptor::get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                             void* values, std::int64_t room) const {
  std::int64_t count = 0;
  check_cudnn(cudnn().get_attribute(raw_, name, type, room, &count, values),
              "cudnnBackendGetAttribute");
  return count;
}

}  // namespace trainctl::cuda
