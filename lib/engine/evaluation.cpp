#include "engine/evaluation.h"

#include <algorithm>

namespace trainctl {

namespace {

/// Makes padding of all but the first `kept` sequences.
void drop_sequences(Batch& batch, std::int64_t kept) {
  for (std::size_t i = static_cast<std::size_t>(kept * batch.length); i < batch.loss_weight.size();
       ++i) {
    batch.weight_sum -= static_cast<double>(batch.loss_weight[i]);
    batch.loss_weight[i] = 0;
  }
  for (std::size_t row = static_cast<std::size_t>(kept); row < batch.real.size(); ++row) {
    batch.real[row] = 0;
  }
}

}  // namespace

Evaluation::Evaluation(const Plan& plan, World& world)
    : last_(plan.mesh.coordinate(world.rank(), Axis::pp) == plan.map.places().last_stage()),
      peers_(world.group("stage", plan.mesh.group(world.rank(), {Axis::tp, Axis::cp, Axis::dp}))),
      shared_(2 * static_cast<std::size_t>(peers_->size())) {}

std::optional<double> Evaluation::run(const Parts& parts, const Dataset& data,
                                      const BatchRule& rule, std::int64_t max_windows) {
  const Plan& plan = parts.plan;
  std::int64_t windows = data.windows();
  if (max_windows > 0 && max_windows < windows) windows = max_windows;
  const std::int64_t size = plan.micro_batch_size;
  const std::int64_t replica = plan.mesh.coordinate(parts.pipeline.world_rank(), Axis::dp);
  const std::int64_t stride = plan.mesh.dp * size;  // of all replicas
  // Where weights are gathered for each pass, or tokens go to experts of other ranks, a replica
  // without windows takes part with a batch that does not count. That some stage needs it decides
  // for all: each passes on what it gets.
  const bool together = plan.mesh.ep * plan.exchange.parts > 1 ||
                        std::any_of(plan.stages.begin(), plan.stages.end(), frees_weights);
  Batch batch;
  std::array<double, 2> mine{};  // loss, weight
  std::int64_t passes = 0;
  for (std::int64_t begin = 0; begin < windows; begin += stride) {
    if (parts.ends && passes++ % plan.microbatches == 0) {
      parts.pipeline.await_outputs();
      if (parts.ends()) return std::nullopt;
    }
    const std::int64_t first = begin + replica * size;
    const bool beyond = first >= windows;
    if (beyond && !together) continue;
    make_window_batch(data, rule, beyond ? begin : first, batch);
    drop_sequences(batch, beyond ? 0 : windows - first);
    add_batch(parts, batch, mine);
  }
  parts.pipeline.await_outputs();  // a rank that knows nothing more may leave
  std::array<double, 1> mean{};
  if (last_) {
    Stream stream(DeviceKind::cpu, "evaluation", Stream::Mode::run_inline);
    gather_values(*peers_, mine, shared_, stream);
    std::array<double, 2> all{};
    for (std::size_t i = 0; i < shared_.size(); ++i) all[i % 2] += shared_[i];
    mean[0] = all[0] / all[1];
  }
  const bool knows = parts.pipeline.share_result(host_tensor(mean.data(), 1));
  return knows ? std::optional(mean[0]) : std::nullopt;
}

void Evaluation::add_batch(const Parts& parts, const Batch& batch, std::array<double, 2>& sums) {
  parts.state.host().loss_sum = 0;
  parts.state.send(parts.compute);
  parts.executor.forward(batch);
  parts.state.fetch(parts.compute, parts.deadline_seconds);
  sums[0] += parts.state.host().loss_sum;
  sums[1] += reads_first(parts.plan.mesh, parts.pipeline.world_rank()) ? batch.weight_sum : 0;
}

}  // namespace trainctl
