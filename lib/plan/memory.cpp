#include "base/scratch.h"
#include "base/staging.h"
#include "plan/estimate.h"

namespace trainctl {

namespace {

constexpr std::int64_t row_alignment = 64;  // bytes, as device/slab.h

// The program, its libraries and their own buffers, as measured: in one process, and what the wire
// adds to each of several.
constexpr std::int64_t program_allowance = std::int64_t{16} << 20;
constexpr std::int64_t wire_allowance = std::int64_t{10} << 20;

// A prefetched token: input, label, weight, position, document (4 bytes each) and global index (8).
constexpr std::int64_t bytes_per_prefetched_token = 5 * 4 + 8;

std::int64_t padded_bytes(const ActivationSpec& row) {
  const std::int64_t bytes = row.shape.numel() * size_of(row.dtype);
  return (bytes + row_alignment - 1) / row_alignment * row_alignment;
}

std::int64_t optimizer_values(const OptimizerConfig& optimizer) {
  if (optimizer.type == OptimizerType::adamw) return 2;
  return optimizer.momentum > 0 ? 1 : 0;
}

}  // namespace

std::int64_t MemoryEstimate::total() const {
  return parameters + gradients + optimizer + activations + communication + data + runtime;
}

std::int64_t activation_bytes(const std::vector<ActivationSpec>& rows, int slots) {
  std::int64_t per_slot = 0;
  std::int64_t shared = 0;
  for (const ActivationSpec& row : rows) {
    (row.lifetime == Lifetime::transient ? shared : per_slot) += padded_bytes(row);
  }
  return per_slot * slots + shared;
}

MemoryEstimate estimate_memory(const Plan& plan, const Config& config) {
  constexpr std::int64_t fp32 = 4;
  const std::int64_t copy = plan.compute == DType::f32 ? 0 : size_of(plan.compute);
  MemoryEstimate memory;
  memory.parameters = plan.flat.length * (fp32 + copy);
  memory.gradients = plan.flat.length * fp32;
  memory.optimizer = plan.flat.length * fp32 * optimizer_values(config.optimizer);
  memory.activations = activation_bytes(plan.activations, plan.slots) +
                       plan.threads_per_rank * scratch_bytes_per_thread;
  if (plan.model.family == Family::llama) {  // the table of sines and cosines
    memory.activations += plan.model.positions * plan.model.head_dim * fp32;
  }
  if (plan.mesh.dp > 1) {
    memory.communication = staging_bytes(plan.mesh.dp);
  }
  const std::int64_t local_tokens = plan.tokens_per_step() / plan.mesh.dp;
  // The step at hand and those ahead of it.
  memory.data = (config.data.prefetch + 1) * local_tokens * bytes_per_prefetched_token;
  memory.runtime = program_allowance + (plan.mesh.world_size() > 1 ? wire_allowance : 0);
  return memory;
}

}  // namespace trainctl
