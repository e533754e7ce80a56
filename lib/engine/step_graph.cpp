#include "engine/step_graph.h"

namespace trainctl {

namespace {

constexpr int plain_steps = 2;

}  // namespace

void StepGraph::run(const Parts& parts) {
  if (plain_ < plain_steps) {
    ++plain_;
    return parts.enqueue();
  }
  // What other streams did since the last step, such as gathers for an evaluation. The host waits:
  // NCCL is told not to order graphs behind other calls (NCCL_GRAPH_MIXING_SUPPORT), for which the
  // order of streams is not enough.
  join_streams(parts.compute);
  parts.settle();
  if (!graph_.captured()) {
    capture(parts);
  } else {
    parts.traffic.repeat(before_, after_);
    if (parts.trace != nullptr) parts.trace->repeat_step();
    if (parts.activity != nullptr) parts.activity->start_step();
  }
  graph_.launch(parts.compute);
}

void StepGraph::capture(const Parts& parts) {
  before_ = parts.traffic.counts();
  graph_.capture(parts.compute, parts.enqueue);
  after_ = parts.traffic.counts();
  if (parts.trace != nullptr) parts.trace->keep_step();
}

}  // namespace trainctl
