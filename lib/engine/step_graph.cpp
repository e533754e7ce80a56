#include "engine/step_graph.h"

namespace trainctl {

void StepGraph::run(const Parts& parts) {
  if (!loaded_) {
    parts.enqueue();
    loaded_ = true;
    return;
  }
  // What other streams did since the last step, such as gathers for an evaluation.
  join_streams(parts.compute);
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
  parts.settle();
  before_ = parts.traffic.counts();
  graph_.capture(parts.compute, parts.enqueue);
  after_ = parts.traffic.counts();
  if (parts.trace != nullptr) parts.trace->keep_step();
}

}  // namespace trainctl
