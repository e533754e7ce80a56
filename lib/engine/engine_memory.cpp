#include "engine/engine.h"

namespace trainctl {

MemoryEstimate Engine::memory() const {
  MemoryEstimate memory;
  memory.parameters = store_.bytes("weights") + store_.bytes("masters");
  memory.gradients = store_.bytes("gradients");
  memory.optimizer = store_.bytes("state0") + store_.bytes("state1");
  memory.activations = buffers_.bytes();
  memory.offloaded = buffers_.host_bytes();
  memory.communication = grad_sync_.bytes() + param_sync_.bytes();
  for (const Traffic::Row& row : world_.traffic().rows()) memory.communication += row.memory;
  return memory;
}

}  // namespace trainctl
